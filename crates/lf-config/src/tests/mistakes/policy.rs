//! Rules, their conditions, and labels.

use insta::assert_snapshot;
use lf_core::policy::Label;
use lf_core::tool::Approval;

use crate::tests::{diagnose, load_text};

#[test]
fn mistakes_in_rules_are_told_where_they_are() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, labels: [privat]}
    - {name: b, transport: stdio, command: x, labels: {'[': [egress], read: private}}
runtime:
  models: [{name: m, provider: demo}]
policy:
  default: never
  rules:
    - {tools: [x]}
    - {verdict: deny, servers: [c], models: [n]}
    - {verdict: deny, annotations: {readonly: true}}
    - verdict: deny
      when: arg.path == "x"
    - verdict: deny
      when: "args.path.startsWith('/etc/'"
    - verdict: deny
      when: >
        tool.matches("(")
    - {verdict: deny, tools: x, whem: "true"}
"#), @r#"
    error: an entry of `labels` cannot be `privat`
     --> llamafarm.yaml:6:56
      |
    6 |     - {name: a, transport: stdio, command: x, labels: [privat]}
      |                                                        ^^^^^^ expected `private`, `untrusted`, `egress`
      |
    hint: did you mean `private`?

    error: `[` is no glob: unclosed character class; missing ']'
     --> llamafarm.yaml:7:56
      |
    7 |     - {name: b, transport: stdio, command: x, labels: {'[': [egress], read: private}}
      |                                                        ^^^

    error: `read` must be a list, not a string
     --> llamafarm.yaml:7:77
      |
    7 |     - {name: b, transport: stdio, command: x, labels: {'[': [egress], read: private}}
      |                                                                             ^^^^^^^ expected a list
      |
    hint: write `read: [private]`

    error: `default` cannot be `never`
      --> llamafarm.yaml:11:12
       |
    11 |   default: never
       |            ^^^^^ expected `allow`, `ask`, `deny`

    error: this rule has no `verdict`
      --> llamafarm.yaml:13:8
       |
    13 |     - {tools: [x]}
       |        ^^^^^ in this entry

    error: unknown MCP server `c`
      --> llamafarm.yaml:14:33
       |
    14 |     - {verdict: deny, servers: [c], models: [n]}
       |                                 ^ not defined in this file
       |
    hint: did you mean `a`?

    error: unknown model `n`
      --> llamafarm.yaml:14:46
       |
    14 |     - {verdict: deny, servers: [c], models: [n]}
       |                                              ^ not defined in this file
       |
    hint: did you mean `m`?

    error: this annotations has an unknown key `readonly`
      --> llamafarm.yaml:15:37
       |
    15 |     - {verdict: deny, annotations: {readonly: true}}
       |                                     ^^^^^^^^ not a key of this entry
       |
    hint: did you mean `readOnly`?

    error: the condition cannot be used: there is no variable `arg`
      --> llamafarm.yaml:17:13
       |
    17 |       when: arg.path == "x"
       |             ^^^ in this condition
       |
    hint: there are: model, key, server, tool, labels, annotations, args, earlier

    error: the condition cannot be used: missing `)` at its end
      --> llamafarm.yaml:19:41
       |
    19 |       when: "args.path.startsWith('/etc/'"
       |                                         ^ in this condition

    error: the condition cannot be used: the pattern cannot be read: unclosed group
      --> llamafarm.yaml:22:22
       |
    22 |         tool.matches("(")
       |                      ^^^ in this condition

    error: `tools` must be a list, not a string
      --> llamafarm.yaml:23:30
       |
    23 |     - {verdict: deny, tools: x, whem: "true"}
       |                              ^ expected a list
       |
    hint: write `tools: [x]`

    error: this rule has an unknown key `whem`
      --> llamafarm.yaml:23:33
       |
    23 |     - {verdict: deny, tools: x, whem: "true"}
       |                                 ^^^^ not a key of this entry
       |
    hint: did you mean `when`?
    "#);
}

#[test]
fn rules_and_labels_are_read_as_they_stand() {
    let project = load_text(
        r#"mcp:
  servers:
    - {name: a, transport: stdio, command: x, labels: [private]}
    - {name: b, transport: stdio, command: x, labels: {'read_*': [private, untrusted], 'send': [egress]}}
runtime:
  models: [{name: m, provider: demo}]
policy:
  default: ask
  flow: deny
  rules:
    - verdict: deny
      servers: [b, lf]
      annotations: {destructive: true, readOnly: false}
      when: args.n > 3
    - {name: open, verdict: allow, tools: ['read_*'], reason: harmless}
"#,
    )
    .project;
    let policy = &project.policy;
    assert_eq!((policy.default, policy.flow, policy.rules.len()), (Approval::Ask, Approval::Deny, 2));
    let [first, second] = &policy.rules[..] else { panic!("two rules") };
    assert_eq!((first.name.as_str(), first.annotations.len(), first.verdict), ("1", 2, Approval::Deny));
    assert!(first.place.ends_with("llamafarm.yaml:14"), "{}", first.place);
    assert_eq!(first.when.as_ref().map(|when| when.text()), Some("args.n > 3"));
    assert_eq!((second.name.as_str(), second.reason.as_deref()), ("`open`", Some("harmless")));
    let of = |server: &str, name: &str| {
        let tool = lf_core::ToolRef { server: server.into(), name: name.into() };
        policy.labels_of(&tool).iter().map(Label::name).collect::<Vec<_>>()
    };
    assert_eq!(of("a", "x"), ["private"]);
    assert_eq!(of("b", "read_mail"), ["private", "untrusted"]);
    assert_eq!(of("b", "send"), ["egress"]);
    assert!(of("b", "other").is_empty());
}
