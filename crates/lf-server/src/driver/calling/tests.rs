use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use lf_core::policy::{Judgement, Labels};
use lf_core::tool::{Approval, BoxFuture, Catalogue, Hints, ToolProgress};
use serde_json::Map;

use super::*;

/// A server that has to be started first, and rules that forbid its tools meanwhile.
#[derive(Default)]
struct Starting {
    takes_time: bool,
    /// The connection ends before the call is sent, and is made anew.
    is_lost: bool,
    hangs: bool,
    /// Where calls go once the server has started.
    moves: Option<ProjectTools>,
    recorded: Mutex<Vec<&'static str>>,
    is_forbidden: AtomicBool,
    has_started: AtomicBool,
    called: AtomicUsize,
}

impl ToolSource for Starting {
    fn list<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, Catalogue> {
        Box::pin(std::future::ready(Catalogue::default()))
    }

    fn ready<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.takes_time {
                tokio::task::yield_now().await;
                self.is_forbidden.store(self.moves.is_none(), Ordering::SeqCst);
                self.has_started.store(true, Ordering::SeqCst);
            }
        })
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolRef,
        _: &'a Map<String, Value>,
        attendant: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.is_forbidden.fetch_or(self.is_lost, Ordering::SeqCst);
        if let Err(reason) = attendant.may_send() {
            let (server, tool) = ("disk".to_owned(), "wipe".to_owned());
            return Box::pin(std::future::ready(Err(ToolError::Denied { server, tool, reason })));
        }
        self.called.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match self.hangs {
                true => std::future::pending().await,
                false => Ok(ToolOutput::default()),
            }
        })
    }
}

impl Check for Starting {
    fn check(&self, _: &Asked<'_>, _: Instant) -> Judgement {
        match self.is_forbidden.load(Ordering::SeqCst) {
            true => Judgement { verdict: Approval::Deny, why: "not any more".to_owned() },
            false => Judgement::runs(),
        }
    }

    fn moved(&self, _: &str) -> Option<ProjectTools> {
        let is_moved = self.has_started.load(Ordering::SeqCst);
        self.moves.as_ref().filter(|_| is_moved).cloned()
    }

    fn record(&self, _: &Told<'_>, became: &Became<'_>) {
        self.recorded.lock().unwrap().push(match became {
            Became::Ran { outcome, .. } => *outcome,
            Became::Denied(_) => "denied",
            Became::Decided(_) => "decided",
        });
    }
}

async fn executed(source: &Starting) -> Result<ToolOutput, ToolError> {
    let tool = ToolRef { server: "disk".into(), name: "wipe".into() };
    let facts = Facts::alone(tool, Hints::default(), Labels::default());
    let asked = Asked { model: None, facts: &facts, arguments: &Map::new() };
    let told: &dyn Attendant = &|_: ToolProgress| {};
    execute_tool(source, source, &asked, "c1", told).await.outcome
}

#[tokio::test]
async fn a_rule_that_comes_while_the_server_starts_holds() {
    for (takes_time, is_lost, calls) in [(false, false, 1), (true, false, 0), (false, true, 0)] {
        let source = Starting { takes_time, is_lost, ..Starting::default() };
        let outcome = executed(&source).await;
        assert_eq!(source.called.load(Ordering::SeqCst), calls);
        match outcome {
            Ok(_) => assert_eq!(calls, 1),
            Err(error) => assert!(error.to_string().contains("not any more"), "{error}"),
        }
    }
}

/// What left the file is not called any more, and so not started again either.
#[tokio::test]
async fn a_call_goes_where_the_file_says_once_its_server_has_started() {
    let pool = lf_mcp::SessionPool::new(lf_mcp::PoolOptions::new(Vec::new(), "lf".into()));
    let gone = lf_core::project::Disabled { reason: "moved away".to_owned() };
    let moved = pool.tools([("disk".to_owned(), Err(gone))]);
    let source = Starting { takes_time: true, moves: Some(moved), ..Starting::default() };
    let error = executed(&source).await.unwrap_err();
    assert!(error.to_string().contains("moved away"), "{error}");
    assert_eq!(source.called.load(Ordering::SeqCst), 0);
    assert_eq!(*source.recorded.lock().unwrap(), ["down"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_runs_is_on_record_once() {
    for (hangs, outcome) in [(true, "cancelled"), (false, "ok")] {
        let source = Starting { hangs, ..Starting::default() };
        let ended = tokio::time::timeout(Duration::from_secs(1), executed(&source)).await;
        assert_eq!(ended.is_err(), hangs);
        assert_eq!(*source.recorded.lock().unwrap(), [outcome]);
    }
}
