//! What a daemon keeps of its turns, without a daemon: for tests of the store itself.

use lf_core::message::{AssistantMessage, Prose};
use lf_core::model::ModelRequest;
use lf_core::turn::{Entry, Setup};
use lf_core::{Journal as _, Message, ModelDelta, ToolSet};
use lf_store::{Begin, Conversation, End, Kind, Store, StoreError, TurnState};

/// Entries of a turn, the first one among them.
pub const ENTRIES: usize = 4;
/// Commits of a turn: its beginning, each further entry, its end.
pub const COMMITS: usize = ENTRIES + 1;

pub fn conversation(id: &str) -> Conversation {
    Conversation {
        id: id.to_owned(),
        scope: "default/demo".to_owned(),
        kind: Kind::Conversation,
        title: Some(format!("About {id}")),
        system: None,
        model: None,
        created: 1,
        updated: 1,
    }
}

/// Keeps one turn and tells how much of it was acknowledged, in commits: `1` is its beginning, [`COMMITS`] its end.
///
/// # Errors
/// What the store says.
pub async fn keep_turn(
    store: &Store,
    conversation: &str,
    turn: &str,
    mut acknowledged: impl FnMut(usize),
) -> Result<(), StoreError> {
    let question = Message::User(Prose { content: format!("What of {turn}?").into(), ..Prose::default() });
    let begun = Entry::Begun(Box::new(Setup::new(
        turn,
        "m",
        ModelRequest { messages: vec![question.clone()], ..ModelRequest::default() },
        ToolSet::default(),
    )));
    let said = [(question_id(turn), question)];
    let mut journal =
        store.begin(Begin { turn, conversation, said: &said, begun: &begun, after: None }).await?;
    acknowledged(1);
    for entry in 1..ENTRIES {
        journal.append(&Entry::Delta(ModelDelta::Text(format!("piece {entry} "))));
        let unkept = |error: lf_core::JournalError| StoreError::Unavailable {
            place: store.place(),
            reason: error.reason,
        };
        journal.flush().await.map_err(unkept)?;
        acknowledged(entry + 1);
    }
    let answer =
        AssistantMessage { content: format!("All of {turn}.").into(), ..AssistantMessage::default() };
    let said = [(answer_id(turn), Message::Assistant(answer))];
    store.end(End::finished(turn, conversation, &said)).await?;
    acknowledged(COMMITS);
    Ok(())
}

fn question_id(turn: &str) -> String {
    format!("question-{turn}")
}

fn answer_id(turn: &str) -> String {
    format!("answer-{turn}")
}

/// What is missing of a turn of which so many commits were acknowledged.
///
/// # Errors
/// What the store says.
pub async fn missing(
    store: &Store,
    conversation: &str,
    turn: &str,
    commits: usize,
) -> Result<Option<String>, StoreError> {
    let Some(record) = store.turn(turn).await? else { return Ok(Some(format!("turn {turn}"))) };
    let entries = store.entries(&record, 0).await?.len();
    if entries < commits.min(ENTRIES) {
        return Ok(Some(format!("entries of turn {turn}: {entries} of {commits}")));
    }
    let messages = store.messages(conversation, 0).await?;
    let has = |id: String| messages.iter().any(|kept| kept.id == id);
    if !has(question_id(turn)) {
        return Ok(Some(format!("the question of turn {turn}")));
    }
    if commits == COMMITS && !(has(answer_id(turn)) && record.state == TurnState::Finished) {
        return Ok(Some(format!("the end of turn {turn}")));
    }
    Ok(None)
}
