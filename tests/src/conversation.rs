//! Kept conversations of a daemon, over HTTP.

use serde_json::Value;

use crate::client::{get, post};
use crate::project::Daemon;

/// Makes one and gives its id.
#[track_caller]
pub fn create(daemon: &Daemon, body: &Value) -> String {
    let created = post(&daemon.url("/conversations"), body);
    assert_eq!(created.status, 201, "{created:?}");
    created.json()["conversation"]["id"].as_str().expect("an id").to_owned()
}

/// The URL of something of a conversation.
pub fn at(daemon: &Daemon, id: &str, rest: &str) -> String {
    daemon.url(&format!("/conversations/{id}{rest}"))
}

/// What was said in it: `ROLE: WORDS`.
#[track_caller]
pub fn said(daemon: &Daemon, id: &str) -> Vec<String> {
    let messages = get(&at(daemon, id, "/messages")).ok();
    let said = messages["messages"].as_array().expect("messages").iter();
    said.map(|said| {
        format!("{}: {}", said["role"].as_str().unwrap(), said["content"].as_str().unwrap_or("-"))
    })
    .collect()
}
