//! What a server asks in the middle of a turn, asked of the person at the terminal.

use std::io::{IsTerminal as _, Write as _};

use lf_core::tool::{BoxFuture, Field, FieldKind, Form, Person, Question, Reply};
use lf_core::visible;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::exit::Trouble;
use crate::prompt::{Line, Prompt};
use crate::signals::Signals;

/// Questions that wait for the one before.
const WAITING: usize = 16;
/// Characters shown of what a server says at a time.
const SHOWN: usize = 2_000;
/// Choices shown of one field.
const SHOWN_CHOICES: usize = 50;

/// Whether somebody sits at the terminal: who reads the questions, and who types.
pub(crate) fn is_somebody_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// A question and the way back to who waits for its answer, which is closed when nobody does any more.
pub(crate) type Asked = (Question, oneshot::Sender<Reply>);

/// The person, for the turn: questions go to whoever has the terminal.
pub(crate) struct AtTheTerminal(mpsc::Sender<Asked>);

impl AtTheTerminal {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (sender, questions) = mpsc::channel(WAITING);
        (Self(sender), questions)
    }
}

impl Person for AtTheTerminal {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        if ![Question::ELICITATION, Question::APPROVAL].contains(&question.method.as_str()) {
            return Box::pin(std::future::ready(Reply::Nobody));
        }
        Box::pin(async move {
            let (reply, replied) = oneshot::channel();
            match self.0.send((question, reply)).await {
                Ok(()) => replied.await.unwrap_or(Reply::Nobody),
                Err(_) => Reply::Nobody,
            }
        })
    }
}

/// How an interview ended.
pub(crate) enum Outcome {
    Reply(Reply),
    /// The program is to end.
    Signal,
}

/// What the person made of one field, or of the whole.
enum Said<T> {
    Value(T),
    Declined,
    Cancelled,
    Signal,
}

/// Asks one question. Nothing is opened and nothing filled in by itself; ctrl-c declines.
pub(crate) async fn interview(
    prompt: &mut Prompt,
    signals: &mut Signals,
    question: &Question,
) -> Result<Outcome, Trouble> {
    if question.method == Question::APPROVAL {
        return approval(&mut Desk { prompt, signals }, question).await;
    }
    let during =
        question.tool.as_deref().map_or_else(String::new, |tool| format!(" during `{}`", short(tool, 128)));
    let message = text(question.params["message"].as_str().unwrap_or_default());
    let head = format!("MCP server `{}` asks{during}: {message}", question.server);
    let mut at = Desk { prompt, signals };
    let said = if question.params["mode"] == "url" {
        tell(&head);
        at.visit(question.params["url"].as_str().unwrap_or_default()).await?
    } else {
        let Some(form) = Form::read(&question.params) else {
            tell(&format!("{head}\n(its form cannot be read, and is declined)"));
            return Ok(Outcome::Reply(Reply::Result(json!({"action": "decline"}))));
        };
        tell(&head);
        at.form(&form).await?
    };
    Ok(match said {
        Said::Value(result) => Outcome::Reply(Reply::Result(result)),
        Said::Declined => Outcome::Reply(Reply::Result(json!({"action": "decline"}))),
        Said::Cancelled => Outcome::Reply(Reply::Result(json!({"action": "cancel"}))),
        Said::Signal => Outcome::Signal,
    })
}

/// Whether a call may run. What is no clear yes is a no.
async fn approval(at: &mut Desk<'_>, question: &Question) -> Result<Outcome, Trouble> {
    let tool = short(question.tool.as_deref().unwrap_or_default(), 128);
    let arguments = visible::start(question.params["arguments"].as_str().unwrap_or_default(), SHOWN);
    tell(&format!("The model wants to run `{tool}` of MCP server `{}` with {arguments}", question.server));
    if let Some(why) = question.params["why"].as_str() {
        tell(&format!("because {}", short(why, SHOWN)));
    }
    let decision = loop {
        let line = match at.line("run it? [yes, no, always for this conversation] ").await? {
            Said::Value(line) => line.trim().to_ascii_lowercase(),
            Said::Declined | Said::Cancelled => break "deny",
            Said::Signal => return Ok(Outcome::Signal),
        };
        match line.as_str() {
            "y" | "yes" => break "approve",
            "n" | "no" => break "deny",
            "a" | "always" => break "always",
            _ => tell("answer yes, no or always"),
        }
    };
    Ok(Outcome::Reply(Reply::Result(json!({"decision": decision}))))
}

struct Desk<'a> {
    prompt: &'a mut Prompt,
    signals: &'a mut Signals,
}

impl Desk<'_> {
    /// One line; what begins with a slash may be one of our own words.
    async fn line(&mut self, prompt: &str) -> Result<Said<String>, Trouble> {
        Ok(match self.prompt.ask(prompt, self.signals).await? {
            Line::Text(line) => match line.trim() {
                "/decline" => Said::Declined,
                "/cancel" => Said::Cancelled,
                _ => Said::Value(line),
            },
            Line::End => Said::Declined,
            Line::Signal => Said::Signal,
        })
    }

    async fn visit(&mut self, url: &str) -> Result<Said<Value>, Trouble> {
        tell(&format!(
            "  {}\nIt is not opened for you; the server is told whether you agree to go there.",
            short(url, SHOWN)
        ));
        Ok(match self.agree("agree? [y/N] ", false).await? {
            Said::Value(true) => Said::Value(json!({"action": "accept"})),
            Said::Value(false) | Said::Declined => Said::Declined,
            Said::Cancelled => Said::Cancelled,
            Said::Signal => Said::Signal,
        })
    }

    async fn form(&mut self, form: &Form) -> Result<Said<Value>, Trouble> {
        tell(
            "What you type goes to the server. Enter takes the default; /decline or ctrl-c declines, /cancel leaves it open.",
        );
        if form.fields.is_empty() {
            return Ok(match self.agree("agree? [y/N] ", false).await? {
                Said::Value(true) => Said::Value(accepted(Map::new())),
                Said::Value(false) | Said::Declined => Said::Declined,
                Said::Cancelled => Said::Cancelled,
                Said::Signal => Said::Signal,
            });
        }
        loop {
            let mut content = Map::new();
            for field in &form.fields {
                match self.field(field).await? {
                    Said::Value(Some(value)) => drop(content.insert(field.name.clone(), value)),
                    Said::Value(None) => {}
                    Said::Declined => return Ok(Said::Declined),
                    Said::Cancelled => return Ok(Said::Cancelled),
                    Said::Signal => return Ok(Said::Signal),
                }
            }
            // a single value was seen when it was typed
            if form.fields.len() == 1 {
                return Ok(Said::Value(accepted(content)));
            }
            match self.agree("send this? [Y/n, n starts over] ", true).await? {
                Said::Value(true) => return Ok(Said::Value(accepted(content))),
                Said::Value(false) => {}
                Said::Declined => return Ok(Said::Declined),
                Said::Cancelled => return Ok(Said::Cancelled),
                Said::Signal => return Ok(Said::Signal),
            }
        }
    }

    async fn field(&mut self, field: &Field) -> Result<Said<Option<Value>>, Trouble> {
        tell(&described(field));
        loop {
            let line = match self.line(&format!("{}> ", short(&field.name, 64))).await? {
                Said::Value(line) => line,
                Said::Declined => return Ok(Said::Declined),
                Said::Cancelled => return Ok(Said::Cancelled),
                Said::Signal => return Ok(Said::Signal),
            };
            if line.trim().is_empty() {
                match &field.default {
                    Some(default) => return Ok(Said::Value(Some(default.clone()))),
                    None if !field.required => return Ok(Said::Value(None)),
                    None => tell("  a value is needed"),
                }
                continue;
            }
            match field.parse(&line) {
                Ok(value) => return Ok(Said::Value(Some(value))),
                Err(problem) => tell(&format!("  {}", visible::line(&problem))),
            }
        }
    }

    async fn agree(&mut self, prompt: &str, default: bool) -> Result<Said<bool>, Trouble> {
        loop {
            let line = match self.line(prompt).await? {
                Said::Value(line) => line.trim().to_ascii_lowercase(),
                Said::Declined => return Ok(Said::Declined),
                Said::Cancelled => return Ok(Said::Cancelled),
                Said::Signal => return Ok(Said::Signal),
            };
            match line.as_str() {
                "" => return Ok(Said::Value(default)),
                "y" | "yes" => return Ok(Said::Value(true)),
                "n" | "no" => return Ok(Said::Value(false)),
                _ => {}
            }
        }
    }
}

fn accepted(content: Map<String, Value>) -> Value {
    json!({"action": "accept", "content": Value::Object(content)})
}

/// A field as a person is shown it: what it is called, what may be typed, and what enter means.
fn described(field: &Field) -> String {
    let mut out = format!("  {}", short(field.title.as_deref().unwrap_or(&field.name), 200));
    let kind = match &field.kind {
        FieldKind::Text { format: Some(format) } => format!("text, {}", short(format, 40)),
        FieldKind::Text { format: None } => "text".to_owned(),
        FieldKind::Number => "number".to_owned(),
        FieldKind::Integer => "whole number".to_owned(),
        FieldKind::Boolean => "yes or no".to_owned(),
        FieldKind::Choice(_) => "one of".to_owned(),
        FieldKind::Choices { .. } => "any of, with commas between".to_owned(),
    };
    out.push_str(&format!(" ({kind}"));
    match &field.default {
        Some(default) => out.push_str(&format!(", default {}", short(&shown(default), 200))),
        None if !field.required => out.push_str(", may be left out"),
        None => {}
    }
    out.push(')');
    if let Some(description) = &field.description {
        out.push_str(&format!("\n    {}", text(description)));
    }
    if let FieldKind::Choice(choices) | FieldKind::Choices { choices, .. } = &field.kind {
        for (at, choice) in choices.iter().take(SHOWN_CHOICES).enumerate() {
            let title = short(&choice.title, 200);
            let value = short(&choice.value, 200);
            let value = if title == value { String::new() } else { format!(" ({value})") };
            out.push_str(&format!("\n    {} {title}{value}", at + 1));
        }
        if choices.len() > SHOWN_CHOICES {
            out.push_str(&format!("\n    … and {} more", choices.len() - SHOWN_CHOICES));
        }
    }
    out
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// Several lines of a server's, harmless.
fn text(text: &str) -> String {
    visible::words(text).chars().take(SHOWN).collect()
}

fn short(text: &str, limit: usize) -> String {
    visible::line(text).chars().take(limit).collect()
}

fn tell(text: &str) {
    // a screen that cannot be written to has nobody to tell
    let _ = writeln!(anstream::stderr(), "{text}");
}

#[cfg(test)]
mod tests;
