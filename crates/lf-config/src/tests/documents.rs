//! Whole files: the shapes that the documentation of LlamaFarm shows, our own examples, and the schema.

use std::path::PathBuf;
use std::time::Duration;

use lf_core::message::Role;
use lf_core::project::{Elicitation, Generation, Protocol, Provider, ToolCallStrategy, Transport};
use lf_core::tool::{Approval, Hints};

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn load_file(path: &str) -> Loaded {
    load(&repository().join(path), |_| None).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn names<T>(entries: &indexmap::IndexMap<String, T>) -> Vec<&str> {
    entries.keys().map(String::as_str).collect()
}

#[test]
fn servers_alone_are_a_project() {
    let loaded = parse_whole(
        "mcp:
  servers:
    - name: files
      transport: stdio
      command: npx
      args:
        - '-y'
        - '@scope/server-files'
        - '/srv/data'
      env:
        NODE_ENV: production
        PORT: 8080
        DEBUG: true
    - name: remote
      transport: http
      base_url: https://tools.example/mcp
      headers:
        X-Custom: my-value
        X-Version: 1.10
    - name: stream
      transport: sse
      base_url: https://tools.example/mcp/sse
",
    )
    .expect("loads");
    let project = loaded.project;
    assert_eq!((project.name.as_str(), project.namespace.as_str()), ("farm", "default"));
    assert_eq!(names(&project.servers), ["files", "remote", "stream"]);
    let Transport::Stdio(stdio) = &project.servers["files"].as_ref().expect("usable").transport else {
        panic!()
    };
    assert_eq!(
        stdio.args.iter().map(|arg| arg.expose()).collect::<Vec<_>>(),
        ["-y", "@scope/server-files", "/srv/data"]
    );
    let env: Vec<_> = stdio.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(env, [("NODE_ENV", "production"), ("PORT", "8080"), ("DEBUG", "true")]);
    assert_eq!(stdio.cwd, Path::new("/srv/farm"));
    let Transport::Http(http) = &project.servers["remote"].as_ref().expect("usable").transport else {
        panic!()
    };
    assert_eq!(http.headers[1].1.expose(), "1.10");
    assert!(matches!(project.servers["stream"].as_ref().expect("usable").transport, Transport::Sse(_)));
}

#[test]
fn a_bare_list_of_servers_or_models_is_a_project() {
    let servers = "# a files server\n- name: files\n  transport: stdio\n  command: npx\n  args: ['-y', 'x']\n\n# another\n- name: py\n  transport: stdio\n  command: python\n  args: ['-m', 'tools']\n";
    assert_eq!(names(&parse_whole(servers).expect("loads").project.servers), ["files", "py"]);
    let models = "- {name: a, provider: demo}\n- {name: b, provider: demo}\n";
    assert_eq!(names(&parse_whole(models).expect("loads").project.models), ["a", "b"]);
}

#[test]
fn a_model_alone_may_name_servers_and_prompts_of_another_file() {
    let loaded = parse_whole(
        "runtime:
  models:
    - name: assistant
      provider: ollama
      model: llama3.1:8b
      mcp_servers:
        - files
      prompts: [code-review]
",
    )
    .expect("loads");
    let model = loaded.project.models["assistant"].as_ref().expect("usable");
    assert!(model.servers.is_empty() && model.prompts.is_empty());
    let warnings = loaded.diagnostics.iter().filter(|one| one.message.starts_with("unknown")).count();
    assert_eq!(warnings, 2);
}

#[test]
fn a_schema_of_parameters_alone_loads_and_serves_as_one() {
    let parameters = "parameters:
  type: object
  required:
    - a
  properties:
    a:
      type: string
      description: First
    b:
      type: integer
    c:
      type: boolean
      default: false
";
    assert!(diagnose_whole(parameters).contains("warning: unknown section `parameters`"));
    assert!(parse_whole(parameters).is_ok());
    let indented: String = parameters.lines().map(|line| format!("          {line}\n")).collect();
    let loaded = load_text(&format!(
        "runtime:
  models:
    - name: m
      provider: universal
      model: some/model
      tools:
        - type: function
          name: cli.dataset_upload
          description: Upload
{indented}"
    ));
    let model = loaded.project.models["m"].as_ref().expect("usable");
    assert_eq!(model.tools[0].name, "cli.dataset_upload");
    assert_eq!(model.tools[0].parameters["properties"]["c"]["default"], serde_json::json!(false));
}

#[test]
fn access_lists_are_given_left_out_or_empty() {
    let loaded = load_text(
        "mcp:
  servers:
    - {name: one, transport: stdio, command: a}
    - {name: two, transport: http, base_url: 'http://localhost:14345/mcp'}
runtime:
  default_model: second
  models:
    - {name: first, provider: openai, model: gpt-4, mcp_servers: [two, one]}
    - {name: second, provider: openai, model: gpt-4, tool_call_strategy: native_api}
    - {name: third, provider: ollama, model: llama2, mcp_servers: [], tool_call_strategy: prompt_based,
       tool_call_format: llama3_json}
prompts:
  - name: default
    messages:
      - role: system
        content: |
          First line.
          Second line.
  - name: code-review
    messages: [{role: user, content: hi}]
",
    );
    let model = |name: &str| loaded.project.models[name].as_ref().expect("usable").as_ref().clone();
    assert_eq!(model("first").servers, ["two", "one"]);
    assert_eq!(model("second").servers, ["one", "two"]);
    assert!(model("third").servers.is_empty());
    assert_eq!(model("third").strategy, ToolCallStrategy::PromptBased);
    assert_eq!(model("third").tool_call_format.as_deref(), Some("llama3_json"));
    assert_eq!(model("second").tool_call_format, None);
    assert_eq!(model("third").prompts, ["default", "code-review"]);
    assert_eq!(loaded.project.default_model.as_deref(), Some("second"));
    let message = &loaded.project.prompts["default"].messages[0];
    assert_eq!((message.role, message.content.as_str()), (Role::System, "First line.\nSecond line.\n"));
    assert!(loaded.diagnostics.is_empty(), "{}", loaded.render_diagnostics(Style::Plain));
}

#[test]
fn limits_filters_and_times_reach_the_project() {
    let loaded = load_text(
        "mcp:
  servers:
    - name: s
      transport: stdio
      command: x
      cwd: tools
      tools: {allow: ['read_*', 'write_*'], deny: [read_secret], rename: {read_file: read}}
      approval: {'write_*': ask, 'rm*': deny, 'read_*': auto, destructiveHint: ask}
      timeout: 1m30s
      startup_timeout: 0.5
      required: true
      protocol: 2025-06-18
      elicitation: decline
      limits: {memory: 512MiB, processes: 0}
    - {name: off, transport: stdio, command: x, approval: deny}
runtime:
  models:
    - name: m
      provider: demo
      limits: {rounds: 2, parallel_calls: 3, result_tokens: 400, turn_timeout: 500ms, repeat_calls: 5, approval_timeout: 90s, queue_timeout: 20s}
      model_api_parameters: {temperature: 0.2, stop: [no, 'x'], seed: 0x10}
      extra_body: {keep_alive: 5m}
",
    );
    let server = loaded.project.servers["s"].as_ref().expect("usable");
    let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
    assert_eq!((server.timeout, server.max_timeout), (seconds(90.0), seconds(900.0)));
    assert_eq!((server.startup_timeout, server.required), (seconds(0.5), true));
    assert_eq!(server.protocol, Protocol::Revision("2025-06-18"));
    assert_eq!(server.protocol.generation(), Some(Generation::Legacy));
    assert_eq!(loaded.project.servers["off"].as_ref().expect("usable").protocol, Protocol::Auto);
    assert_eq!(server.elicitation, Elicitation::Decline);
    assert_eq!(loaded.project.servers["off"].as_ref().expect("usable").elicitation, Elicitation::Defaults);
    let permitted =
        ["read_file", "read_secret", "write_file", "rm", "list"].map(|tool| server.tools.permits(tool));
    assert_eq!(permitted, [true, false, true, false, false]);
    let hints = |read_only| Hints::of(&serde_json::json!({"annotations": {"readOnlyHint": read_only}}));
    let approval = |tool: &str, read_only| server.tools.approval(tool, hints(read_only));
    let approvals = ["read_file", "write_file", "rm", "list"].map(|tool| approval(tool, false));
    assert_eq!(approvals, [Approval::Auto, Approval::Ask, Approval::Deny, Approval::Ask]);
    assert_eq!(approval("list", true), Approval::Auto);
    assert_eq!(server.tools.rename["read_file"], "read");
    let Transport::Stdio(stdio) = &server.transport else { panic!() };
    assert_eq!(stdio.cwd, Path::new("/srv/farm/tools"));
    assert_eq!((stdio.limits.memory, stdio.limits.processes), (Some(512 << 20), None));
    let off = loaded.project.servers["off"].as_ref().expect("usable");
    assert_eq!(off.tools.approval("anything", hints(true)), Approval::Deny);
    let model = loaded.project.models["m"].as_ref().expect("usable");
    let limits = &model.limits;
    assert_eq!(
        (limits.rounds, limits.parallel_calls, limits.result_tokens, limits.repeat_calls),
        (2, 3, 400, 5)
    );
    assert_eq!((limits.turn_timeout, limits.approval_timeout), (seconds(0.5), seconds(90.0)));
    assert_eq!(limits.queue_timeout, seconds(20.0));
    // `no` is the word and not `false`
    let expected = serde_json::json!({"temperature": 0.2, "stop": ["no", "x"], "seed": 16});
    assert_eq!(serde_json::Value::Object(model.parameters.clone()), expected);
    assert_eq!(model.extra_body["keep_alive"], "5m");
}

#[test]
fn older_shapes_come_out_as_the_modern_one() {
    let flat = load_text(
        "runtime: {provider: ollama, model: llama3, default_model: default}\nprompts: [{role: system, content: hi}]\n",
    );
    let model = flat.project.models["default"].as_ref().expect("usable");
    assert_eq!(
        (model.provider, model.model.as_str(), model.prompts.as_slice()),
        (Provider::Ollama, "llama3", ["default".to_owned()].as_slice())
    );
    let maps = load_text(
        "mcp: {servers: {fs: {transport: stdio, command: x}}}\nruntime: {models: {fast: {provider: demo}, slow: {provider: demo, default: true}}}\n",
    );
    assert_eq!(names(&maps.project.servers), ["fs"]);
    assert_eq!(names(&maps.project.models), ["fast", "slow"]);
    assert_eq!(maps.project.default_model.as_deref(), Some("slow"));
}

#[test]
fn anchors_and_merge_keys_are_followed() {
    let loaded = load_text(
        "x-defaults: &defaults {provider: openai, model: gpt-4, limits: &limits {rounds: 3}}
runtime:
  models:
    - {<<: *defaults, name: a}
    - {<<: [*defaults], name: b, model: gpt-5, limits: *limits}
",
    );
    let model = |name: &str| loaded.project.models[name].as_ref().expect("usable").as_ref().clone();
    assert_eq!((model("a").model, model("a").limits.rounds), ("gpt-4".to_owned(), 3));
    assert_eq!((model("b").model, model("b").provider), ("gpt-5".to_owned(), Provider::Openai));
}

#[test]
fn toml_and_json_give_the_same_project() {
    let yaml = "version: v1\nname: farm\nnamespace: default\nmcp:\n  servers:\n    - {name: b, transport: stdio, command: x, timeout: 30}\nruntime:\n  models:\n    - {name: z, provider: demo, limits: {rounds: 4}}\n    - {name: a, provider: demo, model_api_parameters: {temperature: 0.5}}\n";
    let toml = "version = 'v1'\nname = 'farm'\nnamespace = 'default'\n[[mcp.servers]]\nname = 'b'\ntransport = 'stdio'\ncommand = 'x'\ntimeout = 30\n[[runtime.models]]\nname = 'z'\nprovider = 'demo'\nlimits = {rounds = 4}\n[[runtime.models]]\nname = 'a'\nprovider = 'demo'\nmodel_api_parameters = {temperature = 0.5}\n";
    let json = r#"{"version":"v1","name":"farm","namespace":"default","mcp":{"servers":[{"name":"b","transport":"stdio","command":"x","timeout":30}]},"runtime":{"models":[{"name":"z","provider":"demo","limits":{"rounds":4}},{"name":"a","provider":"demo","model_api_parameters":{"temperature":0.5}}]}}"#;
    let read = |name: &str, text: &str| {
        let loaded = parse(&source(name, text), Path::new("/srv/farm"), &Variables::none());
        format!("{:?}", loaded.unwrap_or_else(|rejected| panic!("{rejected}")).project)
    };
    let expected = read("llamafarm.yaml", yaml);
    assert_eq!(read("llamafarm.toml", toml), expected);
    assert_eq!(read("llamafarm.json", json), expected);
    let broken = parse(&source("llamafarm.toml", "a = 1\nb = = 2\n"), Path::new("/"), &Variables::none());
    assert!(broken.expect_err("no TOML").to_string().contains("llamafarm.toml:2:5"));
}

#[test]
fn the_examples_load_without_errors() {
    let quickstart = load_file("examples/quickstart/llamafarm.yaml");
    assert!(quickstart.diagnostics.is_empty(), "{}", quickstart.render_diagnostics(Style::Plain));
    let model = quickstart.project.models["demo"].as_ref().expect("usable");
    assert_eq!(model.servers, ["files"]);
    let prompt_based = load_file("examples/prompt-based/llamafarm.yaml");
    assert!(prompt_based.diagnostics.is_empty(), "{}", prompt_based.render_diagnostics(Style::Plain));
    let two = load_file("examples/two-servers/llamafarm.yaml");
    assert!(two.project.servers["filesystem"].is_ok());
    assert!(two.project.servers["company-api"].is_err(), "its variable is not set");
    assert_eq!(two.diagnostics.len(), 1, "{}", two.render_diagnostics(Style::Plain));
}

#[test]
fn the_reference_file_shows_every_key_and_warns_only_of_what_comes_later() {
    let loaded = load_file("llamafarm.yaml.example");
    for one in &loaded.diagnostics {
        let expected =
            ["not acted on yet", "not used by this version"].iter().any(|text| one.message.contains(text));
        assert!(expected, "{}", one.render(&loaded.source, Style::Plain));
    }
    let text = &loaded.source.text;
    let schema = schema();
    let definitions = schema["$defs"].as_object().expect("definitions");
    for place in std::iter::once(&schema).chain(definitions.values()) {
        for key in
            place.get("properties").and_then(|one| one.as_object()).into_iter().flat_map(|one| one.keys())
        {
            assert!(text.contains(&format!("{key}:")), "`{key}` is not in llamafarm.yaml.example");
        }
    }
}

#[test]
fn a_new_project_loads_without_a_word() {
    for name in ["my-farm", "123", "null", "no spaces allowed"] {
        let text = init(name, "default");
        let loaded = parse_whole(&text).unwrap_or_else(|rejected| panic!("{rejected}"));
        assert!(loaded.diagnostics.is_empty(), "{}", loaded.render_diagnostics(Style::Plain));
        let expected = if name.contains(' ') { "my-project" } else { name };
        assert_eq!(loaded.project.name, expected);
        assert!(text.starts_with("# yaml-language-server: $schema=./llamafarm.schema.json"));
    }
}

/// `LF_UPDATE_SCHEMA=1 cargo test -p lf-config schema` writes it.
#[test]
fn the_schema_in_the_repository_is_fresh() {
    let path = repository().join("schema/llamafarm.schema.json");
    let fresh = serde_json::to_string_pretty(&schema()).expect("a value") + "\n";
    if std::env::var_os("LF_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &fresh).expect("written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == fresh, "run: LF_UPDATE_SCHEMA=1 cargo test -p lf-config schema");
}

#[test]
fn the_schema_is_one_and_agrees_with_the_checks_about_our_files() {
    let schema = schema();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    let validator = jsonschema::validator_for(&schema).expect("compiles");
    let paths =
        ["quickstart", "two-servers", "prompt-based"].map(|name| format!("examples/{name}/llamafarm.yaml"));
    for path in paths.iter().map(String::as_str).chain(["llamafarm.yaml.example"]) {
        let text = std::fs::read_to_string(repository().join(path)).expect("readable");
        let json: serde_json::Value = serde_yaml::from_str(&text).expect("YAML");
        let errors: Vec<_> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
    }
}

#[test]
fn the_schema_and_the_checks_refuse_the_same_files() {
    let validator = jsonschema::validator_for(&schema()).expect("compiles");
    let wrong = [
        "mcp: {servers: [{name: a, transport: stdoi}]}",
        "mcp: {servers: [{name: a b, transport: stdio, command: x}]}",
        "mcp: {servers: [{transport: stdio, command: x}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, colour: red}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, args: {a: b}}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, args: [[a]]}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, env: {A: [1]}}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, required: 1}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, timeout: [1]}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, approval: 3}]}",
        "mcp: {servers: [{name: a, transport: stdio, command: x, inherit_env: [A-B]}]}",
        "mcp: {servers: [{name: a, transport: http, base_url: x, auth: {kind: oauth}}]}",
        "runtime: {models: [{name: a, provider: demo, mcp_servers: null}]}",
        "runtime: {models: [{name: a, provider: demo, mcp_servers: a}]}",
        "runtime: {models: [{name: a, provider: demo, mcp_servers: [a, a]}]}",
        "runtime: {models: [{name: a, provider: demo, limits: {rounds: 0}}]}",
        "runtime: {models: [{name: a, provider: demo, limits: {rounds: 1.5}}]}",
        "runtime: {models: [{name: a, provider: demo, limits: {cost_usd: -1}}]}",
        "runtime: {models: [{name: a, provider: demo, model: 4}]}",
        "runtime: {models: [{name: a, provider: demo, tools: [{type: function}]}]}",
        "prompts: [{name: p, messages: [{role: x, content: y}]}]",
    ];
    for text in wrong {
        let whole = format!("{HEAD}{text}\n");
        let json: serde_json::Value = serde_yaml::from_str(&whole).expect("YAML");
        assert!(!validator.is_valid(&json), "the schema takes {text}");
        assert!(parse_whole(&whole).is_err(), "the checks take {text}");
    }
}

#[test]
fn every_pattern_of_the_schema_is_one_the_checks_know() {
    fn patterns(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                found.extend(map.get("pattern").and_then(|one| one.as_str()).map(str::to_owned));
                map.values().for_each(|one| patterns(one, found));
            }
            serde_json::Value::Array(list) => list.iter().for_each(|one| patterns(one, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    patterns(&schema(), &mut found);
    assert!(found.len() > 5);
    for pattern in found {
        assert!(
            [raw::NAME, raw::MODEL_NAME, raw::LOOSE_NAME, raw::VARIABLE].contains(&pattern.as_str()),
            "{pattern}"
        );
    }
}
