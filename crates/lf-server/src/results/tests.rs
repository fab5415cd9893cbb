use lf_core::model::{FinishReason, ModelRequest};
use lf_core::project::Limits;
use lf_core::tool::Tool;
use lf_core::{Arguments, ModelDelta, ToolCall, ToolSet};
use lf_store::{Begin, Conversation, Kind};
use serde_json::json;

use super::*;

/// More than the cache sorts out at once.
const RESULTS: usize = 700;

fn setup() -> Setup {
    let id = ToolRef { server: "disk".into(), name: "read".into() };
    let schema = Arc::new(json!({"type": "object"}));
    let catalogue = Catalogue { tools: vec![Tool::new(id, None, schema)], ..Catalogue::default() };
    let tools = ToolSet::new(&catalogue, &[], &[]);
    let limits = Limits { result_bytes: 1000, ..Limits::default() };
    Setup { limits, ..Setup::new(&"t".repeat(32), "m", ModelRequest::default(), tools) }
}

/// A round of many calls, each with a result that is cut.
fn entries() -> Vec<Entry> {
    let calls = (0..RESULTS).map(|n| {
        let arguments = Arguments::parse(json!({"n": n}).to_string());
        let (id, name) = (format!("call-{n}"), "disk__read".to_owned());
        Entry::Delta(ModelDelta::Call(ToolCall { id, name, arguments, rest: Map::new() }))
    });
    let settled = (0..RESULTS).flat_map(|call| {
        let text = format!("result of call {call} {}", "x".repeat(2000));
        let output = ToolOutput { content: vec![ToolContent::Text(text)], ..ToolOutput::default() };
        [
            Entry::Running { call },
            Entry::Settled {
                call,
                outcome: Ok(output),
                labels: lf_core::policy::Labels::default(),
                elapsed: Duration::ZERO,
            },
        ]
    });
    let end = ModelDelta::Finish { reason: FinishReason::ToolCalls, raw: None, stop_sequence: None };
    calls.chain([Entry::Delta(end), Entry::Answered]).chain(settled).chain([Entry::Ran]).collect()
}

#[tokio::test]
async fn a_result_of_many_is_found_in_the_journal_also_where_memory_has_room_for_few() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().to_owned()).await.unwrap();
    let conversation = Conversation {
        id: "c".to_owned(),
        owner: String::new(),
        scope: "default/p".to_owned(),
        kind: Kind::Conversation,
        title: None,
        system: None,
        model: None,
        created: 1,
        updated: 1,
    };
    store.create(&conversation).await.unwrap();
    let (setup, turn) = (setup(), "t".repeat(32));
    let begun = Entry::Begun(Box::new(setup.clone()));
    let begin = Begin { turn: &turn, conversation: "c", said: &[], begun: &begun, after: None };
    let mut journal: Box<dyn lf_core::Journal> = Box::new(store.begin(begin).await.unwrap());
    let shelf = Shelf::new(&Results::new(5000), &setup, Some((store.clone(), "c".to_owned())));
    let mut course = Course::new(setup, &mut Vec::new());
    for entry in entries() {
        journal.append(&entry);
        course.take(entry, &mut Vec::new()).unwrap();
        shelf.keep(course.take_cut());
    }
    journal.flush().await.unwrap();
    shelf.results.near.run_pending_tasks();
    for n in [1, 2, RESULTS / 2, RESULTS] {
        let text = shelf.find(&format!("result-{n}")).await.unwrap();
        assert!(text.starts_with(&format!("result of call {} ", n - 1)), "{n}: {}", &text[..40]);
    }
    let missing = shelf.find(&format!("result-{}", RESULTS + 1)).await.unwrap_err();
    assert!(missing.contains("there is no result"), "{missing}");
}
