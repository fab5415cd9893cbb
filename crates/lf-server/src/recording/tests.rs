use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use lf_core::message::{Arguments, Message, Prose, ToolCall};
use lf_core::project::{HttpServer, Provider, Transport};
use lf_core::turn::cassette::Cassette;
use lf_core::{Model, ModelDelta, ModelRequest, ToolSet};
use serde_json::json;

use super::*;

fn setup(parameters: Value) -> Setup {
    let Value::Object(parameters) = parameters else { panic!("an object") };
    let said = Message::User(Prose { content: "hi".into(), rest: Map::new() });
    Setup::new(
        "0123456789abcdef0123456789abcdef",
        "m",
        ModelRequest { messages: vec![said], parameters, ..ModelRequest::default() },
        ToolSet::default(),
    )
}

fn begun(parameters: Value) -> Entry {
    Entry::Begun(Box::new(setup(parameters)))
}

fn text(text: &str) -> Entry {
    Entry::Delta(ModelDelta::Text(text.to_owned()))
}

#[test]
fn only_its_owner_reads_a_recording_and_none_is_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let mut recording = Recording::create(&path).unwrap();
    recording.append(&begun(json!({})));
    recording.write();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Recording::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let unused = directory.path().join("b.jsonl");
    drop(Recording::create(&unused).unwrap());
    assert!(!unused.exists(), "nothing was recorded");
    drop(recording);
    assert!(path.exists());
}

#[test]
fn what_was_appended_is_written_in_whole_lines_and_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let mut recording = Recording::create(&path).unwrap();
    for entry in [begun(json!({})), text("Hal"), text("lo")] {
        recording.append(&entry);
        recording.write();
        assert!(std::fs::read_to_string(&path).unwrap().ends_with('\n'));
    }
    recording.append(&Entry::Answered);
    drop(recording);
    let cassette = Cassette::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(cassette.is_over);
    assert_eq!(cassette.entries.len(), 4);
}

/// Keeps nothing.
struct Full;

impl Journal for Full {
    fn append(&mut self, _: &Entry) {}

    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>> {
        let (place, reason) = ("here".to_owned(), "the disk is full".to_owned());
        Box::pin(std::future::ready(Err(JournalError { place, reason })))
    }
}

#[tokio::test]
async fn what_is_not_kept_is_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let mut recording = Recording::create(&path).unwrap();
    recording.append(&begun(json!({})));
    recording.write();
    let mut journal = Recorded { kept: Box::new(Full), recording };
    journal.append(&text("Hal"));
    journal.flush().await.unwrap_err();
    drop(journal);
    let cassette = Cassette::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(cassette.entries.len(), 1);
    let path = directory.path().join("b.jsonl");
    let mut recording = Recording::create(&path).unwrap();
    recording.append(&begun(json!({})));
    drop(recording);
    assert!(!path.exists(), "a turn that never began");
}

#[test]
fn a_recording_that_grows_too_long_ends_and_the_turn_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let mut recording = Recording::create(&path).unwrap();
    recording.append(&begun(json!({})));
    let long = text(&"x".repeat(20 * 1024 * 1024));
    for _ in 0..5 {
        recording.append(&long);
        recording.write();
    }
    let cassette = Cassette::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(cassette.entries.len(), 4);
    assert!(!cassette.is_over);
}

#[test]
fn secrets_of_the_project_are_in_no_recording() {
    let mut model = Model::new("m", Provider::Openai, "m", "https://api.example");
    model.api_key = Some("sk-\"quoted\"-hush".into());
    model.extra_body.insert("api_key".to_owned(), "body-secret-hush".into());
    let http = HttpServer {
        headers: vec![("Authorization".to_owned(), "Bearer header-secret-hush".into())],
        ..HttpServer::new("https://mcp.example")
    };
    let server = lf_core::McpServer::new("s", Transport::Http(http));
    let mut other = Model::new("other", Provider::Openai, "other", "https://api.example");
    other.api_key = Some("1234567890".into());
    let project = Project {
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        root: PathBuf::new(),
        servers: [("s".to_owned(), Ok(Arc::new(server)))].into_iter().collect(),
        models: [model, other].map(|model| (model.name.clone(), Ok(Arc::new(model)))).into_iter().collect(),
        default_model: None,
        prompts: BTreeMap::new().into_iter().collect(),
        carried: Vec::new(),
        storage: Ok(Default::default()),
        policy: lf_core::policy::Policy::default(),
        quota: lf_core::quota::Quota::default(),
        pins: Arc::default(),
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let mut recording = Recording::create(&path).unwrap().of(&project);
    recording.append(&begun(json!({"api_key": "body-secret-hush", "seed": 7})));
    recording.append(&text("The key is sk-\"quoted\"-hush, the header has header-secret-hush."));
    // arguments are JSON in a text
    let arguments = Arguments::parse(r#"{"key": "sk-\"quoted\"-hush", "n": 2}"#);
    let call = ToolCall { id: "a".to_owned(), name: "f".to_owned(), arguments, rest: Map::new() };
    recording.append(&Entry::Delta(ModelDelta::Call(call)));
    // no secret, although it stands where one could
    let usage = lf_core::Usage { input: 1_234_567_890, ..Default::default() };
    recording.append(&Entry::Delta(ModelDelta::Usage(usage)));
    recording.write();
    drop(recording);
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(!written.contains("hush"), "{written}");
    let cassette = Cassette::parse(&written).unwrap();
    assert_eq!(Value::Object(cassette.setup.request.parameters), json!({"seed": 7}));
    let [.., Entry::Delta(ModelDelta::Call(call)), Entry::Delta(ModelDelta::Usage(read))] =
        &cassette.entries[..]
    else {
        panic!("{written}")
    };
    assert_eq!(call.arguments.value().unwrap()["key"], "[secret]");
    assert_eq!(*read, usage);
}
