//! `lf chat`: one question, or a conversation.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use lf_core::message::Prose;
use lf_core::model::ChatRequest;
use lf_core::tool::{self, Reply};
use lf_core::{ChatEvent, Message, Project};
use lf_server::{App, With};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::args;
use crate::asking::{self, Asked, AtTheTerminal, Outcome};
use crate::daemon::{Daemon, Kept};
use crate::exit::{Exit, Trouble, print_line};
use crate::prompt::{Line, Prompt};
use crate::replay::recording;
use crate::signals::{Caught, Signals};
use crate::transcript::{Terminal, Transcript, variables};

/// Largest message that is read from a file or stdin, in bytes.
const INPUT_LIMIT: u64 = 4 * 1024 * 1024;

/// For a turn that is to be stopped to tell its name: it may wait for others of its conversation.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// The events of a turn, or why there is none.
type Begun = Result<BoxStream<'static, ChatEvent>, Trouble>;

#[derive(Clone, Copy)]
pub(crate) enum View {
    Text,
    Json,
    Events,
}

impl View {
    pub(crate) fn of(json: bool, events: bool) -> Self {
        match (json, events) {
            (true, _) => Self::Json,
            (_, true) => Self::Events,
            _ => Self::Text,
        }
    }
}

/// What the words on the command line mean.
pub(crate) struct Question {
    /// `namespace/project`.
    pub project: Option<String>,
    /// `None`: a conversation.
    pub text: Option<String>,
}

impl Question {
    pub(crate) fn of(chat: &args::Chat) -> Result<Self, Trouble> {
        let (project, word) = match &chat.words[..] {
            [] => (None, None),
            [only] if chat.file.is_some() && is_project(only) => (Some(only.clone()), None),
            [text] => (None, Some(text.clone())),
            [project, text] if is_project(project) => (Some(project.clone()), Some(text.clone())),
            words => {
                let hint = "put the message in quotes: lf chat \"what is in notes.txt\"";
                return Err(Trouble::usage(format!(
                    "the message is more than one word: {}",
                    words.join(" ")
                ))
                .hint(hint));
            }
        };
        let text = match (&chat.file, word) {
            (Some(_), Some(_)) => {
                return Err(Trouble::usage("a message and `--file` are both given".to_owned()));
            }
            (Some(path), None) if path.as_os_str() == "-" => Some(read(std::io::stdin(), "stdin")?),
            (Some(path), None) => {
                let file = std::fs::File::open(path)
                    .map_err(|error| Trouble::usage(format!("cannot read {}: {error}", path.display())))?;
                Some(read(file, &path.display().to_string())?)
            }
            (None, Some(word)) if word == "-" => Some(read(std::io::stdin(), "stdin")?),
            (None, None) if !std::io::stdin().is_terminal() => Some(read(std::io::stdin(), "stdin")?),
            (None, word) => word,
        };
        if text.as_deref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Trouble::usage("the message is empty".to_owned()));
        }
        Ok(Self { project, text })
    }
}

/// One file has one turn, of this process.
pub(crate) fn check_recording(chat: &args::Chat, question: &Question) -> Result<(), Trouble> {
    if chat.record.is_none() {
        return Ok(());
    }
    if chat.server.is_some() {
        let message =
            "`--record` records a turn of this process, and `--server` (LF_SERVER) has it in a daemon";
        return Err(
            Trouble::usage(message.to_owned()).hint("`lf serve --record DIR` records a daemon's turns")
        );
    }
    if question.text.is_none() {
        let message = "`--record` records one turn: give it a message";
        return Err(
            Trouble::usage(message.to_owned()).hint("lf chat --record turn.jsonl \"what is in notes.txt\"")
        );
    }
    Ok(())
}

fn is_project(word: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    word.split_once('/').is_some_and(|(namespace, project)| plain(namespace) && plain(project))
}

fn read(input: impl std::io::Read, name: &str) -> Result<String, Trouble> {
    let mut text = String::new();
    input
        .take(INPUT_LIMIT + 1)
        .read_to_string(&mut text)
        .map_err(|error| Trouble::usage(format!("cannot read {name}: {error}")))?;
    if text.len() as u64 > INPUT_LIMIT {
        return Err(Trouble::usage(format!("{name} is larger than {INPUT_LIMIT} bytes")));
    }
    Ok(text)
}

/// Runs the chat.
pub(crate) async fn run(
    engine: Engine<'_>,
    chat: &args::Chat,
    question: Question,
    person: &mut Person<'_>,
) -> Result<Exit, Trouble> {
    let view = View::of(chat.json, chat.events);
    let variables = variables(&chat.variables).map_err(Trouble::usage)?;
    let mut conversation = Conversation { engine, chat, variables, messages: Vec::new(), always: Vec::new() };
    let signals = &mut *person.signals;
    let Some(prompt) = person.prompt.as_deref_mut() else {
        let mut seat = Seat::Later(None);
        return Ok(
            match conversation.ask(question.text.unwrap_or_default(), view, &mut seat, signals).await? {
                Turn::Answered => Exit::Success,
                Turn::Failed | Turn::Stopped(_) => Exit::Failure,
            },
        );
    };
    conversation.go_on(view, prompt, signals).await
}

/// Who asks.
pub(crate) struct Person<'a> {
    /// For a conversation.
    pub prompt: Option<&'a mut Prompt>,
    pub signals: &'a mut Signals,
}

/// Where the turns run.
pub(crate) enum Engine<'a> {
    Here {
        app: &'a App,
        scope: Option<Arc<Project>>,
    },
    Daemon(Daemon),
    /// A conversation that a daemon keeps.
    Kept(Kept),
}

impl Engine<'_> {
    /// Ends a turn that goes on without its watchers.
    async fn stop(&self, turn: Option<&str>) {
        if let (Self::Kept(kept), Some(turn)) = (self, turn)
            && let Err(trouble) = kept.cancel(turn).await
        {
            trouble.print();
        }
    }

    /// The same for a turn that has not told its name: a daemon begins it although its client leaves, so that it is waited for.
    /// A second signal leaves it.
    async fn stop_unnamed(&self, begun: impl Future<Output = Begun>, signals: &mut Signals) {
        let Self::Kept(_) = self else { return };
        let named = async {
            let mut events = begun.await.ok()?;
            loop {
                match events.next().await? {
                    ChatEvent::Started { turn, .. } => return Some(turn),
                    event if event.is_last() => return None,
                    _ => {}
                }
            }
        };
        tokio::select! {
            named = timeout(STOP_WAIT, named) => match named {
                Ok(turn) => self.stop(turn.as_deref()).await,
                Err(_) => {
                    let _ = writeln!(anstream::stderr(), "the turn has not begun within {STOP_WAIT:?}, and will run");
                }
            },
            _ = signals.next() => {}
        }
    }

    /// `with` is for a turn that runs here; of a daemon's turn the person is asked only what has to be approved.
    async fn events(&self, request: ChatRequest, with: With) -> Begun {
        match self {
            Engine::Here { app, scope } => match app.chat_with(scope.as_ref(), request, with).await {
                Ok(events) => Ok(events.boxed()),
                Err(refusal) => Err(Trouble::failure(refusal.to_string())),
            },
            Engine::Daemon(daemon) => Ok(daemon.events(request, with.person)),
            Engine::Kept(kept) => kept.events(&request, with.person).await,
        }
    }
}

/// Where a person is asked.
enum Seat<'a> {
    /// At the prompt of the conversation.
    Prompt(&'a mut Prompt),
    /// At one that is made for the first question.
    Later(Option<Box<Prompt>>),
}

impl Seat<'_> {
    fn prompt(&mut self) -> Result<&mut Prompt, Trouble> {
        match self {
            Self::Prompt(prompt) => Ok(prompt),
            Self::Later(Some(prompt)) => Ok(prompt),
            Self::Later(none) => Ok(none.insert(Box::new(Prompt::for_questions()?))),
        }
    }
}

/// What is seen of a turn.
pub(crate) struct Screen {
    transcript: Transcript,
    terminal: Terminal,
    view: View,
}

impl Screen {
    pub(crate) fn new(view: View) -> Self {
        Self { transcript: Transcript::default(), terminal: Terminal::new(), view }
    }

    pub(crate) fn take(&mut self, event: &ChatEvent) -> Result<(), Trouble> {
        self.transcript.push(event);
        match self.view {
            View::Text => self.terminal.show(event),
            View::Events => print_line(lf_server::view::event(event)),
            View::Json => match event {
                ChatEvent::Notice(_) => self.terminal.show(event),
                _ => Ok(()),
            },
        }
    }

    /// Ends what was shown; a document is shown now, with one more field.
    pub(crate) fn end(mut self, more: Option<(&str, Value)>) -> Result<Transcript, Trouble> {
        self.terminal.end()?;
        if let View::Json = self.view {
            let mut document = self.transcript.document();
            if let Some((field, value)) = more {
                document[field] = value;
            }
            print_line(document)?;
        }
        Ok(self.transcript)
    }
}

/// Server and tool that the person has approved for all of the conversation.
type Approved = (Arc<str>, Option<Arc<str>>);

/// Asks the person, while the turn goes on; what it tells meanwhile is shown afterwards.
async fn interview(
    (question, mut reply): Asked,
    seat: &mut Seat<'_>,
    events: &mut BoxStream<'static, ChatEvent>,
    screen: &mut Screen,
    signals: &mut Signals,
    always: &mut Vec<Approved>,
) -> Result<Option<Caught>, Trouble> {
    let approved = (question.method == tool::Question::APPROVAL)
        .then(|| (question.server.clone(), question.tool.clone()));
    if approved.as_ref().is_some_and(|approved| always.contains(approved)) {
        let _ = reply.send(Reply::Result(json!({"decision": "always"})));
        return Ok(None);
    }
    screen.terminal.end()?;
    let mut held = Vec::new();
    let outcome = {
        let mut interview = std::pin::pin!(asking::interview(seat.prompt()?, signals, &question));
        let (mut is_over, mut is_told) = (false, false);
        loop {
            tokio::select! {
                outcome = &mut interview => break outcome?,
                event = events.next(), if !is_over => match event {
                    // many, and only the latest would matter
                    Some(ChatEvent::CallProgress { .. }) => {}
                    Some(event) => held.push(event),
                    None => is_over = true,
                },
                () = reply.closed(), if !is_told => {
                    let _ = writeln!(anstream::stderr(), "\n(nobody waits for this answer any more; press enter)");
                    is_told = true;
                }
            }
        }
    };
    let caught = match outcome {
        Outcome::Reply(said) => {
            if matches!(&said, Reply::Result(said) if said["decision"] == "always") {
                always.extend(approved);
            }
            // a turn that is over has no use for it
            let _ = reply.send(said);
            None
        }
        Outcome::Signal => Some(Caught::End),
    };
    for event in &held {
        screen.take(event)?;
    }
    Ok(caught)
}

/// How a turn ended.
enum Turn {
    Answered,
    Failed,
    Stopped(Caught),
}

struct Conversation<'a> {
    engine: Engine<'a>,
    chat: &'a args::Chat,
    variables: Map<String, Value>,
    messages: Vec<Message>,
    always: Vec<Approved>,
}

impl Conversation<'_> {
    /// One turn. What it added to the conversation is kept.
    async fn ask(
        &mut self,
        text: String,
        view: View,
        seat: &mut Seat<'_>,
        signals: &mut Signals,
    ) -> Result<Turn, Trouble> {
        let before = self.messages.len();
        self.messages.push(Message::User(Prose { content: text.into(), rest: Map::new() }));
        let request = ChatRequest {
            model: self.chat.model.clone(),
            messages: self.messages.clone(),
            variables: self.variables.clone(),
            stream: true,
            ..ChatRequest::default()
        };
        let (person, mut questions) = AtTheTerminal::new();
        // a program that reads events or a document cannot be asked, and its person does not look here
        let is_asked = matches!(view, View::Text) && asking::is_somebody_there();
        let person = is_asked.then(|| Arc::new(person) as Arc<dyn tool::Person>);
        let recording = self.chat.record.as_deref().map(recording).transpose()?;
        let with = With { person, recording };
        let mut begun = Box::pin(self.engine.events(request, with));
        let events = tokio::select! {
            events = &mut begun => events,
            caught = signals.next() => {
                self.engine.stop_unnamed(begun, signals).await;
                self.messages.truncate(before);
                let _ = writeln!(anstream::stderr(), "stopped");
                return Ok(Turn::Stopped(caught));
            }
        };
        let mut events = match events {
            Ok(events) => events,
            Err(trouble) => {
                self.messages.truncate(before);
                return Err(trouble);
            }
        };
        let mut screen = Screen::new(view);
        let stopped = loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => screen.take(&event)?,
                    None => break None,
                },
                Some(asked) = questions.recv() => {
                    let caught = interview(asked, seat, &mut events, &mut screen, signals, &mut self.always).await?;
                    if caught.is_some() {
                        break caught;
                    }
                }
                caught = signals.next() => break Some(caught),
            }
        };
        let mut transcript = screen.end(None)?;
        if stopped.is_some() && transcript.turn.is_none() {
            self.engine.stop_unnamed(std::future::ready(Ok(events)), signals).await;
        } else {
            // dropping the stream cancels the model's request and the running tools
            drop(events);
        }
        if stopped.is_some() {
            self.engine.stop(transcript.turn.as_deref()).await;
            let _ = writeln!(anstream::stderr(), "stopped");
        }
        let turn = match stopped {
            Some(caught) => Turn::Stopped(caught),
            None if transcript.failure.is_some() => Turn::Failed,
            None => Turn::Answered,
        };
        match turn {
            Turn::Answered => self.messages.append(&mut transcript.messages),
            // half a turn is no conversation: calls without results would spoil every later question
            Turn::Failed | Turn::Stopped(_) => self.messages.truncate(before),
        }
        Ok(turn)
    }

    async fn go_on(
        &mut self,
        view: View,
        prompt: &mut Prompt,
        signals: &mut Signals,
    ) -> Result<Exit, Trouble> {
        let model = self.chat.model.as_deref().unwrap_or("the default model");
        let _ =
            writeln!(anstream::stderr(), "lf chat with {model}. /clear starts anew, /exit or ctrl-d leaves.");
        loop {
            let line = match prompt.line(signals).await? {
                Line::Text(line) => line,
                Line::End => return Ok(Exit::Success),
                Line::Signal => return Ok(Exit::Failure),
            };
            match line.trim() {
                "" => {}
                "/exit" | "/quit" | "exit" | "quit" => return Ok(Exit::Success),
                "/clear" | "clear" => {
                    self.messages.clear();
                    if let Engine::Kept(kept) = &mut self.engine
                        && let Err(trouble) = kept.begin_anew().await
                    {
                        trouble.print();
                    }
                }
                "/help" | "help" => {
                    let _ = writeln!(
                        anstream::stderr(),
                        "/clear  start anew\n/exit   leave\nctrl-c  stop the answer"
                    );
                }
                text => {
                    prompt.remember(text);
                    match self.ask(text.to_owned(), view, &mut Seat::Prompt(prompt), signals).await {
                        Ok(Turn::Stopped(Caught::End)) => return Ok(Exit::Failure),
                        Ok(_) => {}
                        Err(trouble) => trouble.print(),
                    }
                }
            }
        }
    }
}
