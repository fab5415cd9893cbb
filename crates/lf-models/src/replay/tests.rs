use std::io::Write as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use lf_core::message::{Arguments, Message, Prose, ToolCall};
use lf_core::tool::{ToolContent, ToolProgress};
use lf_core::turn::{Entry, Setup, cassette};
use lf_core::{ModelDelta, ToolSet};

use super::*;

fn request() -> ModelRequest {
    let said = Message::User(Prose { content: "hi".into(), rest: Map::new() });
    ModelRequest { messages: vec![said], ..ModelRequest::default() }
}

fn id() -> ToolRef {
    ToolRef { server: "s".into(), name: "look".into() }
}

/// Two equal calls with different results, and no answer.
fn cassette() -> tempfile::NamedTempFile {
    let tool = Tool::new(id(), None, lf_core::tool_set::empty_schema());
    let tools = ToolSet::new(&Catalogue { tools: vec![tool], ..Catalogue::default() }, &[], &[]);
    let setup = Setup::new("0123456789abcdef0123456789abcdef", "m", request(), tools);
    let call = |id: &str| {
        Entry::Delta(ModelDelta::Call(ToolCall {
            id: id.to_owned(),
            name: "s__look".to_owned(),
            arguments: Arguments::parse("{}"),
            rest: Map::new(),
        }))
    };
    let settled = |call: usize, text: &str| {
        let content = vec![ToolContent::Text(text.to_owned())];
        let outcome = Ok(ToolOutput { content, ..ToolOutput::default() });
        Entry::Settled { call, outcome, labels: lf_core::policy::Labels::default(), elapsed: Duration::ZERO }
    };
    let begun = Entry::Begun(Box::new(setup.clone()));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", cassette::label(&setup)).unwrap();
    for entry in [
        begun,
        call("a"),
        call("b"),
        Entry::Answered,
        settled(0, "one"),
        settled(1, "two"),
        Entry::Ran,
        Entry::Delta(ModelDelta::Text("Half".to_owned())),
    ] {
        writeln!(file, "{}", cassette::line(&entry)).unwrap();
    }
    file
}

async fn ask(replay: &Replay, request: &ModelRequest) -> (usize, Option<String>) {
    let answer: Vec<_> = replay.stream(request).collect().await;
    let error = answer.iter().find_map(|delta| delta.as_ref().err().map(ToString::to_string));
    (answer.len() - usize::from(error.is_some()), error)
}

#[tokio::test]
async fn asks_are_answered_in_their_order_and_only_if_they_are_the_same() {
    let file = cassette();
    let replay = Replay::new(file.path().to_owned(), "a.jsonl");
    let mut tools = request();
    tools.tools = read(file.path()).await.unwrap().setup.tools.specs();
    assert_eq!(ask(&replay, &tools).await, (2, None));
    assert_eq!(
        ask(&replay, &tools).await.1.unwrap(),
        "the cassette `a.jsonl` does not fit: ask 2 is not the recorded one: message 2: the assistant message is missing"
    );
    let replay = Replay::new(file.path().to_owned(), "a.jsonl");
    let second = read(file.path()).await.unwrap().asks.remove(1).request;
    assert_eq!(
        ask(&replay, &second).await,
        (1, Some("the cassette `a.jsonl` ends in the middle of this answer".to_owned()))
    );
}

#[tokio::test]
async fn a_file_that_is_no_cassette_is_told_as_the_model_s_trouble() {
    let missing = Replay::new("/nowhere/a.jsonl".into(), "a.jsonl");
    let error = ask(&missing, &request()).await.1.unwrap();
    assert!(error.starts_with("cannot reach the cassette `a.jsonl`: No such file"), "{error}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "name: demo").unwrap();
    let error = ask(&Replay::new(file.path().to_owned(), "a.jsonl"), &request()).await.1.unwrap();
    assert!(error.contains("something that is no cassette: it is no cassette"), "{error}");
    let directory = read(&std::env::temp_dir()).await.unwrap_err().to_string();
    assert!(directory.ends_with("it is no file"), "{directory}");
    file.as_file().set_len(CASSETTE_LIMIT + 1).unwrap();
    let large = read(file.path()).await.unwrap_err().to_string();
    assert!(large.ends_with("it has more than 67108864 bytes"), "{large}");
}

#[tokio::test]
async fn calls_have_the_recorded_results_in_order_and_others_none() {
    let file = cassette();
    let tools = RecordedTools::new(file.path().to_owned(), "a.jsonl");
    let listed = tools.list(&[]).await;
    assert_eq!(listed.tools.iter().map(|tool| tool.id.clone()).collect::<Vec<_>>(), [id()]);
    let call = |arguments: Value| {
        let tools = &tools;
        async move {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            let outcome = tools.call(&id(), &arguments, &|_: ToolProgress| {}).await;
            outcome.map(|output| output.content).map_err(|error| error.to_string())
        }
    };
    let text = |text: &str| Ok(vec![ToolContent::Text(text.to_owned())]);
    assert_eq!(call(serde_json::json!({})).await, text("one"));
    assert_eq!(call(serde_json::json!({})).await, text("two"));
    assert_eq!(call(serde_json::json!({})).await, text("two"));
    assert_eq!(
        call(serde_json::json!({"a": 1})).await,
        Err("MCP server `s` is not available: the cassette `a.jsonl` has no such call".to_owned())
    );
}
