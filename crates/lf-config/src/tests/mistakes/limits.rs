//! How an MCP server is used: its limits, tools and headers.

use insta::assert_snapshot;

use crate::tests::diagnose;

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
fn a_limit_of_money_needs_the_prices_that_it_is_held_by() {
    assert_snapshot!(diagnose(r#"runtime:
  models:
    - {name: a, provider: openai, model: x, api_key: k, limits: {cost_usd: 2}}
    - {name: b, provider: openai, model: x, api_key: k, limits: {cost_usd: 2}, price: {input_per_million: 1, output_per_million: 2}, fallback: [c]}
    - {name: c, provider: openai, model: y, api_key: k}
    - {name: d, provider: demo, limits: {cost_usd: 2}}
quota: {cost_per_day_usd: 5}
"#), @"
    error: `cost_usd` cannot be held: nobody knows what model `a` costs
     --> llamafarm.yaml:6:76
      |
    6 |     - {name: a, provider: openai, model: x, api_key: *, limits: {cost_usd: 2}}
      |                                                                            ^
      |
    hint: give the model its `price: {input_per_million: …, output_per_million: …}`, in US dollars

    error: `cost_usd` cannot be held: nobody knows what model `c` costs
     --> llamafarm.yaml:7:145
      |
    7 | ...rice: {input_per_million: 1, output_per_million: 2}, fallback: [c]}
      |                                                                    ^
      |
    hint: give the model its `price: {input_per_million: …, output_per_million: …}`, in US dollars

    error: `cost_per_day_usd` cannot be held: nobody knows what model `a` costs
      --> llamafarm.yaml:10:27
       |
    10 | quota: {cost_per_day_usd: 5}
       |                           ^
       |
    hint: give the model its `price: {input_per_million: …, output_per_million: …}`, in US dollars
    ");
}
