use futures_util::future::join_all;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_call_beyond_those_that_run_waits_for_its_turn_and_no_longer_than_its_limit() {
    let turns = Turns::default();
    let mut running = join_all((0..MAX_RUNNING).map(|_| turns.take(LIMIT))).await;
    let waiting = tokio::join!(turns.take(LIMIT), async {
        sleep(Duration::from_secs(20)).await;
        running.pop();
    });
    assert!(waiting.0.is_ok());
    match turns.take(LIMIT).await {
        Err(AskError::TurnedAway { failure, after: None }) => {
            assert_eq!(failure.reason, "ran 256 other calls for 30s, while this one waited");
            assert_eq!(failure.cause, Cause::RateLimited);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(turns.waiting.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_turns_away_at_once() {
    let turns = Turns::default();
    let _running = join_all((0..MAX_RUNNING).map(|_| turns.take(LIMIT))).await;
    let all = join_all((0..=MAX_WAITING).map(|_| async {
        let begun = Instant::now();
        (turns.take(LIMIT).await, begun.elapsed())
    }))
    .await;
    let at_once: Vec<_> = all.iter().filter(|(_, waited)| waited.is_zero()).collect();
    assert_eq!(at_once.len(), 1);
    assert!(matches!(
        &at_once[0].0,
        Err(AskError::TurnedAway { failure, .. }) if failure.reason.contains("1024 more wait")
    ));
}
