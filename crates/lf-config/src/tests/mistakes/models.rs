//! Models, prompts and inline tools.

use insta::assert_snapshot;

use crate::tests::diagnose;

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
