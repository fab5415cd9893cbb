use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn delays_double_up_to_half_a_minute() {
    let delays: Vec<f64> = (1..=8).map(|failures| delay(failures).as_secs_f64()).collect();
    assert_eq!(delays, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
    assert_eq!(delay(u32::MAX), LONGEST);
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
    tokio::time::advance(FORGIVEN_AFTER + SECOND).await;
    assert_eq!(backoff.died(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_minute_open_the_circuit_and_one_probe_closes_or_opens_it() {
    let mut backoff = Backoff::default();
    for _ in 0..4 {
        backoff.trying();
        assert!(backoff.failed_to_start() <= 4 * SECOND);
        assert_eq!(backoff.circuit(), Circuit::Closed);
        tokio::time::advance(SECOND).await;
    }
    backoff.trying();
    assert!(backoff.failed_to_start() > 20 * SECOND);
    assert_eq!(backoff.circuit(), Circuit::Open);
    tokio::time::advance(10 * FORGIVEN_AFTER).await;
    backoff.trying();
    assert_eq!(backoff.circuit(), Circuit::HalfOpen);
    assert!(backoff.failed_to_start() > 20 * SECOND, "one failure of the probe is enough");
    assert_eq!(backoff.circuit(), Circuit::Open);
    tokio::time::advance(LONGEST).await;
    backoff.trying();
    backoff.started();
    assert_eq!(backoff.circuit(), Circuit::HalfOpen, "it has to last");
    tokio::time::advance(FORGIVEN_AFTER).await;
    assert_eq!(backoff.died(), Duration::ZERO);
    assert_eq!(backoff.circuit(), Circuit::Closed);
}

#[tokio::test(start_paused = true)]
async fn failures_that_are_far_apart_do_not_open_the_circuit() {
    let mut backoff = Backoff::default();
    for _ in 0..20 {
        backoff.trying();
        backoff.failed_to_start();
        assert_eq!(backoff.circuit(), Circuit::Closed);
        tokio::time::advance(20 * SECOND).await;
    }
}
