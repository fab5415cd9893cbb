//! How the program ends, and what it says when something is wrong.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use lf_core::visible::words;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Failure,
    /// Wrong usage or configuration.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    pub(crate) fn status(self) -> i32 {
        self as i32
    }
}

/// Something a person has to be told before the program ends.
#[derive(Debug)]
pub(crate) struct Trouble {
    exit: Exit,
    /// Rendered diagnostics are shown as they are.
    rendered: bool,
    message: String,
    hint: Option<String>,
}

impl Trouble {
    pub(crate) fn failure(message: String) -> Self {
        Self { exit: Exit::Failure, rendered: false, message, hint: None }
    }

    pub(crate) fn usage(message: String) -> Self {
        Self { exit: Exit::Usage, rendered: false, message, hint: None }
    }

    /// Diagnostics that are already in their final form.
    pub(crate) fn diagnostics(rendered: String) -> Self {
        Self { exit: Exit::Usage, rendered: true, message: rendered, hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn print(&self) {
        if self.message.is_empty() {
            return;
        }
        let red: Style = AnsiColor::Red.on_default().bold();
        let cyan: Style = AnsiColor::Cyan.on_default();
        let mut err = anstream::stderr().lock();
        let _ = match self.rendered {
            true => writeln!(err, "{}", self.message.trim_end()),
            // it may repeat what a stranger said
            false => writeln!(err, "{red}error{red:#}: {}", words(&self.message)),
        };
        if let Some(hint) = &self.hint {
            let _ = writeln!(err, "{cyan}hint{cyan:#}: {}", words(hint));
        }
    }
}

/// Tells something on stderr. Where nobody can be told, that is no reason to end.
pub(crate) fn tell(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Writes to stdout what a command is asked for.
///
/// # Errors
/// When it cannot be written: an answer that is lost is no success.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<(), Trouble> {
    let mut out = anstream::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        // whoever read has seen enough
        std::io::ErrorKind::BrokenPipe => Trouble::failure(String::new()),
        _ => Trouble::failure(format!("cannot write to stdout: {error}")),
    })
}

/// The same with an end of line.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_line(text: impl std::fmt::Display) -> Result<(), Trouble> {
    print(format_args!("{text}\n"))
}
