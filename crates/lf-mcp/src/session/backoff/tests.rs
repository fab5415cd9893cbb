use super::*;

#[test]
fn delays_double_and_end_in_one_try_per_half_minute() {
    let delays: Vec<f64> = (1..=6).map(|failures| delay(failures).as_secs_f64()).collect();
    assert_eq!(delays, [0.5, 1.0, 2.0, 4.0, 30.0, 30.0]);
}

#[test]
fn jitter_takes_at_most_a_fifth_off() {
    for _ in 0..100 {
        let delay = jittered(Duration::from_secs(10));
        assert!(delay > Duration::from_secs(8) && delay <= Duration::from_secs(10), "{delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_death_of_a_session_is_mended_at_once() {
    let mut backoff = Backoff::default();
    backoff.started();
    assert_eq!(backoff.died(), Duration::ZERO);
    backoff.started();
    assert!(backoff.died() > Duration::ZERO);
    backoff.started();
    tokio::time::advance(FORGIVEN_AFTER + Duration::from_secs(1)).await;
    assert_eq!(backoff.died(), Duration::ZERO);
}
