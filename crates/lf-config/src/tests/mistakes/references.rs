//! References to variables, and secrets beside a mistake.

use insta::assert_snapshot;

use crate::tests::diagnose;

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
