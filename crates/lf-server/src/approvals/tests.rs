use serde_json::json;

use super::*;

fn ask(id: &str) -> Ask {
    let call = ToolCall {
        id: format!("call_{id}"),
        name: "disk__write".to_owned(),
        arguments: Arguments::parse(r#"{"path": "/a\u001b[2J"}"#),
        rest: Map::new(),
    };
    let tool = ToolRef { server: "disk".into(), name: "write".into() };
    Ask { id: id.to_owned(), call, tool, decision: None }
}

fn about(project: &str) -> About {
    About { owner: String::new(), project: project.to_owned(), model: None, turn: None, conversation: None }
}

fn yes() -> Decision {
    Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_taken_once_it_is_kept_and_only_then() {
    let approvals = CallApprovals::new();
    let mut opened = approvals.open([ask("apr_1")].iter(), &about("a/b"), ALONE);
    let (outcome, ()) = tokio::join!(approvals.decide("apr_1", yes()), async {
        opened.next().await.kept();
    });
    assert_eq!(outcome, Outcome::Taken);
    let (outcome, ()) = tokio::join!(approvals.decide("apr_1", yes()), async {
        drop(opened.next().await);
    });
    assert_eq!(outcome, Outcome::Unknown, "who waited did not take it");
    let (outcome, _held) = tokio::join!(approvals.decide("apr_1", yes()), opened.next());
    assert_eq!(outcome, Outcome::Unkept);
    drop(opened);
    assert_eq!(approvals.decide("apr_1", yes()).await, Outcome::Unknown);
    assert!(approvals.pending().is_empty());
}

#[tokio::test]
async fn what_a_turn_left_is_named_in_its_words_and_taken_once_and_only_in_its_project() {
    let approvals = CallApprovals::new();
    let waiting = Waiting { calls: vec![ask("apr_1").call], asks: vec![ask("apr_1"), ask("apr_2")] };
    approvals.leave(waiting, about("a/b"));
    let told = words([ask("apr_1"), ask("apr_2")].iter());
    assert!(told.contains("approval `apr_1`") && !told.contains('\u{1b}'), "{told}");
    let said = lf_core::AssistantMessage { content: told.as_str().into(), ..Default::default() };
    let said = [Message::Assistant(said)];
    assert_eq!(named_in(&said), ["apr_1", "apr_2"]);
    assert!(approvals.left("apr_1", "a/other", &Principal::owner()).is_none());
    assert_eq!(approvals.decide("apr_2", yes()).await, Outcome::Taken);
    assert_eq!(approvals.decide("apr_2", yes()).await, Outcome::Unknown, "a decision stands");
    let pending: Vec<String> = approvals.pending().into_iter().map(|pending| pending.ask.id).collect();
    assert_eq!(pending, ["apr_1"]);
    let left = approvals.left("apr_1", "a/b", &Principal::owner()).expect("it waits");
    let decisions: Vec<bool> = left.waiting().asks.iter().map(|ask| ask.decision.is_some()).collect();
    assert_eq!(decisions, [false, true]);
    let quicker = approvals.left("apr_2", "a/b", &Principal::owner()).expect("it waits");
    assert_eq!([approvals.take(&quicker), approvals.take(&left)], [true, false], "nothing runs twice");
    assert!(approvals.left("apr_1", "a/b", &Principal::owner()).is_none() && approvals.pending().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_of_no_turn_waits_for_a_yes_and_silence_is_a_no() {
    let approvals = CallApprovals::new();
    let tool = ask("x").tool;
    let arguments = json!({"a": 1}).as_object().cloned().expect("an object");
    let owner = Principal::owner();
    let run = |approval| approvals.may_run(approval, &tool, &arguments, (&owner, "a/b".to_owned()));
    assert!(run(Approval::Auto).await.is_ok());
    assert!(matches!(run(Approval::Deny).await, Err(No::Tool)));
    let Err(No::Said(text)) = run(Approval::Ask).await else { panic!() };
    assert!(text.contains("nobody approved this call in time"), "{text}");
    let (may, outcome) = tokio::join!(run(Approval::Ask), async {
        tokio::task::yield_now().await;
        let id = approvals.pending()[0].ask.id.clone();
        approvals.decide(&id, yes()).await
    });
    assert!(may.is_ok() && outcome == Outcome::Taken);
}
