//! One file per mistake, and what a person is told.

use insta::assert_snapshot;

use super::{diagnose, diagnose_whole};

#[test]
fn an_unknown_server_name_is_an_error_with_the_nearest_name() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: filesystem, transport: stdio, command: npx}
runtime:
  models:
    - name: a
      provider: demo
      mcp_servers:
        - filesytem
"#), @r#"
    error: unknown MCP server `filesytem`
      --> llamafarm.yaml:12:11
       |
    12 |         - filesytem
       |           ^^^^^^^^^ not in `mcp.servers`
       |
    hint: did you mean `filesystem`?
    "#);
}

#[test]
fn a_null_list_of_servers_is_never_read_as_omitted() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: demo, mcp_servers: ~}
"#), @r#"
    error: `mcp_servers` is empty; it must be a list
     --> llamafarm.yaml:6:46
      |
    6 |     - {name: a, provider: demo, mcp_servers: ~}
      |                                              ^ expected a list
      |
    hint: `[]` gives the model no servers; without the key it may use all of them
    "#);
}

#[test]
fn a_list_of_servers_without_a_value_is_never_read_as_omitted() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - name: a
      provider: demo
      mcp_servers:
"#), @r#"
    error: `mcp_servers` is empty; it must be a list
     --> llamafarm.yaml:8:18
      |
    8 |       mcp_servers:
      |                  ^ expected a list
      |
    hint: `[]` gives the model no servers; without the key it may use all of them
    "#);
}

#[test]
fn a_string_is_no_list_of_servers() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: demo, mcp_servers: filesystem}
"#), @r#"
    error: `mcp_servers` must be a list, not a string
     --> llamafarm.yaml:6:46
      |
    6 |     - {name: a, provider: demo, mcp_servers: filesystem}
      |                                              ^^^^^^^^^^ expected a list
      |
    hint: write `mcp_servers: [filesystem]`
    "#);
}

#[test]
fn a_server_named_twice_by_a_model_is_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: fs, transport: stdio, command: npx}
runtime:
  models:
    - {name: a, provider: demo, mcp_servers: [fs, fs]}
"#), @r#"
    error: `mcp_servers` names `fs` twice
     --> llamafarm.yaml:9:51
      |
    9 |     - {name: a, provider: demo, mcp_servers: [fs, fs]}
      |                                                   ^^ the second time
    "#);
}

#[test]
fn a_duplicate_key_is_an_error() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - name: a
      provider: demo
      mcp_servers: []
      mcp_servers: [fs]
"#), @r#"
    error: the key `mcp_servers` is given twice
     --> llamafarm.yaml:9:7
      |
    9 |       mcp_servers: [fs]
      |       ^^^^^^^^^^^ the second one
      |
    hint: keep one of the two
    "#);
}

#[test]
fn two_servers_of_one_name_are_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: fs, transport: stdio, command: a}
    - {name: fs, transport: stdio, command: b}
"#), @r#"
    error: the MCP server `fs` is defined twice
     --> llamafarm.yaml:7:14
      |
    7 |     - {name: fs, transport: stdio, command: b}
      |              ^^ the second one
      |
    hint: the first is at llamafarm.yaml:6:14; give one of them another name
    "#);
}

#[test]
fn two_models_of_one_name_are_an_error() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: demo}
    - {name: a, provider: demo}
"#), @r#"
    error: the model `a` is defined twice
     --> llamafarm.yaml:7:14
      |
    7 |     - {name: a, provider: demo}
      |              ^ the second one
      |
    hint: the first is at llamafarm.yaml:6:14; give one of them another name
    "#);
}

#[test]
fn two_prompt_sets_of_one_name_are_an_error() {
    assert_snapshot!(diagnose(r#"prompts:
  - {name: p, messages: []}
  - {name: p, messages: []}
runtime: {models: [{name: a, provider: demo}]}
"#), @r#"
    error: the prompt set `p` is defined twice
     --> llamafarm.yaml:6:12
      |
    6 |   - {name: p, messages: []}
      |            ^ the second one
      |
    hint: the first is at llamafarm.yaml:5:12; give one of them another name
    "#);
}

#[test]
fn an_unknown_prompt_set_is_an_error() {
    assert_snapshot!(diagnose(r#"prompts:
  - {name: code-review, messages: []}
runtime:
  models:
    - {name: a, provider: demo, prompts: [code_reviews]}
"#), @r#"
    error: unknown prompt set `code_reviews`
     --> llamafarm.yaml:8:43
      |
    8 |     - {name: a, provider: demo, prompts: [code_reviews]}
      |                                           ^^^^^^^^^^^^ not in `prompts`
      |
    hint: did you mean `code-review`?
    "#);
}

#[test]
fn an_unknown_transport_is_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: fs, transport: stdoi, command: npx}
"#), @r#"
    error: `transport` cannot be `stdoi`
     --> llamafarm.yaml:6:29
      |
    6 |     - {name: fs, transport: stdoi, command: npx}
      |                             ^^^^^ expected `stdio`, `http`, `sse`
      |
    hint: did you mean `stdio`?
    "#);
}

#[test]
fn other_programs_words_are_understood_as_hints() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, type: streamable-http, url: https://x.example/mcp}
    - {name: b, transport: streamable-http, base_url: https://x.example/mcp}
"#), @r#"
    error: MCP server `a` has an unknown key `type`
     --> llamafarm.yaml:6:17
      |
    6 |     - {name: a, type: streamable-http, url: https://x.example/mcp}
      |                 ^^^^ not a key of this entry
      |
    hint: did you mean `transport`?

    error: MCP server `a` has an unknown key `url`
     --> llamafarm.yaml:6:40
      |
    6 |     - {name: a, type: streamable-http, url: https://x.example/mcp}
      |                                        ^^^ not a key of this entry
      |
    hint: did you mean `base_url`?

    error: `transport` cannot be `streamable-http`
     --> llamafarm.yaml:7:28
      |
    7 |     - {name: b, transport: streamable-http, base_url: https://x.example/mcp}
      |                            ^^^^^^^^^^^^^^^ expected `stdio`, `http`, `sse`
      |
    hint: did you mean `http`?
    "#);
}

#[test]
fn stdio_needs_a_command() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - name: fs
      transport: stdio
      args: [a]
"#), @r#"
    error: MCP server `fs` has no `command`
     --> llamafarm.yaml:6:7
      |
    6 |     - name: fs
      |       ^^^^ in this entry
      |
    hint: transport `stdio` starts a program: name it in `command`
    "#);
}

#[test]
fn http_needs_a_base_url() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - name: api
      transport: http
      headers: {A: b}
"#), @r#"
    error: MCP server `api` has no `base_url`
     --> llamafarm.yaml:6:7
      |
    6 |     - name: api
      |       ^^^^ in this entry
      |
    hint: transports `http` and `sse` connect to a URL: give it in `base_url`
    "#);
}

#[test]
fn a_url_needs_a_scheme_of_http() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: ftp://x.example}
    - {name: b, transport: sse, base_url: x.example/sse}
"#), @r#"
    error: `base_url` is no URL to connect to: its scheme is `ftp`, not `http` or `https`
     --> llamafarm.yaml:6:44
      |
    6 |     - {name: a, transport: http, base_url: ftp://x.example}
      |                                            ^^^^^^^^^^^^^^^
      |
    hint: a URL looks like `https://host:port/mcp`

    error: `base_url` is no URL to connect to: relative URL without a base
     --> llamafarm.yaml:7:43
      |
    7 |     - {name: b, transport: sse, base_url: x.example/sse}
      |                                           ^^^^^^^^^^^^^
      |
    hint: a URL looks like `https://host:port/mcp`
    "#);
}

#[test]
fn keys_of_the_other_transport_have_no_effect() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, headers: {A: b}}
"#), @r#"
    warning: the file has no models, so there is nobody to chat with
     --> llamafarm.yaml:1:1
      |
    1 | version: v1
      | ^^^^^^^
      |
    hint: a first one: `runtime: {models: [{name: demo, provider: demo}]}`

    warning: `headers` has no effect with transport `stdio`
     --> llamafarm.yaml:6:47
      |
    6 |     - {name: a, transport: stdio, command: x, headers: {A: *}}
      |                                               ^^^^^^^
    "#);
}

#[test]
fn a_command_is_one_program() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: npx -y some-server}
"#), @r#"
    warning: the file has no models, so there is nobody to chat with
     --> llamafarm.yaml:1:1
      |
    1 | version: v1
      | ^^^^^^^
      |
    hint: a first one: `runtime: {models: [{name: demo, provider: demo}]}`

    warning: `command` holds spaces; it is the name of one program
     --> llamafarm.yaml:6:44
      |
    6 |     - {name: a, transport: stdio, command: npx -y some-server}
      |                                            ^^^^^^^^^^^^^^^^^^
      |
    hint: write `command: npx` and `args: [-y, some-server]`
    "#);
}

#[test]
fn a_server_name_has_a_pattern() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: my server, transport: stdio, command: x}
"#), @r#"
    error: `name` cannot be `my server`
     --> llamafarm.yaml:6:14
      |
    6 |     - {name: my server, transport: stdio, command: x}
      |              ^^^^^^^^^ expected letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 63
    "#);
}

#[test]
fn an_unknown_key_is_an_error_with_the_nearest_key() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, startup_timout: 5s}
"#), @r#"
    error: MCP server `a` has an unknown key `startup_timout`
     --> llamafarm.yaml:6:47
      |
    6 |     - {name: a, transport: stdio, command: x, startup_timout: 5s}
      |                                               ^^^^^^^^^^^^^^ not a key of this entry
      |
    hint: did you mean `startup_timeout`?
    "#);
}

#[test]
fn an_unknown_key_without_a_near_one_lists_the_known() {
    assert_snapshot!(diagnose(r#"mcp:
  servers: []
  colour: red
"#), @r#"
    error: `mcp` has an unknown key `colour`
     --> llamafarm.yaml:6:3
      |
    6 |   colour: red
      |   ^^^^^^ not a key of this entry
      |
    hint: known keys: servers
    "#);
}

#[test]
fn an_unknown_section_is_a_warning() {
    assert_snapshot!(diagnose(r#"runtimes: {}
mcpServers: {}
runtime: {models: [{name: a, provider: demo}]}
"#), @r#"
    warning: unknown section `runtimes`
     --> llamafarm.yaml:4:1
      |
    4 | runtimes: {}
      | ^^^^^^^^ not used
      |
    hint: did you mean `runtime`?

    warning: unknown section `mcpServers`
     --> llamafarm.yaml:5:1
      |
    5 | mcpServers: {}
      | ^^^^^^^^^^ not used
      |
    hint: MCP servers are listed under `mcp: servers:`
    "#);
}

#[test]
fn an_unknown_dialect_is_an_error_that_names_a_near_one() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai, model: gpt-4, tool_call_format: harmoni}
"#), @r#"
    error: `tool_call_format` cannot be `harmoni`
     --> llamafarm.yaml:6:67
      |
    6 |     - {name: a, provider: openai, model: gpt-4, tool_call_format: harmoni}
      |                                                                   ^^^^^^^ expected `hermes`, `tool_use`, `default`, `longcat`, `ernie`, `qwen3_coder_xml`, `mimo`, `seed_oss`, `llama3_json`, `llama_function_tag`, `pythonic`, `lfm2`, …
      |
    hint: did you mean `harmony`?
    "#);
}

#[test]
fn an_unknown_provider_is_an_error() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: opanai, model: gpt-4}
"#), @r#"
    error: `provider` cannot be `opanai`
     --> llamafarm.yaml:6:27
      |
    6 |     - {name: a, provider: opanai, model: gpt-4}
      |                           ^^^^^^ expected `openai`, `anthropic`, `ollama`, `gemini`, `universal`, `lemonade`, `demo`, `replay`
      |
    hint: did you mean `openai`?
    "#);
}

#[test]
fn a_model_needs_a_model() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai}
"#), @r#"
    error: model `a` has no `model`
     --> llamafarm.yaml:6:8
      |
    6 |     - {name: a, provider: openai}
      |        ^^^^ in this entry
      |
    hint: `model` is the provider's own name, such as `gpt-4`; `name` is what clients call it
    "#);
}

#[test]
fn a_model_needs_a_provider() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, model: gpt-4}
"#), @r#"
    error: model `a` has no `provider`
     --> llamafarm.yaml:6:8
      |
    6 |     - {name: a, model: gpt-4}
      |        ^^^^ in this entry
    "#);
}

#[test]
fn an_unknown_default_model_is_an_error() {
    assert_snapshot!(diagnose(r#"runtime:
  default_model: assistent
  models:
    - {name: assistant, provider: demo}
"#), @r#"
    error: unknown model `assistent`
     --> llamafarm.yaml:5:18
      |
    5 |   default_model: assistent
      |                  ^^^^^^^^^ not in `runtime.models`
      |
    hint: did you mean `assistant`?
    "#);
}

#[test]
fn two_default_models_are_an_error() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: demo, default: true}
    - {name: b, provider: demo, default: true}
"#), @r#"
    error: two models are marked as the default
     --> llamafarm.yaml:7:42
      |
    7 |     - {name: b, provider: demo, default: true}
      |                                          ^^^^ the second one
    "#);
}

#[test]
fn a_number_is_no_name_of_a_model() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai, model: 4}
"#), @r#"
    error: `model` must be a string, not a number
     --> llamafarm.yaml:6:42
      |
    6 |     - {name: a, provider: openai, model: 4}
      |                                          ^ expected a string
      |
    hint: put quotes around it: "4"
    "#);
}

#[test]
fn the_words_of_yaml_1_1_are_no_booleans() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, required: yes}
"#), @r#"
    error: `required` must be true or false, not a string
     --> llamafarm.yaml:6:57
      |
    6 |     - {name: a, transport: stdio, command: x, required: yes}
      |                                                         ^^^ expected true or false
      |
    hint: write `true`
    "#);
}

#[test]
fn a_wrong_length_of_time_is_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, timeout: soon}
    - {name: b, transport: stdio, command: x, timeout: 0}
    - {name: c, transport: stdio, command: x, timeout: 1m, max_timeout: 30s}
"#), @r#"
    error: `timeout` is no length of time: `soon`
     --> llamafarm.yaml:6:56
      |
    6 |     - {name: a, transport: stdio, command: x, timeout: soon}
      |                                                        ^^^^
      |
    hint: write `500ms`, `30s`, `5m` or `1h`; a number alone is seconds; at most 24h

    error: `timeout` is no length of time: `0`
     --> llamafarm.yaml:7:56
      |
    7 |     - {name: b, transport: stdio, command: x, timeout: 0}
      |                                                        ^
      |
    hint: write `500ms`, `30s`, `5m` or `1h`; a number alone is seconds; at most 24h

    error: `max_timeout` is shorter than `timeout`
     --> llamafarm.yaml:8:73
      |
    8 |     - {name: c, transport: stdio, command: x, timeout: 1m, max_timeout: 30s}
      |                                                                         ^^^
      |
    hint: `timeout` bounds the silence between two reports of progress, `max_timeout` the whole call
    "#);
}

#[test]
fn limits_have_limits() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: demo, limits: {rounds: 0, parallel_calls: 1.5, turn_timeout: 2 weeks, round: 3}}
"#), @r#"
    error: `rounds` cannot be 0
     --> llamafarm.yaml:6:50
      |
    6 |     - {name: a, provider: demo, limits: {rounds: 0, parallel_calls: 1.5, turn_timeout: 2 weeks, round: 3}}
      |                                                  ^ expected 1 to 1000

    error: `parallel_calls` must be a whole number, not a number
     --> llamafarm.yaml:6:69
      |
    6 |     - {name: a, provider: demo, limits: {rounds: 0, parallel_calls: 1.5, turn_timeout: 2 weeks, round: 3}}
      |                                                                     ^^^ expected a whole number

    error: `turn_timeout` is no length of time: `2 weeks`
     --> llamafarm.yaml:6:88
      |
    6 |     - {name: a, provider: demo, limits: {rounds: 0, parallel_calls: 1.5, turn_timeout: 2 weeks, round: 3}}
      |                                                                                        ^^^^^^^
      |
    hint: write `500ms`, `30s`, `5m` or `1h`; a number alone is seconds; at most 24h

    error: this limits has an unknown key `round`
     --> llamafarm.yaml:6:97
      |
    6 |     - {name: a, provider: demo, limits: {rounds: 0, parallel_calls: 1.5, turn_timeout: 2 weeks, round: 3}}
      |                                                                                                 ^^^^^ not a key of this entry
      |
    hint: did you mean `rounds`?
    "#);
}

#[test]
fn a_glob_must_be_one() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, tools: {deny: ['[a']}}
"#), @r#"
    error: `[a` is no glob: unclosed character class; missing ']'
     --> llamafarm.yaml:6:62
      |
    6 |     - {name: a, transport: stdio, command: x, tools: {deny: ['[a']}}
      |                                                              ^^^^
    "#);
}

#[test]
fn two_tools_cannot_have_one_new_name() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, tools: {rename: {a: x, b: x, c: 'y z'}}}
"#), @r#"
    error: two tools are renamed to `x`
     --> llamafarm.yaml:6:73
      |
    6 |     - {name: a, transport: stdio, command: x, tools: {rename: {a: x, b: x, c: 'y z'}}}
      |                                                                         ^ the second one

    error: a tool cannot be renamed to `y z`
     --> llamafarm.yaml:6:79
      |
    6 |     - {name: a, transport: stdio, command: x, tools: {rename: {a: x, b: x, c: 'y z'}}}
      |                                                                               ^^^^^ letters, digits, `.`, `_` and `-`, at most 128
    "#);
}

#[test]
fn an_unknown_approval_is_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, approval: never}
    - {name: b, transport: stdio, command: x, approval: {'write_*': asks}}
"#), @r#"
    error: `approval` cannot be `never`
     --> llamafarm.yaml:6:57
      |
    6 |     - {name: a, transport: stdio, command: x, approval: never}
      |                                                         ^^^^^ expected `auto`, `ask`, `deny`

    error: `write_*` cannot be `asks`
     --> llamafarm.yaml:7:69
      |
    7 |     - {name: b, transport: stdio, command: x, approval: {'write_*': asks}}
      |                                                                     ^^^^ expected `auto`, `ask`, `deny`
      |
    hint: did you mean `ask`?
    "#);
}

#[test]
fn asking_for_approval_withholds_with_a_warning() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, approval: ask}
runtime: {models: [{name: m, provider: demo}]}
"#), @r#"
    warning: `approval: ask` is understood but not acted on yet
     --> llamafarm.yaml:6:57
      |
    6 |     - {name: a, transport: stdio, command: x, approval: ask}
      |                                                         ^^^ tools that match are withheld until then
      |
    hint: `auto` runs them without asking
    "#);
}

#[test]
fn a_header_cannot_hold_a_line_break() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - name: a
      transport: http
      base_url: https://x.example/mcp
      headers:
        Authorization: "Bearer x\ny"
        "Bad Name": x
        x-team: a
        X-Team: b
"#), @r#"
    error: the value of header `Authorization` holds a line break or control character
      --> llamafarm.yaml:10:24
       |
    10 |         Authorization: "Bearer ****"
       |                        ^^^^^^^^^^^^^

    error: `Bad Name` cannot be the name of a header
      --> llamafarm.yaml:11:9
       |
    11 |         "Bad Name": *
       |         ^^^^^^^^^^ letters, digits and `-`

    error: the header `X-Team` is given twice
      --> llamafarm.yaml:13:9
       |
    13 |         X-Team: *
       |         ^^^^^^
       |
    hint: case makes no difference in names of headers
    "#);
}

#[test]
fn a_reference_must_be_closed() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai, model: gpt-4, api_key: "${env:KEY"}
"#), @r#"
    error: `${` is never closed
     --> llamafarm.yaml:6:59
      |
    6 |     - {name: a, provider: openai, model: gpt-4, api_key: "${env:KEY"}
      |                                                           ^^^^^^^^^
      |
    hint: a reference looks like `${env:NAME}`; `$${` is a literal `${`
    "#);
}

#[test]
fn a_reference_names_a_variable() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai, model: gpt-4, api_key: "${env:MY KEY}", base_url: "${env:A:-${env:B}}"}
"#), @r#"
    error: `${env:MY KEY}` is no reference to a variable
     --> llamafarm.yaml:6:59
      |
    6 |     - {name: a, provider: openai, model: gpt-4, api_key: "${env:MY KEY}", base_url: "${env:A:-${env:B}}"}
      |                                                           ^^^^^^^^^^^^^
      |
    hint: write `${env:NAME}` or `${env:NAME:-default}`; a default cannot hold a further `${…}`

    error: `base_url` is no URL to connect to: relative URL without a base
     --> llamafarm.yaml:6:85
      |
    6 |     - {name: a, provider: openai, model: gpt-4, api_key: "${env:MY KEY}", base_url: "${env:A:-${env:B}}"}
      |                                                                                     ^^^^^^^^^^^^^^^^^^^^
      |
    hint: a URL looks like `https://host:port/v1`

    error: `${env:A:-${env:B}` is no reference to a variable
     --> llamafarm.yaml:6:86
      |
    6 |     - {name: a, provider: openai, model: gpt-4, api_key: "${env:MY KEY}", base_url: "${env:A:-${env:B}}"}
      |                                                                                      ^^^^^^^^^^^^^^^^^
      |
    hint: write `${env:NAME}` or `${env:NAME:-default}`; a default cannot hold a further `${…}`
    "#);
}

#[test]
fn a_reference_to_a_file_is_not_supported() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai, model: gpt-4, api_key: "${file:.env.local:KEY}"}
"#), @r#"
    error: `${file:…}` references are not supported
     --> llamafarm.yaml:6:59
      |
    6 |     - {name: a, provider: openai, model: gpt-4, api_key: "${file:.env.local:KEY}"}
      |                                                           ^^^^^^^^^^^^^^^^^^^^^^
      |
    hint: put the variable into `.env` beside the file and write `${env:KEY}`
    "#);
}

#[test]
fn an_unquoted_reference_in_a_flow_list_says_quote_it() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - name: a
      transport: stdio
      command: npx
      args: [-y, ${env:PACKAGE}]
"#), @r#"
    error: not valid YAML: while parsing a flow sequence, expected ',' or ']'
     --> llamafarm.yaml:9:18
      |
    9 |       args: [-y, ${env:PACKAGE}]
      |                  ^^^^^^^^^^^^^^
      |
    hint: quote it: '${env:PACKAGE}'
    "#);
}

#[test]
fn an_unquoted_reference_in_a_flow_mapping_says_quote_it() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - name: a
      transport: http
      base_url: https://x.example
      headers: {Authorization: Bearer ${env:TOKEN}}
"#), @r#"
    error: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'
     --> llamafarm.yaml:9:39
      |
    9 |       headers: {Authorization: Bearer ${env:TOKEN}}
      |                                       ^^^^^^^^^^^^
      |
    hint: quote it: '${env:TOKEN}'
    "#);
}

#[test]
fn a_missing_variable_is_a_warning_at_its_place() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - name: a
      transport: http
      base_url: https://x.example/mcp
      headers:
        Authorization: Bearer ${env:TOKEN}
runtime: {models: [{name: m, provider: demo}]}
"#), @r#"
    warning: variable `TOKEN` is not set, so MCP server `a` is not available
      --> llamafarm.yaml:10:31
       |
    10 |         Authorization: Bearer ${env:TOKEN}
       |                               ^^^^^^^^^^^^
       |
    hint: set it, put it into `.env` beside the file, or write `${env:TOKEN:-default}`
    "#);
}

#[test]
fn an_inline_tool_has_four_keys() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - name: a
      provider: demo
      tools:
        - type: function
          name: t
        - {type: function, name: u v, description: d, parameters: {type: object}}
        - {type: funktion, name: w, description: d, parameters: {type: object}}
"#), @r#"
    error: tool `t` has no `description`
     --> llamafarm.yaml:9:11
      |
    9 |         - type: function
      |           ^^^^ in this entry

    error: tool `t` has no `parameters`
     --> llamafarm.yaml:9:11
      |
    9 |         - type: function
      |           ^^^^ in this entry

    error: `name` cannot be `u v`
      --> llamafarm.yaml:11:34
       |
    11 |         - {type: function, name: u v, description: d, parameters: {type: object}}
       |                                  ^^^ expected letters, digits, `.`, `_` and `-`, at most 128

    error: `type` cannot be `funktion`
      --> llamafarm.yaml:12:18
       |
    12 |         - {type: funktion, name: w, description: d, parameters: {type: object}}
       |                  ^^^^^^^^ expected `function`
       |
    hint: did you mean `function`?
    "#);
}

#[test]
fn the_parameters_of_a_tool_are_a_schema_of_an_object() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - name: a
      provider: demo
      tools:
        - {type: function, name: t, description: d, parameters: {type: string}}
        - {type: function, name: t, description: d, parameters: {type: object}}
        - {type: function, name: u, description: d, parameters: {type: object, required: x}}
"#), @r#"
    error: the parameters of tool `t` must be of type `object`
     --> llamafarm.yaml:9:72
      |
    9 |         - {type: function, name: t, description: d, parameters: {type: string}}
      |                                                                        ^^^^^^
      |
    hint: a tool's arguments always have names

    error: model `a` has the tool `t` twice
      --> llamafarm.yaml:10:34
       |
    10 |         - {type: function, name: t, description: d, parameters: {type: object}}
       |                                  ^ the second one

    error: the parameters of tool `u` are no JSON Schema: "x" is not of type "array"
      --> llamafarm.yaml:11:90
       |
    11 |         - {type: function, name: u, description: d, parameters: {type: object, required: x}}
       |                                                                                          ^
    "#);
}

#[test]
fn a_message_needs_a_known_role() {
    assert_snapshot!(diagnose(r#"prompts:
  - name: p
    messages:
      - {role: systm, content: hi}
      - {role: user}
runtime: {models: [{name: m, provider: demo}]}
"#), @r#"
    error: `role` cannot be `systm`
     --> llamafarm.yaml:7:16
      |
    7 |       - {role: systm, content: hi}
      |                ^^^^^ expected `system`, `user`, `assistant`, `tool`, `developer`
      |
    hint: did you mean `system`?

    error: this message has no `content`
     --> llamafarm.yaml:8:10
      |
    8 |       - {role: user}
      |          ^^^^ in this entry
    "#);
}

#[test]
fn a_model_without_an_api_has_no_use_for_a_place_and_a_key() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: replay, model: turn.jsonl}
    - {name: b, provider: replay}
    - {name: c, provider: demo, base_url: http://x.example}
"#), @r#"
    error: model `b` has no `model`
     --> llamafarm.yaml:7:8
      |
    7 |     - {name: b, provider: replay}
      |        ^^^^ in this entry
      |
    hint: `model` names the cassette, relative to this file: `model: turn.jsonl`

    warning: `base_url` has no effect with provider `demo`
     --> llamafarm.yaml:8:43
      |
    8 |     - {name: c, provider: demo, base_url: http://x.example}
      |                                           ^^^^^^^^^^^^^^^^
      |
    hint: leave it out
    "#);
}

#[test]
fn a_revision_of_the_protocol_that_does_not_exist_is_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: https://x.example, protocol: 2025-11-26}
    - {name: b, transport: stdio, command: x, protocol: modern}
    - {name: c, transport: stdio, command: x, protocol: 2026-07-28}
"#), @r#"
    error: `protocol` cannot be `2025-11-26`
     --> llamafarm.yaml:6:73
      |
    6 |     - {name: a, transport: http, base_url: https://x.example, protocol: 2025-11-26}
      |                                                                         ^^^^^^^^^^ expected `2024-11-05`, `2025-03-26`, `2025-06-18`, `2025-11-25`, `2026-07-28`, `auto`, `legacy`, `modern`
      |
    hint: did you mean `2025-11-25`?
    "#);
}

#[test]
fn a_way_to_answer_questions_that_does_not_exist_is_an_error() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: https://x.example, elicitation: accept}
    - {name: b, transport: stdio, command: x, elicitation: defaults}
    - {name: c, transport: stdio, command: x, elicitation: decline}
"#), @r#"
    error: `elicitation` cannot be `accept`
     --> llamafarm.yaml:6:76
      |
    6 |     - {name: a, transport: http, base_url: https://x.example, elicitation: accept}
      |                                                                            ^^^^^^ expected `defaults`, `decline`
    "#);
}

#[test]
fn what_is_not_acted_on_is_a_warning() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: https://x.example, sandbox: default}
runtime:
  models:
    - {name: m, provider: demo, limits: {cost_usd: 2.5}, prompt_format: x, keep_loaded: false}
voice: {}
memory: {}
"#), @"
    warning: `cost_usd` is understood but not acted on yet
     --> llamafarm.yaml:9:42
      |
    9 |     - {name: m, provider: demo, limits: {cost_usd: 2.5}, prompt_format: x, keep_loaded: false}
      |                                          ^^^^^^^^ has no effect

    warning: `prompt_format` is understood but not acted on yet
     --> llamafarm.yaml:9:58
      |
    9 |     - {name: m, provider: demo, limits: {cost_usd: 2.5}, prompt_format: x, keep_loaded: false}
      |                                                          ^^^^^^^^^^^^^ has no effect

    note: kept, but not used by this version: `voice`, `memory`
      --> llamafarm.yaml:10:1
       |
    10 | voice: {}
       | ^^^^^
    ");
}

#[test]
fn a_flat_runtime_is_read_with_a_warning() {
    assert_snapshot!(diagnose(r#"runtime:
  provider: demo
  model: demo
"#), @r#"
    warning: `runtime` describes a model itself; the modern form is a list of models
     --> llamafarm.yaml:5:3
      |
    5 |   provider: demo
      |   ^^^^^^^^
      |
    hint: write `models:`, below it `- name: default`, and the model's keys there
    "#);
}

#[test]
fn a_mapping_of_models_is_read_with_a_warning() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    fast: {provider: demo}
"#), @r#"
    warning: `runtime.models` is a mapping; the modern form is a list
     --> llamafarm.yaml:6:5
      |
    6 |     fast: {provider: demo}
      |     ^^^^
      |
    hint: write `- name: fast` and its keys below
    "#);
}

#[test]
fn a_flat_list_of_messages_is_read_with_a_warning() {
    assert_snapshot!(diagnose(r#"prompts:
  - {role: system, content: hi}
runtime: {models: [{name: m, provider: demo}]}
"#), @r#"
    warning: `prompts` is a list of messages; the modern form is a list of named sets
     --> llamafarm.yaml:5:6
      |
    5 |   - {role: system, content: hi}
      |      ^^^^
      |
    hint: write `- name: default` with `messages:` and put the list below it
    "#);
}

#[test]
fn a_nested_tool_is_read_with_a_warning() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - name: m
      provider: demo
      tools:
        - type: function
          function: {name: t, description: d, parameters: {type: object}}
"#), @r#"
    warning: a tool's keys are nested in `function`; the modern form is flat
      --> llamafarm.yaml:10:11
       |
    10 |           function: {name: t, description: d, parameters: {type: object}}
       |           ^^^^^^^^
       |
    hint: write `name`, `description` and `parameters` beside `type`
    "#);
}

#[test]
fn a_file_without_identity_gets_one_with_a_warning() {
    assert_snapshot!(diagnose_whole(r#"runtime: {models: [{name: m, provider: demo}]}
"#), @r#"
    warning: the file has no `version`, `name`, `namespace`
     --> llamafarm.yaml:1:1
      |
    1 | runtime: {models: [{name: m, provider: demo}]}
      | ^^^^^^^ above this
      |
    hint: read as `version: v1`, `name: farm`, `namespace: default`
    "#);
}

#[test]
fn another_version_is_an_error() {
    assert_snapshot!(diagnose_whole(r#"version: v2
name: my farm
namespace: default
runtime: {models: [{name: m, provider: demo}]}
"#), @r#"
    error: `version` cannot be `v2`
     --> llamafarm.yaml:1:10
      |
    1 | version: v2
      |          ^^ expected `v1`
      |
    hint: did you mean `v1`?

    error: `name` cannot be `my farm`
     --> llamafarm.yaml:2:7
      |
    2 | name: my farm
      |       ^^^^^^^ expected letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 63
    "#);
}

#[test]
fn an_empty_file_is_an_error() {
    assert_snapshot!(diagnose_whole(r#"
# nothing
"#), @r#"
    error: the file is empty
     --> llamafarm.yaml:1:1
      |
    1 |
      | ^
      |
    hint: `lf init` writes one to start from
    "#);
}

#[test]
fn a_text_is_no_project() {
    assert_snapshot!(diagnose_whole(r#"just a text
"#), @r#"
    error: the file must be a mapping with `version`, `name`, `namespace` and `runtime`
     --> llamafarm.yaml:1:1
      |
    1 | just a text
      | ^^^^^^^^^^^
      |
    hint: `lf init` writes one to start from
    "#);
}

#[test]
fn a_list_of_something_is_no_project() {
    assert_snapshot!(diagnose_whole(r#"- a
- b
"#), @r#"
    error: the file is a list, not a mapping
     --> llamafarm.yaml:1:3
      |
    1 | - a
      |   ^
      |
    hint: a project is a mapping with `version`, `name`, `namespace` and `runtime`
    "#);
}

#[test]
fn a_second_document_is_an_error() {
    assert_snapshot!(diagnose(r#"runtime: {models: [{name: m, provider: demo}]}
---
a: b
"#), @r#"
    error: the file holds more than one YAML document
     --> llamafarm.yaml:5:1
      |
    5 | ---
      | ^^^ a second one starts here
    "#);
}

#[test]
fn a_tab_is_no_indentation() {
    assert_snapshot!(diagnose(r#"runtime:
	models: []
"#), @r#"
    error: not valid YAML: tabs disallowed within this context (block indentation)
     --> llamafarm.yaml:5:2
      |
    5 |     models: []
      |     ^
      |
    hint: indent with spaces: YAML does not allow tabs there
    "#);
}

#[test]
fn an_alias_needs_an_anchor() {
    assert_snapshot!(diagnose(r#"runtime: *base
"#), @r#"
    error: the alias `*base` names no anchor above it
     --> llamafarm.yaml:4:10
      |
    4 | runtime: *base
      |          ^^^^^

    error: `runtime` must be a mapping, not a string
     --> llamafarm.yaml:4:10
      |
    4 | runtime: *base
      |          ^^^^^ expected a mapping
    "#);
}

#[test]
fn a_tag_has_no_meaning() {
    assert_snapshot!(diagnose(r#"runtime: !include other.yaml
"#), @r#"
    error: the tag `!include` has no meaning here
     --> llamafarm.yaml:4:19
      |
    4 | runtime: !include other.yaml
      |                   ^^^^^^^^^^

    error: `runtime` must be a mapping, not a string
     --> llamafarm.yaml:4:19
      |
    4 | runtime: !include other.yaml
      |                   ^^^^^^^^^^ expected a mapping
    "#);
}

#[test]
fn control_characters_in_the_file_are_not_shown_raw() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: "a\u001b[31m", transport: stdio, command: x}
"#), @r#"
    error: `name` cannot be `a\u{1b}[31m`
     --> llamafarm.yaml:6:14
      |
    6 |     - {name: "a\u001b[31m", transport: stdio, command: x}
      |              ^^^^^^^^^^^^^ expected letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 63
    "#);
}

#[test]
fn a_model_that_falls_back_to_itself_or_to_nobody_is_an_error() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: demo, api: responses, fallback: [a, c]}
    - {name: b, provider: demo}
"#), @r#"
    warning: `api` has no effect with provider `demo`
     --> llamafarm.yaml:6:38
      |
    6 |     - {name: a, provider: demo, api: responses, fallback: [a, c]}
      |                                      ^^^^^^^^^
      |
    hint: leave it out

    error: model `a` falls back to itself
     --> llamafarm.yaml:6:60
      |
    6 |     - {name: a, provider: demo, api: responses, fallback: [a, c]}
      |                                                            ^
      |
    hint: name other models of this file

    error: unknown model `c`
     --> llamafarm.yaml:6:63
      |
    6 |     - {name: a, provider: demo, api: responses, fallback: [a, c]}
      |                                                               ^ not defined in this file
      |
    hint: did you mean `a`?
    "#);
}

#[test]
fn a_secret_beside_a_mistake_is_not_shown() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, api_key: "sk-secret", provder: openai}
"#), @r#"
    error: model `a` has an unknown key `provder`
     --> llamafarm.yaml:6:39
      |
    6 |     - {name: a, api_key: "*********", provder: openai}
      |                                       ^^^^^^^ not a key of this entry
      |
    hint: did you mean `provider`?
    "#);
}

#[test]
fn a_secret_that_is_the_mistake_is_not_shown() {
    for wrong in [
        "runtime:\n  models:\n    - {name: a, provider: demo, api_key: [sk-secret]}\n",
        "runtime:\n  models:\n    - name: a\n      provider: demo\n      api_key: \"sk-secret\n",
        "runtime:\n  models:\n    - name: a\n      provider: demo\n      api_key: ${sk-secret\n",
        "runtime:\n  models:\n    - name: a\n      provider: demo\n      api_key sk-secret\n",
        "runtime:\n  models:\n    - name: a\n      provider: demo\n      api_key: sk: secret\n",
        "mcp:\n  servers:\n    - {name: a, transport: http, base_url: 'http://x', headers: sk-secret}\n",
        "mcp:\n  servers:\n    - {name: a, transport: http, base_url: 'ftp://ada:secret@x'}\n",
        "mcp:\n  servers:\n    - {name: a, transport: stdio, command: x, args: {--token: secret}}\n",
        "mcp:\n  servers:\n    - {name: a, transport: stdio, command: x, env: [TOKEN=secret]}\n",
        "mcp:\n  servers:\n    - name: a\n      transport: http\n      base_url: http://x\n      headers:\n        X: |\n          a\n          secret\n         b\n",
    ] {
        let told = diagnose(wrong);
        assert!(told.contains("-->") && !told.contains("secret"), "{told}");
    }
}

#[test]
fn mistakes_in_how_access_is_got_are_told_where_they_are() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: https://a.example, auth: {type: oath}}
    - {name: b, transport: http, base_url: https://b.example, auth: {client_id: x}}
    - {name: c, transport: http, base_url: https://c.example, auth: {type: bearer}}
    - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [a]}}
    - {name: e, transport: http, base_url: https://e.example, headers: {authorization: x}, auth: {type: oauth}}
    - name: f
      transport: http
      base_url: https://f.example
      auth:
        type: oauth
        client_secret: hidden-value
        token: other-hidden-value
        token_endpoint_auth_method: private_key_jwt
        scopes: [read write]
        redirect_port: 8400
        redirect_uri: https://f.example/callback
        client_metadata_url: http://f.example
        issuer: f.example
    - {name: g, transport: http, base_url: https://g.example, auth: {type: oauth, redirect_uri: 'http://0.0.0.0/x', private_key: abc}}
    - {name: h, transport: stdio, command: x, auth: {type: oauth}}
"#), @"
    error: `type` cannot be `oath`
     --> llamafarm.yaml:6:76
      |
    6 |     - {name: a, transport: http, base_url: https://a.example, auth: {type: oath}}
      |                                                                            ^^^^ expected `oauth`, `client_credentials`, `bearer`
      |
    hint: did you mean `oauth`?

    error: this auth has no `type`
     --> llamafarm.yaml:7:70
      |
    7 |     - {name: b, transport: http, base_url: https://b.example, auth: {client_id: x}}
      |                                                                      ^^^^^^^^^ in this entry

    error: `auth` has no `token`
     --> llamafarm.yaml:8:70
      |
    8 |     - {name: c, transport: http, base_url: https://c.example, auth: {type: bearer}}
      |                                                                      ^^^^ in this entry
      |
    hint: `type: bearer` sends it: `token: ${env:API_TOKEN}`

    error: `auth` has no `client_id`
     --> llamafarm.yaml:9:70
      |
    9 |     - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [*]}}
      |                                                                      ^^^^ in this entry
      |
    hint: `type: client_credentials` is for a client that is registered

    error: `auth` has no `client_secret`
     --> llamafarm.yaml:9:70
      |
    9 |     - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [*]}}
      |                                                                      ^^^^ in this entry
      |
    hint: give it, or `private_key`: the client proves with it who it is

    error: this auth has an unknown key `scope`
     --> llamafarm.yaml:9:96
      |
    9 |     - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [*]}}
      |                                                                                                ^^^^^ not a key of this entry
      |
    hint: did you mean `scopes`?

    warning: `Authorization` in `headers` is not sent: `auth` gets the token
      --> llamafarm.yaml:10:73
       |
    10 |     - {name: e, transport: http, base_url: https://e.example, headers: {authorization: *}, auth: {type: oauth}}
       |                                                                         ^^^^^^^^^^^^^ has no effect
       |
    hint: keep one of the two

    error: `client_secret` without `client_id` belongs to nobody
      --> llamafarm.yaml:16:9
       |
    16 |         client_secret: ************
       |         ^^^^^^^^^^^^^
       |
    hint: give the `client_id` of the registration too

    warning: `token` has no effect with `type: oauth`
      --> llamafarm.yaml:17:9
       |
    17 |         token: ******************
       |         ^^^^^

    error: this `token_endpoint_auth_method` needs `private_key`
      --> llamafarm.yaml:18:37
       |
    18 |         token_endpoint_auth_method: private_key_jwt
       |                                     ^^^^^^^^^^^^^^^ nothing to prove it with

    error: `read write` cannot be a scope
      --> llamafarm.yaml:19:18
       |
    19 |         scopes: [**********]
       |                  ^^^^^^^^^^
       |
    hint: write them one by one: `scopes: [read, write]`

    error: `redirect_port` and `redirect_uri` are two places to come back to
      --> llamafarm.yaml:20:9
       |
    20 |         redirect_port: 8400
       |         ^^^^^^^^^^^^^
       |
    hint: keep one: the port stands for `http://127.0.0.1:PORT/callback`

    error: `client_metadata_url` is not a URL that can be used here
      --> llamafarm.yaml:22:30
       |
    22 |         client_metadata_url: http://f.example
       |                              ^^^^^^^^^^^^^^^^
       |
    hint: an `https` URL of a document that describes this client

    error: `issuer` is not a URL that can be used here
      --> llamafarm.yaml:23:17
       |
    23 |         issuer: f.example
       |                 ^^^^^^^^^
       |
    hint: an `https` URL, exactly as the authorization server names itself

    error: `redirect_uri` is no place on this machine
      --> llamafarm.yaml:24:97
       |
    24 |     - {name: g, transport: http, base_url: https://g.example, auth: {type: oauth, redirect_uri: 'http://0.0.0.0/x', private_key: ***}}
       |                                                                                                 ^^^^^^^^^^^^^^^^^^
       |
    hint: such as `http://127.0.0.1:8400/callback`: http, without a query

    error: `private_key` is no PEM that begins with `-----BEGIN PRIVATE KEY-----`
      --> llamafarm.yaml:24:130
       |
    24 |     - {name: g, transport: http, base_url: https://g.example, auth: {type: oauth, redirect_uri: 'http://0.0.0.0/x', private_key: ***}}
       |                                                                                                                                  ^^^
       |
    hint: `openssl pkcs8 -topk8 -nocrypt -in KEY.pem` makes one of other keys

    warning: `auth` has no effect with transport `stdio`
      --> llamafarm.yaml:25:47
       |
    25 |     - {name: h, transport: stdio, command: x, auth: {type: oauth}}
       |                                               ^^^^
    ");
}

#[test]
fn every_way_to_get_access_can_be_written_down() {
    assert_snapshot!(diagnose(r#"runtime: {models: [{name: demo, provider: demo}]}
mcp:
  servers:
    - {name: a, transport: http, base_url: https://a.example, auth: {type: bearer, token: '${TOKEN:-abc}'}}
    - {name: b, transport: sse, base_url: https://b.example, auth: {type: oauth}}
    - {name: c, transport: http, base_url: https://c.example, auth: {type: oauth, client_id: me, client_secret: '${SECRET:-x}', redirect_uri: 'http://localhost:3000/callback', issuer: https://id.example/tenant, scopes: [a, 'b:c']}}
    - {name: d, transport: http, base_url: https://d.example, auth: {type: oauth, client_metadata_url: https://x.example/client.json, redirect_port: 8400}}
    - {name: e, transport: http, base_url: https://e.example, auth: {type: client_credentials, client_id: me, client_secret: x, token_endpoint_auth_method: client_secret_post}}
"#), @"");
}
