//! Calls of a daemon that wait for a person, and the person.

use serde_json::{Value, json};

use crate::client::{Response, get, post};
use crate::project::Daemon;
use crate::wait::eventually;

/// All that wait now.
#[track_caller]
pub fn pending(daemon: &Daemon) -> Vec<Value> {
    get(&daemon.url("/v1/approvals")).ok()["data"].as_array().expect("a list").clone()
}

/// The last one, as soon as there is one.
#[track_caller]
pub fn the_one(daemon: &Daemon) -> Value {
    eventually("an approval that waits", || pending(daemon).pop())
}

/// Where one is decided.
#[track_caller]
pub fn url_of(daemon: &Daemon, approval: &Value) -> String {
    daemon.url(&format!("/v1/approvals/{}", approval["id"].as_str().expect("an id")))
}

#[track_caller]
pub fn decide(daemon: &Daemon, approval: &Value, body: &Value) -> Response {
    post(&url_of(daemon, approval), body)
}

/// Ada says so of what waits, as soon as it does; gives what it was.
#[track_caller]
pub fn ada_says(daemon: &Daemon, decision: &str) -> Value {
    let waiting = the_one(daemon);
    decide(daemon, &waiting, &json!({"decision": decision, "by": "Ada"})).ok();
    waiting
}
