use lf_core::message::Arguments;
use lf_core::turn::Ask;
use lf_core::{ToolCall, ToolRef};
use serde_json::Map;

use super::*;

fn ask(id: &str) -> Ask {
    let call = ToolCall {
        id: format!("call_{id}"),
        name: "disk__wipe".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let tool = ToolRef { server: "disk".into(), name: "wipe".into() };
    Ask { id: id.to_owned(), call, tool, why: None, decision: None }
}

fn decision(verdict: Verdict) -> Decision {
    Decision { verdict, by: "Ada".to_owned(), reason: None, who: None }
}

fn verdicts(waiting: &Waiting) -> Vec<Option<Verdict>> {
    waiting.asks.iter().map(|ask| ask.decision.as_ref().map(|decision| decision.verdict)).collect()
}

#[test]
fn a_decision_is_written_where_nothing_was_decided_and_the_first_one_stands() {
    let mut waiting =
        Waiting { calls: Vec::new(), asks: vec![ask("apr_1"), ask("apr_2")], ..Waiting::default() };
    let decide = |waiting: &mut Waiting, id: &str, verdict| {
        take_decisions(Some(waiting), &[(id.to_owned(), decision(verdict))])
    };
    decide(&mut waiting, "apr_2", Verdict::Approved).unwrap();
    assert_eq!(verdicts(&waiting), [None, Some(Verdict::Approved)]);
    decide(&mut waiting, "apr_2", Verdict::Denied).unwrap();
    assert_eq!(verdicts(&waiting), [None, Some(Verdict::Approved)]);
}

#[test]
fn a_decision_about_nothing_that_waits_or_too_late_is_refused_with_its_id() {
    let yes = [("apr_1".to_owned(), decision(Verdict::Approved))];
    let mut expired = Waiting { calls: Vec::new(), asks: vec![ask("apr_1")], ..Waiting::default() };
    approvals::expire(&mut expired);
    let mut other = Waiting { calls: Vec::new(), asks: vec![ask("apr_2")], ..Waiting::default() };
    for waiting in [None, Some(&mut expired), Some(&mut other)] {
        let refused = take_decisions(waiting, &yes).unwrap_err();
        assert!(refused.to_string().contains("no call waits for approval `apr_1`"), "{refused}");
    }
    assert!(take_decisions(None, &[]).is_ok());
}
