use super::*;

async fn storm(every: Duration, signals: &Signals) -> Infallible {
    loop {
        signals.tools_changed();
        sleep(every).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_is_listed_every_two_seconds() {
    let signals = Signals::default();
    let started = Instant::now();
    tokio::select! {
        never = storm(Duration::from_millis(1), &signals) => match never {},
        () = async {
            for _ in 0..5 {
                settled(&signals).await;
            }
        } => {}
    }
    let elapsed = started.elapsed();
    assert!(elapsed >= 5 * LONGEST && elapsed < 5 * LONGEST + QUIET, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_change_is_listed_after_a_short_quiet() {
    let signals = Signals::default();
    signals.tools_changed();
    let started = Instant::now();
    settled(&signals).await;
    assert_eq!(started.elapsed(), QUIET);
    assert!(timeout(LONGEST_PAUSE, settled(&signals)).await.is_err(), "nothing changed");
}
