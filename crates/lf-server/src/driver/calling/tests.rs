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
    is_forbidden: AtomicBool,
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
                self.is_forbidden.store(true, Ordering::SeqCst);
            }
        })
    }

    fn call<'a>(
        &'a self,
        _: &'a lf_core::ToolRef,
        _: &'a Map<String, serde_json::Value>,
        attendant: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.is_forbidden.fetch_or(self.is_lost, Ordering::SeqCst);
        if let Err(reason) = attendant.may_send() {
            let (server, tool) = ("disk".to_owned(), "wipe".to_owned());
            return Box::pin(std::future::ready(Err(ToolError::Denied { server, tool, reason })));
        }
        self.called.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(ToolOutput::default())))
    }
}

impl Check for Starting {
    fn check(&self, _: &Asked<'_>, _: Instant) -> Judgement {
        match self.is_forbidden.load(Ordering::SeqCst) {
            true => Judgement { verdict: Approval::Deny, why: "not any more".to_owned() },
            false => Judgement::runs(),
        }
    }
}

#[tokio::test]
async fn a_rule_that_comes_while_the_server_starts_holds() {
    for (takes_time, is_lost, calls) in [(false, false, 1), (true, false, 0), (false, true, 0)] {
        let source = Starting { takes_time, is_lost, ..Starting::default() };
        let tool = lf_core::ToolRef { server: "disk".into(), name: "wipe".into() };
        let facts = Facts::alone(tool, Hints::default(), Labels::default());
        let asked = Asked { model: None, facts: &facts, arguments: &Map::new() };
        let told: &dyn Attendant = &|_: ToolProgress| {};
        let Came { outcome, .. } = execute_tool(&source, &source, &asked, "c1", told).await;
        assert_eq!(source.called.load(Ordering::SeqCst), calls);
        match outcome {
            Ok(_) => assert_eq!(calls, 1),
            Err(error) => assert!(error.to_string().contains("not any more"), "{error}"),
        }
    }
}
