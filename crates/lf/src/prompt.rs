//! The prompt of an interactive chat: lines of text from a person, in a terminal that is left as it was found.

use std::io::{IsTerminal as _, Write as _};

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use rustyline::error::ReadlineError;
use rustyline::{Behavior, Config, DefaultEditor};

use crate::exit::Trouble;
use crate::signals::Signals;

/// Ends what the line editor begins with every line: pasted text comes in marks.
const UNMARKED_PASTES: &str = "\x1b[?2004l";

/// What came at the prompt.
pub(crate) enum Line {
    Text(String),
    /// Ctrl-c, ctrl-d or a closed terminal.
    End,
    /// The program is to end. A thread may go on waiting for the terminal; it ends with the program.
    Signal,
}

pub(crate) struct Prompt {
    /// `None` once a thread was left behind with it.
    editor: Option<DefaultEditor>,
    /// How the terminal was found.
    found: Option<Termios>,
}

impl Prompt {
    pub(crate) fn new() -> Result<Self, Trouble> {
        let found = tcgetattr(std::io::stdin()).ok();
        let editor = DefaultEditor::new()
            .map_err(|error| Trouble::failure(format!("the terminal cannot be used: {error}")))?;
        Ok(Self { editor: Some(editor), found })
    }

    /// For questions while something else has the standard output.
    pub(crate) fn for_questions() -> Result<Self, Trouble> {
        let found = tcgetattr(std::io::stdin()).ok();
        let config = Config::builder().behavior(Behavior::PreferTerm).build();
        let editor = DefaultEditor::with_config(config)
            .map_err(|error| Trouble::failure(format!("the terminal cannot be used: {error}")))?;
        Ok(Self { editor: Some(editor), found })
    }

    /// Waits for a line, or for a signal.
    pub(crate) async fn line(&mut self, signals: &mut Signals) -> Result<Line, Trouble> {
        self.ask("> ", signals).await
    }

    /// The same with other words before the cursor. Ctrl-c is [`Line::End`].
    pub(crate) async fn ask(&mut self, words: &str, signals: &mut Signals) -> Result<Line, Trouble> {
        loop {
            let Some(mut editor) = self.editor.take() else { return Ok(Line::Signal) };
            let words = words.to_owned();
            let read = tokio::task::spawn_blocking(move || {
                let line = editor.readline(&words);
                (editor, line)
            });
            let read = tokio::select! {
                read = read => read,
                _ = signals.next() => {
                    self.restore();
                    return Ok(Line::Signal);
                }
            };
            let (editor, line) =
                read.map_err(|error| Trouble::failure(format!("the line editor failed: {error}")))?;
            self.editor = Some(editor);
            return match line {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted | ReadlineError::Eof) => Ok(Line::End),
                Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    Trouble::usage("that line is not UTF-8 text; it was not sent".to_owned()).print();
                    continue;
                }
                Err(error) => Err(Trouble::failure(format!("cannot read the terminal: {error}"))),
            };
        }
    }

    /// For the up key.
    pub(crate) fn remember(&mut self, line: &str) {
        if let Some(editor) = &mut self.editor {
            let _ = editor.add_history_entry(line);
        }
    }

    /// Undoes what the line editor has done to the terminal, if it has.
    fn restore(&self) {
        let Some(found) = &self.found else { return };
        let stdin = std::io::stdin();
        // another program's terminal is none of ours; without job control there is no such question
        let elsewhere = tcgetpgrp(&stdin).is_ok_and(|group| group != getpgrp());
        if elsewhere || tcgetattr(&stdin).is_ok_and(|now| now == *found) {
            return;
        }
        let _ = tcsetattr(&stdin, SetArg::TCSANOW, found);
        let mut out = std::io::stdout();
        if out.is_terminal() {
            // the editor writes this whatever colours are wished for
            let _ = writeln!(out, "{UNMARKED_PASTES}").and_then(|()| out.flush());
        }
    }
}

/// The thread that was left behind may have come to the terminal after [`Prompt::restore`].
impl Drop for Prompt {
    fn drop(&mut self) {
        if self.editor.is_none() {
            self.restore();
        }
    }
}
