use globset::Glob;
use serde_json::json;

use super::*;

fn rules(lines: &[(&str, Approval)]) -> Vec<ApprovalRule> {
    let of = |pattern: &str| match Hint::ALL.into_iter().find(|hint| hint.name() == pattern) {
        Some(hint) => ApprovalOf::Hint(hint),
        None => ApprovalOf::Tools(Glob::new(pattern).expect("a glob").compile_matcher()),
    };
    lines.iter().map(|(pattern, approval)| ApprovalRule { of: of(pattern), approval: *approval }).collect()
}

fn hints(annotations: &serde_json::Value) -> Hints {
    Hints::of(&json!({"annotations": annotations}))
}

#[test]
fn the_closest_rule_counts_in_any_order() {
    let mut lines = [
        ("*", Approval::Deny),
        ("destructiveHint", Approval::Ask),
        ("write_*", Approval::Auto),
        ("write_secret*", Approval::Ask),
        ("write_secrets_now", Approval::Auto),
    ];
    let reads = hints(&json!({"readOnlyHint": true}));
    for _ in 0..lines.len() {
        lines.rotate_left(1);
        let rules = rules(&lines);
        let of = |tool: &str, hints| decide(&rules, tool, hints);
        assert_eq!(of("read", reads), Approval::Deny);
        assert_eq!(of("drop", hints(&json!({}))), Approval::Ask);
        assert_eq!(of("write_file", hints(&json!({}))), Approval::Auto);
        assert_eq!(of("write_secret_file", reads), Approval::Ask);
        assert_eq!(of("write_secrets_now", reads), Approval::Auto);
    }
}

#[test]
fn of_equally_close_rules_the_strictest_counts() {
    let rules = rules(&[("a*", Approval::Ask), ("*b", Approval::Auto), ("openWorldHint", Approval::Deny)]);
    assert_eq!(decide(&rules, "ab", hints(&json!({}))), Approval::Ask);
    assert_eq!(decide(&rules, "c", hints(&json!({}))), Approval::Deny);
    assert_eq!(decide(&rules, "c", hints(&json!({"openWorldHint": false}))), Approval::Auto);
}

#[test]
fn a_tool_that_says_nothing_is_destructive_and_reaches_out() {
    let silent = Hints::of(&json!({"name": "x"}));
    assert_eq!(silent, Hints { read_only: false, destructive: true, idempotent: false, open_world: true });
    let reads = hints(&json!({"readOnlyHint": true, "destructiveHint": true}));
    assert!(!reads.destructive && reads.repeatable());
    assert!(!hints(&json!({"idempotentHint": "yes"})).repeatable());
}
