use lf_core::ToolRef;
use lf_core::policy::Labels;
use lf_core::tool::Hints;
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
    Ask { id: id.to_owned(), call, tool, why: None, decision: None }
}

fn about(project: &str) -> About {
    About { owner: String::new(), project: project.to_owned(), model: None, turn: None, conversation: None }
}

fn yes() -> Decision {
    Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None }
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
    let waiting = Waiting {
        calls: vec![ask("apr_1").call],
        asks: vec![ask("apr_1"), ask("apr_2")],
        ..Waiting::default()
    };
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
    let taken = approvals.take(&quicker).expect("it is there");
    assert_eq!(taken.asks.iter().filter(|ask| ask.decision.is_some()).count(), 1, "with what was decided");
    assert_eq!(approvals.take(&left), None, "nothing runs twice");
    assert!(approvals.left("apr_1", "a/b", &Principal::owner()).is_none() && approvals.pending().is_empty());
}

struct Says(Approval);

impl Check for Says {
    fn check(&self, _: &Asked<'_>, _: std::time::Instant) -> Judgement {
        Judgement { verdict: self.0, why: "so".to_owned() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_no_turn_waits_for_a_yes_and_silence_is_a_no() {
    let approvals = CallApprovals::new();
    let tool = ask("x").tool;
    let arguments = json!({"a": 1}).as_object().cloned().expect("an object");
    let facts = || Facts::alone(tool.clone(), Hints::default(), Labels::default());
    let about = || About {
        owner: "owner".to_owned(),
        project: "a/b".to_owned(),
        model: None,
        turn: None,
        conversation: None,
    };
    let says = [Approval::Auto, Approval::Ask, Approval::Deny].map(Says);
    let run = |approval: Approval| {
        let says = says.iter().find(|says| says.0 == approval).expect("one of them");
        approvals.may_run(says, (facts(), &arguments), about())
    };
    assert!(run(Approval::Auto).await.is_ok_and(|facts| !facts.is_approved));
    let Err(No::Said(text)) = run(Approval::Deny).await else { panic!() };
    assert!(text.contains("was not run: so"), "{text}");
    let Err(No::Said(text)) = run(Approval::Ask).await else { panic!() };
    assert!(text.contains("nobody approved this call in time"), "{text}");
    let (may, outcome) = tokio::join!(run(Approval::Ask), async {
        tokio::task::yield_now().await;
        let id = approvals.pending()[0].ask.id.clone();
        approvals.decide(&id, yes()).await
    });
    assert!(may.is_ok_and(|facts| facts.is_approved) && outcome == Outcome::Taken);
}

/// Asks, and notes what is put on record.
#[derive(Default)]
struct Noting(Mutex<Vec<String>>);

impl Check for Noting {
    fn check(&self, _: &Asked<'_>, _: std::time::Instant) -> Judgement {
        Judgement { verdict: Approval::Ask, why: String::new() }
    }

    fn record(&self, _: &Told<'_>, became: &Became<'_>) {
        let Became::Decided(decision) = became else { panic!("nothing ran") };
        let told = format!("{} {}", decision.verdict.name(), decision.reason.as_deref().unwrap_or_default());
        self.0.lock().expect("a lock").push(told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_any_more_is_on_record() {
    let approvals = CallApprovals::new();
    let arguments = Map::new();
    for (leaves, told) in [(true, "expired who asked for the call did not wait"), (false, "expired ")] {
        let noting = Noting::default();
        let facts = Facts::alone(ask("x").tool, Hints::default(), Labels::default());
        let wait = if leaves { Duration::from_secs(1) } else { 2 * ALONE };
        let may = approvals.may_run(&noting, (facts, &arguments), about("a/b"));
        assert_eq!(tokio::time::timeout(wait, may).await.is_err(), leaves);
        assert_eq!(*noting.0.lock().expect("a lock"), [told]);
    }
}

#[tokio::test(start_paused = true)]
async fn all_asks_of_a_round_may_be_decided_at_once() {
    let approvals = CallApprovals::new();
    let asks: Vec<Ask> = (0..50).map(|at| ask(&format!("apr_{at}"))).collect();
    let mut opened = approvals.open(asks.iter(), &about("a/b"), ALONE);
    let decided = asks.iter().map(|ask| approvals.decide(&ask.id, yes()));
    let decided = futures_util::future::join_all(decided);
    let taking = async {
        for _ in &asks {
            opened.next().await.kept();
        }
    };
    let (outcomes, ()) = tokio::join!(decided, taking);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Taken), "{outcomes:?}");
}

#[tokio::test]
async fn what_a_later_turn_has_taken_is_not_decided_behind_its_back() {
    let approvals = CallApprovals::new();
    let waiting = Waiting { calls: vec![ask("apr_1").call], asks: vec![ask("apr_1")], ..Waiting::default() };
    approvals.leave(waiting, about("a/b"));
    let left = approvals.left("apr_1", "a/b", &Principal::owner()).expect("it waits");
    assert!(approvals.take(&left).is_some());
    // as if it had been looked up before it was taken
    approvals.left.insert("apr_1".to_owned(), left);
    assert_eq!(approvals.decide("apr_1", yes()).await, Outcome::Unknown);
}

#[test]
fn who_is_told_of_long_arguments_is_told_that_there_is_more() {
    let mut ask = ask("apr_1");
    ask.call.arguments = Arguments::parse(format!(r#"{{"note": "{}", "path": "/etc"}}"#, "x".repeat(600)));
    let told = words([ask].iter());
    assert!(told.contains("characters more)") && told.contains("GET /v1/approvals/"), "{told}");
}
