//! Assembling costs the same for each byte, however long an answer is.

use std::time::Duration;

use lf_core::{FinishReason, Usage};
use nix::time::ClockId;
use serde_json::json;

use super::scripts::{DIALECTS, Said, Script, rendered};
use super::*;

const SHORT: usize = 4_000;
const LONG: usize = 16 * SHORT;
/// Bytes of a fragment: about three tokens.
const FRAGMENT: usize = 12;

/// For which this thread had a processor: how busy the machine is otherwise does not count.
fn own_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}

/// Nanoseconds of a processor for each byte of a call's arguments.
fn cost(dialect: Dialect, size: usize) -> f64 {
    let arguments = json!({"path": "notes.md", "text": "a \"b\"\n".repeat(size / 8)});
    let cuts = (0..size).step_by(FRAGMENT).collect();
    let script = Script {
        said: vec![Said::Call(arguments, cuts)],
        reason: FinishReason::Stop,
        usage: Usage::default(),
    };
    let text = rendered(dialect, &script).0.concat();
    let started = own_time();
    let told = told(dialect, &text.as_bytes().chunks(1400).collect::<Vec<_>>());
    let elapsed = (own_time() - started).as_nanos() as f64;
    assert!(told.iter().any(|(kind, _)| *kind == "call"), "{dialect:?}");
    elapsed / size as f64
}

#[test]
fn long_arguments_cost_the_same_for_each_byte() {
    for dialect in DIALECTS {
        // 16 where each fragment reads again what came before it; what else runs may have taken the caches from one
        let steep = (0..4).all(|_| cost(dialect, LONG) > 5.0 * cost(dialect, SHORT));
        assert!(!steep, "{dialect:?}");
    }
}
