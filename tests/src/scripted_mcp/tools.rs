//! Running tools.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::script::Act;
use super::{Outbox, Outgoing, Server, envelope, modern};

/// A one-pixel PNG.
pub(super) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// How a call ended, for the log: "cancelled" unless it is told otherwise.
struct Ending {
    server: Arc<Server>,
    call: String,
    how: &'static str,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.server.note(&format!("{} {}", self.how, self.call));
    }
}

/// Looks for a file until it is there. It is made by a test, which has no other way to reach this process.
pub(super) async fn file_exists(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Server {
    pub(super) async fn call(self: &Arc<Self>, message: Value, outbox: &Outbox) -> Option<Value> {
        let id = message["id"].clone();
        let name = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        self.note(&format!("call {name} {}", message["params"]["arguments"]));
        self.calls.fetch_add(1, Ordering::SeqCst);
        let Some(tool) = self.all_tools().into_iter().find(|tool| tool.name == name) else {
            return Some(envelope(&id, Err((-32602, format!("unknown tool {name}")))));
        };
        let params = &message["params"];
        let call = if self.script.timed { format!("{name} {}", params["arguments"]) } else { name };
        let mut ending = Ending { server: self.clone(), call, how: "cancelled" };
        let mut result = self.act(&tool.act, params, outbox).await;
        if modern::is_modern(params) {
            result = result.map(|result| modern::complete(result, self.script.ttl));
        }
        ending.how = "done";
        Some(envelope(&id, result))
    }

    async fn act(
        self: &Arc<Self>,
        act: &Act,
        params: &Value,
        outbox: &Outbox,
    ) -> Result<Value, (i64, String)> {
        let text = |text: String| Ok(json!({"content": [{"type": "text", "text": text}]}));
        match act {
            Act::Echo => text(params["arguments"].to_string()),
            Act::Text(words) => text(words.clone()),
            Act::Fail(words) => Ok(json!({"content": [{"type": "text", "text": words}], "isError": true})),
            Act::FailFirst(times) if self.calls.load(Ordering::SeqCst) <= *times => {
                Ok(json!({"content": [{"type": "text", "text": "not yet"}], "isError": true}))
            }
            Act::FailFirst(_) => text(params["arguments"].to_string()),
            Act::Refuse(code, words) => Err((*code, words.clone())),
            Act::Hang => std::future::pending().await,
            Act::Gate(path) => {
                file_exists(path).await;
                text("let through".to_owned())
            }
            Act::GateOf(directory) => {
                let n = params["arguments"]["n"].to_string();
                file_exists(&directory.join(&n)).await;
                text(format!("{n} let through"))
            }
            Act::Together(count) => {
                self.meet(*count).await;
                text(format!("{count} at once"))
            }
            Act::EchoTogether(count) => {
                let arguments = params["arguments"].to_string();
                say(1, None, &arguments, params, outbox);
                self.meet(*count).await;
                text(arguments)
            }
            Act::Progress(count) => {
                report(*count, params, outbox).await;
                text(format!("after {count} reports"))
            }
            Act::Exit(status) => std::process::exit(*status),
            Act::ExitOnce(marker) => {
                if !marker.exists() {
                    std::fs::write(marker, "").expect("the marker can be written");
                    std::process::exit(1);
                }
                text("second time".to_owned())
            }
            Act::Big(size) => text("x".repeat(*size)),
            Act::Lines(count) => text((0..*count).map(|n| format!("line {n}\n")).collect()),
            Act::HugeLine(size) => {
                let mut line = vec![b'x'; *size];
                line.push(b'\n');
                let _ = outbox.send(Outgoing::Raw(line));
                text("after a huge line".to_owned())
            }
            Act::Garbage(lines) => {
                let _ = outbox.send(Outgoing::Raw(b"this is no message\n".repeat(*lines)));
                text("after garbage".to_owned())
            }
            Act::Environment => {
                let all: BTreeMap<String, String> = std::env::vars().collect();
                text(json!(all).to_string())
            }
            Act::Change => {
                self.changed.store(true, Ordering::SeqCst);
                self.announce("notifications/tools/list_changed");
                text("changed".to_owned())
            }
            Act::ChangeOften(times) => {
                self.changed.store(true, Ordering::SeqCst);
                for _ in 0..*times {
                    self.announce("notifications/tools/list_changed");
                    tokio::task::yield_now().await;
                }
                text("changed".to_owned())
            }
            Act::Say(words) => {
                let path = self.script.says.as_ref().expect("a file for what it says");
                std::fs::write(path, words.to_string()).expect("the file can be written");
                self.announce("notifications/tools/list_changed");
                text("said".to_owned())
            }
            Act::Ask(schema) => Ok(self.ask(schema, params, outbox).await),
            Act::Meta => text(params["_meta"].to_string()),
            Act::Content(items) => {
                let items: Vec<Value> = items.iter().map(with_pixel).collect();
                Ok(json!({"content": items}))
            }
        }
    }

    /// Asks a person: by a request of its own, or, in the modern generation, by an answer that asks.
    async fn ask(&self, schema: &Value, params: &Value, outbox: &Outbox) -> Value {
        const STATE: &str = "as it came: é==";
        let question = json!({
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "Who is asking?", "requestedSchema": schema},
        });
        let answer = if !modern::is_modern(params) {
            let id = json!(format!("question-{}", self.calls.load(Ordering::SeqCst)));
            let (sender, receiver) = oneshot::channel();
            self.asked.lock().unwrap().insert(id.to_string(), sender);
            let mut request = question;
            request["jsonrpc"] = json!("2.0");
            request["id"] = id;
            let _ = outbox.send(Outgoing::Message(request));
            receiver.await.unwrap_or_default()["result"].clone()
        } else if params["inputResponses"].is_null() {
            return json!({"resultType": "input_required", "inputRequests": {"who": question}, "requestState": STATE});
        } else {
            assert_eq!(params["requestState"], STATE, "the state comes back as it was");
            params["inputResponses"]["who"].clone()
        };
        json!({"content": [{"type": "text", "text": answer.to_string()}]})
    }

    /// Waits until `count` calls are in here at the same time.
    async fn meet(&self, count: usize) {
        let mut here = self.together.subscribe();
        // only a number that somebody waits for wakes them: a thousand callers would wake each other a million times
        self.together.send_if_modified(|present| {
            *present += 1;
            let waits = |act: &Act| matches!(act, Act::Together(n) | Act::EchoTogether(n) if n == present);
            self.script.tools.iter().any(|tool| waits(&tool.act))
        });
        let _ = here.wait_for(|present| *present >= count).await;
    }
}

/// `"data": "pixel"` stands for an image.
fn with_pixel(item: &Value) -> Value {
    let mut item = item.clone();
    if item["data"] == "pixel" {
        item["data"] = json!(PIXEL);
    }
    item
}

async fn report(count: usize, params: &Value, outbox: &Outbox) {
    for number in 1..=count {
        say(number, Some(count), &format!("step {number} of {count}"), params, outbox);
        tokio::task::yield_now().await;
    }
}

/// Reports progress to who asked for it.
fn say(number: usize, total: Option<usize>, message: &str, params: &Value, outbox: &Outbox) {
    let token = params["_meta"]["progressToken"].clone();
    if token.is_null() {
        return;
    }
    let mut params = json!({"progressToken": token, "progress": number, "message": message});
    if let Some(total) = total {
        params["total"] = json!(total);
    }
    let message = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
    let _ = outbox.send(Outgoing::Message(message));
}
