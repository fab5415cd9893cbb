//! The file as a whole: its keys, its sections, YAML itself.

use insta::assert_snapshot;

use crate::tests::{diagnose, diagnose_whole};

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
fn what_is_not_acted_on_is_a_warning() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: https://x.example}
runtime:
  models:
    - {name: m, provider: demo, prompt_format: x, keep_loaded: false}
voice: {}
memory: {}
"#), @"
    warning: `prompt_format` is understood but not acted on yet
     --> llamafarm.yaml:9:33
      |
    9 |     - {name: m, provider: demo, prompt_format: x, keep_loaded: false}
      |                                 ^^^^^^^^^^^^^ has no effect

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
