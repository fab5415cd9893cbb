//! Bounds around turns: what is just within them, one over, and a hundred times too much.

use lf_tests::client::{Open, chat, post};
use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::json;

const BODY: usize = 10 * 1024 * 1024;

#[test]
fn a_request_of_ten_mebibytes_is_read_and_a_larger_one_is_413() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[]);
    let daemon = project.serve();
    let mut request = chat("");
    // what was read names a model that is not there
    request["model"] = json!("nobody");
    let envelope = request.to_string().len();
    for (size, status) in [(BODY, 404), (BODY + 1, 413), (10 * BODY, 413)] {
        request["messages"][0]["content"] = json!("x".repeat(size - envelope));
        assert_eq!(request.to_string().len(), size);
        assert_eq!(post(&daemon.url("/v1/chat/completions"), &request).status, status, "{size}");
    }
}

/// Many clients read nothing before they have sent everything: theirs is the answer, not a broken connection.
#[test]
fn a_client_that_first_sends_everything_is_told_what_was_wrong_with_it() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[]);
    let daemon = project.serve();
    let much = json!({"model": "nobody", "messages": "x".repeat(10 * BODY)});
    for (path, status) in
        [("/v1/chat/completions", "413"), ("/v1/messages", "413"), ("/mcp", "413"), ("/no/such/route", "404")]
    {
        Open::post(daemon.port(), path, &much).until(&format!("HTTP/1.1 {status}"));
    }
}

/// How many tools the model is offered, and what the log says.
fn offered(script: &Script) -> (usize, String) {
    let model = ScriptedModel::start([Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", script)]);
    let said = project.run(&["chat", "hi"]).ok();
    (model.request(0).tool_names().len(), said.stderr)
}

#[test]
fn a_server_has_a_thousand_tools_and_no_more() {
    for (count, expected) in [(1_000, 1_000), (1_001, 1_000), (100_000, 1_000)] {
        // a page holds less than what one line may have
        let script = Script { count, page_size: 500, ..Script::default() };
        assert_eq!(offered(&script).0, expected, "{count}");
    }
}

#[test]
fn a_tool_of_64_kibibytes_is_offered_and_a_larger_one_is_left_out() {
    let schema = json!({"type": "object", "properties": {}});
    let most = 64 * 1024 - schema.to_string().len() - "large".len();
    for (length, expected) in [(most, 2), (most + 1, 1), (25 * 64 * 1024, 1)] {
        let large =
            ScriptedTool { description: Some("x".repeat(length)), ..ScriptedTool::new("large", Act::Echo) };
        let script = Script::with([large.schema(schema.clone()), ScriptedTool::new("small", Act::Echo)]);
        // what a program is given as an argument is bounded, too
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), script.to_argument()).unwrap();
        let model = ScriptedModel::start([Reply::text("done")]);
        let mut server = scripted("m", &Script::default());
        server["args"] = json!(["stdio", format!("@{}", file.path().display())]);
        let project = TestProject::with_model(&model.base_url(), &[server]);
        project.run(&["chat", "hi"]).ok();
        assert_eq!(model.request(0).tool_names().len(), expected, "{length}");
    }
}
