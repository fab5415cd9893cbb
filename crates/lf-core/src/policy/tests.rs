use globset::Glob;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn globs(patterns: &[&str]) -> Option<Vec<GlobMatcher>> {
    Some(patterns.iter().map(|pattern| Glob::new(pattern).unwrap().compile_matcher()).collect())
}

fn tool(server: &str, name: &str) -> ToolRef {
    ToolRef { server: server.into(), name: name.into() }
}

struct Ask {
    model: Option<&'static str>,
    key: Option<&'static str>,
    tool: ToolRef,
    hints: Hints,
    labels: Labels,
    arguments: Map<String, Value>,
    seen: Labels,
}

fn ask() -> Ask {
    Ask {
        model: Some("assistant"),
        key: None,
        tool: tool("disk", "wipe"),
        hints: Hints::default(),
        labels: Labels::default(),
        arguments: Map::new(),
        seen: Labels::default(),
    }
}

impl Ask {
    fn of(&self, policy: &Policy) -> Judgement {
        let case = Case {
            model: self.model,
            key: self.key,
            tool: &self.tool,
            hints: self.hints,
            labels: self.labels,
            arguments: &self.arguments,
            earlier: &[],
            seen: self.seen,
        };
        policy.judge(&case, deadline())
    }
}

fn policy(rules: Vec<Rule>) -> Policy {
    Policy { rules, ..Policy::default() }
}

#[test]
fn labels_of_now_count_for_what_came_before_where_something_came_back() {
    let tool = |name: &str| ToolRef { server: "mail".into(), name: name.into() };
    let call = |name: &str, is_silent: bool| Earlier {
        tool: tool(name),
        labels: Labels::default(),
        arguments: Arc::default(),
        is_done: true,
        has_failed: false,
        is_silent,
    };
    let private: Labels = [Label::Private].into_iter().collect();
    let untrusted: Labels = [Label::Untrusted].into_iter().collect();
    let glob = |text: &str| Glob::new(text).expect("a glob").compile_matcher();
    let labels = vec![(glob("read"), private), (glob("search"), untrusted)];
    let policy = Policy { labels: [("mail".to_owned(), labels)].into_iter().collect(), ..Policy::default() };
    let earlier = [call("read", false), call("search", true)];
    let (now, seen) = policy.relabelled(&earlier, Labels::default());
    assert_eq!(seen, private, "a call without an answer brings nothing in");
    assert_eq!([now[0].labels, now[1].labels], [private, untrusted]);
    let (same, seen) = Policy::default().relabelled(&earlier, untrusted);
    assert_eq!((seen, same[0].labels), (untrusted, Labels::default()));
}

#[test]
fn the_strictest_rule_counts_wherever_it_stands() {
    let rules = |verdicts: &[Approval]| {
        let rules = verdicts.iter().enumerate().map(|(at, verdict)| Rule::new(format!("{at}"), *verdict));
        policy(rules.collect())
    };
    use Approval::{Ask as A, Auto, Deny as D};
    for (verdicts, expected) in
        [(&[Auto, D, A][..], D), (&[A, Auto], A), (&[D, Auto], D), (&[Auto, Auto], Auto), (&[], Auto)]
    {
        assert_eq!(ask().of(&rules(verdicts)).verdict, expected, "{verdicts:?}");
    }
}

#[test]
fn where_no_rule_speaks_the_default_does_and_a_rule_can_open_it() {
    let allows = Rule { tools: globs(&["look"]), ..Rule::new("look", Approval::Auto) };
    for default in [Approval::Ask, Approval::Deny] {
        let policy = Policy { default, ..policy(vec![allows.clone()]) };
        let judged = ask().of(&policy);
        assert_eq!(judged.verdict, default);
        assert!(judged.why.contains("no rule of the policy allows it"), "{}", judged.why);
        assert_eq!(Ask { tool: tool("disk", "look"), ..ask() }.of(&policy), Judgement::runs());
    }
}

#[test]
fn all_that_a_rule_names_must_be_so() {
    let rule = || Rule::new("r", Approval::Deny);
    let destroys = vec![(Hint::Destructive, true), (Hint::ReadOnly, false)];
    let egress: Labels = [Label::Egress].into_iter().collect();
    for (rule, speaks) in [
        (rule(), true),
        (Rule { models: globs(&["assist*"]), ..rule() }, true),
        (Rule { models: globs(&["other"]), ..rule() }, false),
        (Rule { keys: globs(&["*"]), ..rule() }, false),
        (Rule { servers: globs(&["d?sk"]), tools: globs(&["look", "wi*"]), ..rule() }, true),
        (Rule { servers: globs(&["disk"]), tools: globs(&["look"]), ..rule() }, false),
        (Rule { tools: Some(Vec::new()), ..rule() }, false),
        (Rule { annotations: destroys, ..rule() }, true),
        (Rule { annotations: vec![(Hint::ReadOnly, true)], ..rule() }, false),
        (Rule { labels: egress, ..rule() }, false),
    ] {
        let judged = ask().of(&policy(vec![rule.clone()]));
        assert_eq!(judged.verdict == Approval::Deny, speaks, "{rule:?}");
    }
    let of_keys = policy(vec![Rule { keys: globs(&["ci-*"]), ..rule() }]);
    assert_eq!(Ask { key: Some("ci-1"), ..ask() }.of(&of_keys).verdict, Approval::Deny);
    let of_models = policy(vec![Rule { models: globs(&["*"]), ..rule() }]);
    assert_eq!(Ask { model: None, ..ask() }.of(&of_models).verdict, Approval::Auto, "a client is no model");
}

#[test]
fn an_undecided_rule_is_as_strict_as_it_can_be_and_one_that_allows_allows_nothing() {
    let when = || Condition::compile("args.path == 'x'").ok();
    for verdict in [Approval::Ask, Approval::Deny] {
        let judged = ask().of(&policy(vec![Rule { when: when(), ..Rule::new("r", verdict) }]));
        assert_eq!(judged.verdict, verdict);
        assert!(judged.why.contains("could not be decided"), "{}", judged.why);
    }
    let allows = Rule { when: when(), ..Rule::new("r", Approval::Auto) };
    let policy = Policy { default: Approval::Deny, ..policy(vec![allows]) };
    assert_eq!(ask().of(&policy).verdict, Approval::Deny);
    let arguments = json!({"path": "x"}).as_object().unwrap().clone();
    assert_eq!(Ask { arguments, ..ask() }.of(&policy).verdict, Approval::Auto);
}

fn labels(bits: u8) -> Labels {
    Label::ALL.into_iter().filter(|label| bits & label.bit() != 0).collect()
}

proptest! {
    #[test]
    fn what_was_private_and_what_was_untrusted_together_hold_back_what_can_leave(seen in 0u8..8, own in 0u8..8) {
        for flow in [Approval::Auto, Approval::Ask, Approval::Deny] {
            let policy = Policy { flow, ..Policy::default() };
            let judged = Ask { seen: labels(seen), labels: labels(own), ..ask() }.of(&policy);
            let leaks = seen & 3 == 3 && own & 4 == 4;
            prop_assert_eq!(judged.verdict, if leaks { flow } else { Approval::Auto });
        }
    }

    #[test]
    fn a_rule_more_never_makes_a_call_milder(verdicts in prop::collection::vec(0usize..3, 0..6), more in 1usize..3) {
        let words = [Approval::Auto, Approval::Ask, Approval::Deny];
        let rules: Vec<Rule> = verdicts.iter().map(|at| Rule::new("r", words[*at])).collect();
        let before = ask().of(&policy(rules.clone())).verdict;
        let after = ask().of(&policy(rules.into_iter().chain([Rule::new("m", words[more])]).collect())).verdict;
        prop_assert!(after >= before);
    }

    #[test]
    fn a_set_of_labels_is_read_as_it_is_written(bits in 0u8..8) {
        let text = serde_json::to_string(&labels(bits)).unwrap();
        prop_assert_eq!(serde_json::from_str::<Labels>(&text).unwrap(), labels(bits), "{}", text);
    }
}

#[test]
fn labels_of_all_matching_globs_count() {
    let of = |pattern: &str, labels: Labels| (Glob::new(pattern).unwrap().compile_matcher(), labels);
    let rules = vec![of("read_*", labels(1)), of("*_mail", labels(2))];
    let policy = Policy { labels: IndexMap::from([("mail".to_owned(), rules)]), ..Policy::default() };
    assert_eq!(policy.labels_of(&tool("mail", "read_mail")), labels(3));
    assert_eq!(policy.labels_of(&tool("mail", "send_mail")), labels(2));
    assert!(policy.labels_of(&tool("other", "read_mail")).is_empty());
    assert!(!policy.is_empty());
}
