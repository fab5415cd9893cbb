//! Coding assistants as clients: requests of the shape that Codex and Claude Code send, over an upstream that knows
//! nothing of either.

use lf_tests::client::{post, request, stream};
use lf_tests::project::{TestProject, document_of, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use serde_json::{Value, json};

const PATCH: &str = "*** Begin Patch\n*** Add File: note.txt\n+a \"note\"\n*** End Patch\n";

fn function(name: &str) -> Value {
    let parameters =
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false});
    json!({"type": "function", "name": name, "description": "Does it.", "strict": false, "parameters": parameters})
}

/// What Codex sends, in fewer words.
fn codex(model: &str, input: &[Value]) -> Value {
    let said = |role: &str, text: &str| {
        let content = json!([{"type": "input_text", "text": text}]);
        json!({"type": "message", "id": format!("msg_{text}"), "role": role, "content": content})
    };
    let mut items = vec![said("developer", "Work."), said("developer", "Skills."), said("user", "Go.")];
    items.extend_from_slice(input);
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"});
    json!({
        "model": model, "stream": true, "store": false, "tool_choice": "auto", "parallel_tool_calls": true,
        "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}, "prompt_cache_key": "thread",
        "text": {"verbosity": "low"}, "client_metadata": {"session_id": "s", "x-codex-turn-metadata": "{}"},
        "tools": [
            function("exec_command"),
            {"type": "namespace", "name": "crew.v1", "description": "Other agents.", "tools": [function("hire"), function("fire")]},
            {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": grammar},
            {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {
                "type": "object", "properties": {"query": {"type": "string"}},
            }},
            {"type": "web_search", "external_web_access": true},
        ],
        "input": items,
    })
}

/// The items of a streamed answer, and the response that it ended with.
fn streamed(url: &str, body: &Value) -> (Vec<Value>, Value) {
    let events = stream(url, body);
    assert_eq!(events.status, 200);
    let events: Vec<Value> = events.rest().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let items: Vec<Value> = done.map(|event| event["item"].clone()).collect();
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed", "{last}");
    assert_eq!(last["response"]["output"], json!(items));
    (items, last["response"].clone())
}

fn entry(name: &str, api: &str, upstream: &ScriptedModel) -> Value {
    json!({"name": name, "provider": "openai", "api": api, "model": "m", "base_url": upstream.base_url()})
}

#[test]
fn codex_calls_tools_of_every_form_it_declares() {
    for api in ["chat_completions", "responses"] {
        let upstream = ScriptedModel::start([
            Reply::call("c1", "files__echo", json!({"n": 1})),
            Reply::calls([
                Call::new("c2", "crew_v1_hire", json!({"text": "Ann"})),
                Call::new("c3", "apply_patch", json!({"input": PATCH})),
                Call::new("c4", "tool_search", json!({"query": "clock"})),
            ]),
            Reply::call("c5", "clock_now", json!({})),
            Reply::text("Done."),
        ]);
        let server = scripted("files", &Script::echoing(&["echo"]));
        let project = TestProject::of(&document_of(&[entry("assistant", api, &upstream)], &[server]));
        let daemon = project.serve();
        let url = daemon.url("/v1/responses");

        let (mut items, _) = streamed(&url, &codex("assistant", &[]));
        let call = |at: usize, key: &str| items[at][key].clone();
        let told: Vec<Value> = (0..items.len())
            .map(|at| json!([call(at, "type"), call(at, "name"), call(at, "namespace")]))
            .collect();
        assert_eq!(
            told,
            [
                json!(["function_call", "hire", "crew.v1"]),
                json!(["custom_tool_call", "apply_patch", null]),
                json!(["tool_search_call", null, null]),
            ],
        );
        assert_eq!(items[1]["input"], PATCH);
        assert_eq!(items[2]["arguments"], json!({"query": "clock"}));

        let found = json!([{"type": "namespace", "name": "clock", "tools": [function("now")]}]);
        let outputs = [
            json!({"type": "function_call_output", "call_id": items[0]["call_id"], "output": "hired"}),
            json!({"type": "custom_tool_call_output", "call_id": items[1]["call_id"], "output": "patched"}),
            json!({"type": "tool_search_output", "call_id": items[2]["call_id"], "execution": "client", "tools": found}),
        ];
        items.extend(outputs);
        let (second, _) = streamed(&url, &codex("assistant", &items));
        assert_eq!((&second[0]["name"], &second[0]["namespace"]), (&json!("now"), &json!("clock")));
        items.extend(second);
        items.push(json!({"type": "function_call_output", "call_id": items[6]["call_id"], "output": "noon"}));
        let (last, response) = streamed(&url, &codex("assistant", &items));
        assert_eq!(last[0]["content"][0]["text"], "Done.");
        assert_eq!(response["tools"][1]["type"], "namespace");

        let first = upstream.request(0);
        assert_eq!(
            first.tool_names(),
            ["files__echo", "exec_command", "crew_v1_hire", "crew_v1_fire", "apply_patch", "tool_search"],
        );
        // what OpenAI runs itself is told to its API alone
        assert_eq!(first.body.to_string().contains("web_search"), api == "responses");
        assert_eq!(first.body.to_string().contains("client_metadata"), api == "responses");
        let history = upstream.request(3);
        let answered: Vec<(&str, &str)> =
            history.asked.answered_calls().into_iter().map(|(name, _, result)| (name, result)).collect();
        assert_eq!(
            answered[1..],
            [
                ("crew_v1_hire", "hired"),
                ("apply_patch", "patched"),
                ("tool_search", "These tools can be called from now on: `clock_now`."),
                ("clock_now", "noon"),
            ],
        );
        assert_eq!(answered[0].0, "files__echo");
        assert_eq!(history.tool_names().last().unwrap(), "clock_now");
        upstream.finish();
    }
}

#[test]
fn a_request_for_openais_own_search_alone_says_what_to_do() {
    let upstream = ScriptedModel::start([]);
    let project = TestProject::of(&document_of(&[entry("assistant", "chat_completions", &upstream)], &[]));
    let daemon = project.serve();
    let body = json!({"model": "assistant", "input": "news?", "tools": [{"type": "web_search"}]});
    let reply = post(&daemon.url("/v1/responses"), &body);
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.text.contains("web_search") && reply.text.contains("declare a function"), "{}", reply.text);
    upstream.finish();
}

/// What Claude Code sends, in fewer words.
fn claude_code() -> Value {
    let cached = json!({"type": "ephemeral", "ttl": "1h"});
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"], "additionalProperties": false,
    });
    json!({
        "model": "assistant", "max_tokens": 32000, "stream": true,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch=abc;"},
            {"type": "text", "text": "You are a coding agent.", "cache_control": cached},
            {"type": "text", "text": "Be brief.", "cache_control": cached},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>"},
                {"type": "text", "text": "Say hello."},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "A shell will do.", "signature": "c2VhbA=="},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "echo hello"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello", "is_error": false, "cache_control": cached},
            ]},
            {"role": "system", "content": [{"type": "text", "text": "The person switched to plan mode.", "cache_control": cached}]},
            {"role": "user", "content": [{"type": "text", "text": "Again.", "cache_control": cached}]},
        ],
        "tools": [
            {"name": "Bash", "description": "Runs a command.", "input_schema": schema, "eager_input_streaming": true},
            {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}, "eager_input_streaming": true},
        ],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "{\"device_id\":\"d\",\"session_id\":\"s\"}"},
    })
}

#[test]
fn nothing_that_only_anthropic_knows_leaks_from_claude_code_to_another_api() {
    let upstream = ScriptedModel::start([
        Reply::call("c1", "files__echo", json!({"n": 1})),
        Reply::call("c2", "Bash", json!({"command": "echo again"})),
    ]);
    let server = scripted("files", &Script::echoing(&["echo"]));
    let project =
        TestProject::of(&document_of(&[entry("assistant", "chat_completions", &upstream)], &[server]));
    let daemon = project.serve();
    let headers = [
        ("anthropic-version", "2023-06-01"),
        (
            "anthropic-beta",
            "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
        ),
        ("anthropic-dangerous-direct-browser-access", "true"),
        ("x-app", "cli"),
        ("x-claude-code-session-id", "s"),
        ("authorization", "Bearer of-the-client"),
    ];
    let reply =
        request("POST", &daemon.url("/v1/messages?beta=true"), &headers, Some(claude_code().to_string()));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.text.contains(r#""name":"Bash""#) && reply.text.contains("message_stop"), "{}", reply.text);
    assert!(reply.text.contains(r#""stop_reason":"tool_use""#), "{}", reply.text);

    let first = upstream.request(0);
    let told = format!("{} {:?}", first.body, first.headers);
    let others = [
        "billing-header",
        "cache_control",
        "eager_input_streaming",
        "context_management",
        "thinking",
        "adaptive",
        "output_config",
        "signature",
        "c2VhbA",
        "anthropic",
        "claude",
        "of-the-client",
        "x-app",
        "$",
        "beta",
    ];
    // an address in a schema is no word of the dialect
    let told = told.replace("$schema", "");
    let leaked: Vec<&str> = others.into_iter().filter(|word| told.contains(word)).collect();
    assert_eq!(leaked, [""; 0], "{told}");
    assert_eq!(first.tool_names(), ["files__echo", "Bash", "Read"]);
    assert!(first.asked.system.contains("You are a coding agent."), "{:?}", first.asked);
    assert_eq!(first.result_of("toolu_1").as_deref(), Some("hello"));
    assert_eq!(first.asked.last_user_text(), "Again.");
    assert!(first.body.to_string().contains("plan mode"), "{}", first.body);
    upstream.finish();
}
