//! `lf replay`: a recorded turn, shown again or put to another model.

use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use lf_core::ChatEvent;
use lf_core::turn::cassette::{Cassette, CassetteError, RoundDifference, first_difference};
use lf_models::replay::{ReadError, read};
use lf_server::{Calls, Recording, With};
use serde_json::json;

use crate::args::{self, Common};
use crate::chat::{Screen, View};
use crate::exit::{Exit, Trouble, print_line};
use crate::mcp;
use crate::project;
use crate::signals::Signals;

pub(crate) async fn run(common: &Common, options: &args::Replay) -> Result<Exit, Trouble> {
    let cassette = read(&options.file).await.map_err(|error| unreadable(&error))?;
    let recording = options.record.as_deref().map(recording).transpose()?;
    let view = View::of(options.json, options.events);
    match &options.model {
        Some(model) => again(common, options, model, Arc::new(cassette), recording, view).await,
        None => show(&cassette, recording, view),
    }
}

/// The file of a recording.
pub(crate) fn recording(path: &Path) -> Result<Recording, Trouble> {
    Recording::create(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Trouble::failure(format!("{} exists already", path.display()))
            .hint("a recording is not written over: name another file"),
        _ => Trouble::failure(format!("cannot write {}: {error}", path.display())),
    })
}

fn unreadable(error: &ReadError) -> Trouble {
    let trouble = Trouble::usage(error.to_string());
    match error {
        ReadError::Cassette { source: CassetteError::NotACassette, .. } => {
            trouble.hint("`lf chat --record FILE \"…\"` writes one")
        }
        ReadError::Cassette { source: CassetteError::OtherVersion { .. }, .. } => {
            trouble.hint("the version of lf that wrote it can play it")
        }
        ReadError::Cassette { source: CassetteError::CutOff { line }, .. } => {
            trouble.hint(format!("without line {line} and what follows, it can be played up to there"))
        }
        _ => trouble,
    }
}

/// The turn as it was. No model is asked and no tool is run.
fn show(cassette: &Cassette, recording: Option<Recording>, view: View) -> Result<Exit, Trouble> {
    let mut screen = Screen::new(view);
    for event in &cassette.events {
        screen.take(event)?;
    }
    let transcript = screen.end(None)?;
    if let Some(mut recording) = recording {
        cassette.entries.iter().for_each(|entry| recording.append(entry));
        recording.write();
    }
    if !cassette.is_over {
        return Err(Trouble::failure("the recording ends before the turn does".to_owned()));
    }
    Ok(if transcript.failure.is_some() { Exit::Failure } else { Exit::Success })
}

/// The recorded request, put to a model of the project.
async fn again(
    common: &Common,
    options: &args::Replay,
    model: &str,
    cassette: Arc<Cassette>,
    recording: Option<Recording>,
    view: View,
) -> Result<Exit, Trouble> {
    let mut signals = Signals::new()?;
    let app = crate::app(common, Some(project::load_telling(common)?))?;
    let calls = if options.run_tools { Calls::Run } else { Calls::Recorded };
    if common.locked && calls == Calls::Run {
        let locked = mcp::pins::verify_for(&app, app.project().as_deref(), Some(model)).await;
        if let Err(trouble) = locked {
            crate::close(&app, &mut signals).await;
            return Err(trouble);
        }
    }
    let with = With { person: None, recording };
    let asked = app.chat_again(None, model, &cassette, calls, with).await;
    let mut events = asked.map_err(|refusal| Trouble::usage(refusal.to_string()))?.boxed();
    let mut screen = Screen::new(view);
    let mut told: Vec<ChatEvent> = Vec::new();
    let is_stopped = loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => {
                    screen.take(&event)?;
                    told.push(event);
                }
                None => break false,
            },
            _ = signals.next() => break true,
        }
    };
    drop(events);
    let difference = first_difference(&cassette.events, &told).filter(|_| !is_stopped);
    let ended = screen.end(difference.as_ref().map(|difference| ("difference", document(difference))));
    crate::close(&app, &mut signals).await;
    ended?;
    if is_stopped {
        return Err(Trouble::failure("stopped".to_owned()));
    }
    let Some(difference) = difference else {
        anstream::eprintln!("every round is as it was recorded");
        return Ok(Exit::Success);
    };
    if let View::Events = view {
        let mut event = document(&difference);
        event["event"] = json!("difference");
        print_line(event)?;
    }
    let RoundDifference { round, what } = difference;
    Err(Trouble::failure(format!("round {round} is not as it was recorded: {what}")))
}

fn document(difference: &RoundDifference) -> serde_json::Value {
    json!({"round": difference.round, "what": difference.what})
}
