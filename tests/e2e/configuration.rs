//! What a person is told about a file that is wrong, and about one that is right.

use lf_tests::client::{chat, post};
use lf_tests::project::{TestProject, document};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::json;

const RIGHT: &str = "\
version: v1
name: demo
namespace: default
mcp:
  servers:
    - name: filesystem
      transport: stdio
      command: ls
runtime:
  default_model: small
  models:
    - name: small
      provider: demo
      model: demo
";

/// Exit status 2, and the words of the report, for the right file with one thing made wrong.
fn wrong(from: &str, to: &str, words: &[&str]) {
    assert!(RIGHT.contains(from), "{from}");
    let project = TestProject::new(&RIGHT.replacen(from, to, 1));
    for command in [&["config", "validate"][..], &["chat", "hi"]] {
        let finished = project.run(command);
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert_eq!(finished.status, Some(2), "{command:?} with {to:?}:\n{said}");
        assert!(said.contains("error: "), "{said}");
        for word in words {
            assert!(said.contains(word), "`{word}` is missing for {to:?}:\n{said}");
        }
        assert!(!said.contains("panicked"), "{said}");
    }
    project.assert_nothing_left();
}

#[test]
fn the_right_file_is_right() {
    let project = TestProject::new(RIGHT);
    project.run(&["config", "validate"]).ok();
    let shown = project.run(&["config", "show"]).ok();
    assert!(shown.stdout.contains("filesystem"), "{shown:?}");
}

#[test]
fn a_bracket_that_is_not_closed() {
    wrong("command: ls", "command: ls\n      args: [a, b", &["llamafarm.yaml:"]);
}

#[test]
fn a_transport_that_does_not_exist() {
    wrong("transport: stdio", "transport: carrier-pigeon", &["llamafarm.yaml:7:", "carrier-pigeon", "stdio"]);
}

#[test]
fn a_stdio_server_without_a_command() {
    wrong("      command: ls\n", "", &["llamafarm.yaml:", "command", "filesystem"]);
}

#[test]
fn an_http_server_without_a_base_url() {
    wrong("transport: stdio\n      command: ls", "transport: http", &["llamafarm.yaml:", "base_url"]);
}

#[test]
fn a_server_that_is_not_defined() {
    let to = "name: small\n      mcp_servers: [filesytem]";
    wrong("name: small", to, &["llamafarm.yaml:13:", "filesytem", "did you mean `filesystem`"]);
}

#[test]
fn an_access_list_that_is_null() {
    wrong("name: small", "name: small\n      mcp_servers:", &["llamafarm.yaml:13:", "mcp_servers", "[]"]);
}

#[test]
fn an_access_list_that_is_a_string() {
    wrong(
        "name: small",
        "name: small\n      mcp_servers: filesystem",
        &["llamafarm.yaml:13:", "mcp_servers"],
    );
}

#[test]
fn a_key_that_is_there_twice() {
    let to = "name: small\n      mcp_servers: []\n      mcp_servers: [filesystem]";
    wrong("name: small", to, &["llamafarm.yaml:14:", "mcp_servers"]);
}

#[test]
fn two_servers_of_one_name() {
    let to = "command: ls\n    - name: filesystem\n      transport: stdio\n      command: ls";
    wrong("command: ls", to, &["llamafarm.yaml:9:", "filesystem"]);
}

#[test]
fn a_provider_that_does_not_exist() {
    wrong("provider: demo", "provider: opnai", &["llamafarm.yaml:13:", "opnai", "did you mean `openai`"]);
}

#[test]
fn a_default_model_that_is_not_defined() {
    wrong("default_model: small", "default_model: smal", &["llamafarm.yaml:10:", "smal", "small"]);
}

#[test]
fn no_version_is_pointed_out() {
    let project = TestProject::new(&RIGHT.replace("version: v1\n", ""));
    let finished = project.run(&["config", "validate"]).ok();
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(said.contains("warning: ") && said.contains("version"), "{said}");
}

#[test]
fn a_duration_that_is_none() {
    wrong("command: ls", "command: ls\n      timeout: soon", &["llamafarm.yaml:9:", "soon", "30s"]);
}

#[test]
fn a_list_where_a_text_should_be() {
    wrong("command: ls", "command: [ls]", &["llamafarm.yaml:8:", "command"]);
}

#[test]
fn a_key_that_is_misspelt() {
    let project = TestProject::new(&RIGHT.replace("command: ls", "command: ls\n      tiemout: 3s"));
    let finished = project.run(&["config", "validate"]);
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(said.contains("tiemout") && said.contains("timeout"), "{said}");
}

#[test]
fn every_mistake_is_reported_at_once() {
    let text =
        RIGHT.replace("transport: stdio", "transport: smoke").replace("provider: demo", "provider: opnai");
    let finished = TestProject::new(&text).run(&["config", "validate"]);
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(said.contains("smoke") && said.contains("opnai"), "{said}");
}

#[test]
fn no_file_at_all() {
    let project = TestProject::new(RIGHT);
    let empty = tempfile::tempdir().unwrap();
    let said = project.run(&["chat", "--cwd", &empty.path().display().to_string(), "hi"]).failed(2);
    assert!(said.contains("llamafarm.yaml"), "{said}");
}

#[test]
fn the_file_is_found_from_below_and_by_its_name() {
    let project = TestProject::new(RIGHT);
    let below = project.write("src/deep/x", "").parent().unwrap().display().to_string();
    project.run(&["config", "validate", "--cwd", &below]).ok();
    let file = project.path().join("llamafarm.yaml").display().to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().display().to_string();
    project.run(&["config", "validate", "--cwd", &elsewhere, "--config", &file]).ok();
}

#[test]
fn a_missing_variable_disables_only_what_needs_it() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let server = json!({
        "name": "api", "transport": "http", "base_url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": "Bearer ${env:NO_SUCH_TOKEN}"},
    });
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let finished = project.run(&["chat", "hi"]).ok();
    assert_eq!(finished.stdout.trim(), "hello");
    assert!(finished.stderr.contains("NO_SUCH_TOKEN"), "{finished:?}");
    model.finish();
}

#[test]
fn a_missing_variable_of_the_model_is_named() {
    let project =
        TestProject::of(&document(json!({"api_key": "${env:NO_SUCH_KEY}"}), "http://127.0.0.1:9/v1", &[]));
    let finished = project.run(&["chat", "hi"]);
    assert!(matches!(finished.status, Some(1 | 2)), "{finished:?}");
    assert!(finished.stderr.contains("NO_SUCH_KEY"), "{finished:?}");
    let daemon = project.serve();
    let refused = post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text.contains("NO_SUCH_KEY"), "{refused:?}");
}

#[test]
fn a_dotenv_file_is_read() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let project =
        TestProject::of(&document(json!({"api_key": "${env:KEY_IN_FILE}"}), &model.base_url(), &[]));
    project.write(".env", "KEY_IN_FILE=sk-from-file\n");
    let finished = project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(0).headers["authorization"], "Bearer sk-from-file");
    assert!(!finished.stderr.contains("sk-from-file"), "{finished:?}");
    let shown = project.run(&["config", "show"]).ok();
    assert!(!shown.stdout.contains("sk-from-file"), "{shown:?}");
    model.finish();
}

#[test]
fn a_first_file_can_be_made_and_is_right() {
    let project = TestProject::new(RIGHT);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    project.run(&["config", "init", &path]).ok();
    assert!(directory.path().join("llamafarm.yaml").exists());
    project.run(&["config", "validate", "--cwd", &path]).ok();
    let again = project.run(&["config", "init", &path]);
    assert_ne!(again.status, Some(0), "an existing file is not overwritten");
}

#[test]
fn wrong_usage_is_exit_status_two() {
    let project = TestProject::new(RIGHT);
    let said = project.run(&["chta", "hi"]).failed(2);
    assert!(said.contains("chat"), "{said}");
    let said = project.run(&["chat", "--model", "nobody", "hi"]);
    assert!(matches!(said.status, Some(1 | 2)), "{said:?}");
    assert!(said.stderr.contains("nobody") && said.stderr.contains("small"), "{said:?}");
}
