//! MCP servers: which there are and where.

use insta::assert_snapshot;

use crate::tests::diagnose;

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
    error: `base_url` is no URL to connect to: its scheme is neither `http` nor `https`
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
