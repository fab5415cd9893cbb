use super::*;

const NOON: Duration = Duration::from_secs(20_000 * DAY + DAY / 2);

fn requests(limit: u32) -> Quota {
    Quota { requests_per_minute: Some(limit), ..Quota::default() }
}

fn admit(account: &mut Account, quota: &Quota, now: Duration) -> Result<(), OverQuota> {
    account.check(quota, now)?;
    account.begin(quota);
    Ok(())
}

#[test]
fn a_minute_takes_its_requests_and_not_one_more() {
    for limit in [1, 2, 60, 6000] {
        let (quota, mut account) = (requests(limit), Account::default());
        for n in 0..limit {
            assert_eq!(admit(&mut account, &quota, NOON), Ok(()), "request {n} of {limit}");
        }
        let over = admit(&mut account, &quota, NOON).unwrap_err();
        assert_eq!(over.bound, Bound::Requests(limit));
        assert_eq!(over.retry_after, MINUTE / limit);
        let refused = (0..100 * limit.min(60)).filter(|_| admit(&mut account, &quota, NOON).is_err()).count();
        assert_eq!(refused, 100 * limit.min(60) as usize, "a hundredfold");
        assert_eq!(
            admit(&mut account, &quota, NOON + over.retry_after),
            Ok(()),
            "after the pause it was told"
        );
        assert!(admit(&mut account, &quota, NOON + over.retry_after).is_err());
    }
}

#[test]
fn a_day_has_its_tokens_and_its_money_and_the_next_day_has_them_again() {
    let spent = |tokens, cost| Spent { tokens, cost };
    let tokens = Quota { tokens_per_day: Some(1000), ..Quota::default() };
    let money = Quota { cost_per_day_usd: Some(2.0), ..Quota::default() };
    for (quota, used, fits) in [
        (tokens, spent(999, 0.0), true),
        (tokens, spent(1000, 0.0), false),
        (tokens, spent(1001, 0.0), false),
        (tokens, spent(100_000, 0.0), false),
        (money, spent(0, 1.99), true),
        (money, spent(0, 2.0), false),
        (money, spent(0, 200.0), false),
    ] {
        let mut account = Account::default();
        account.spend(used, NOON);
        let told = account.check(&quota, NOON);
        assert_eq!(told.is_ok(), fits, "{used:?}");
        if let Err(over) = told {
            assert_eq!(over.retry_after, Duration::from_secs(DAY / 2), "until midnight");
            assert_eq!(account.check(&quota, NOON + over.retry_after), Ok(()));
        }
    }
}

#[test]
fn what_is_kept_of_the_day_counts_after_a_restart_and_with_what_others_use() {
    let quota = Quota { tokens_per_day: Some(1000), cost_per_day_usd: Some(2.0), ..Quota::default() };
    let spent = |tokens, cost| Spent { tokens, cost };
    for (used, kept, fits) in [
        (spent(0, 0.0), spent(1000, 0.0), false),
        (spent(0, 0.0), spent(0, 2.0), false),
        // what is not kept yet counts
        (spent(1000, 0.0), spent(10, 1.0), false),
        (spent(10, 2.0), spent(999, 1.0), false),
        // what is kept is not counted twice
        (spent(999, 1.5), spent(999, 1.5), true),
    ] {
        let mut account = Account::default();
        account.spend(used, NOON);
        account.learn(kept, day(NOON), NOON);
        assert_eq!(account.check(&quota, NOON).is_ok(), fits, "{used:?} {kept:?}");
    }
}

/// What is kept is read while others begin turns: midnight may be in between.
#[test]
fn what_was_read_of_yesterday_is_not_taken_for_today() {
    let quota = Quota { tokens_per_day: Some(1000), ..Quota::default() };
    let used = Spent { tokens: 1000, cost: 0.0 };
    let mut account = Account::default();
    let tomorrow = NOON + Duration::from_secs(DAY);
    account.spend(Spent { tokens: 1, cost: 0.0 }, tomorrow);
    account.learn(used, day(NOON), tomorrow);
    assert_eq!(account.check(&quota, tomorrow), Ok(()));
    account.learn(used, day(tomorrow), tomorrow);
    assert!(account.check(&quota, tomorrow).is_err());
}

#[test]
fn whoever_keeps_to_the_whole_seconds_that_it_was_told_is_let_in() {
    let (quota, mut account) = (requests(7), Account::default());
    while admit(&mut account, &quota, NOON).is_ok() {}
    let over = account.check(&quota, NOON).unwrap_err();
    assert_eq!(whole_seconds(over.retry_after), 9, "8.57 s");
    assert!(over.to_string().ends_with("try again in 9 s"), "{over}");
    assert_eq!(admit(&mut account, &quota, NOON + Duration::from_secs(9)), Ok(()));
    assert_eq!(whole_seconds(Duration::from_secs(8)), 8);
    assert_eq!(whole_seconds(Duration::ZERO), 1);
}

#[test]
fn a_request_that_did_not_begin_leaves_its_place_to_another() {
    let (quota, mut account) = (requests(1), Account::default());
    admit(&mut account, &quota, NOON).unwrap();
    account.take_back(&quota);
    assert_eq!(admit(&mut account, &quota, NOON), Ok(()));
    assert!(admit(&mut account, &quota, NOON).is_err());
}

#[test]
fn a_clock_that_is_set_back_gives_nothing_away_and_blocks_nobody_for_longer() {
    let (quota, mut account) = (requests(1), Account::default());
    admit(&mut account, &quota, NOON).unwrap();
    let before = NOON.saturating_sub(Duration::from_secs(10 * 365 * DAY));
    assert!(admit(&mut account, &quota, before).is_err());
    assert_eq!(admit(&mut account, &quota, before + MINUTE), Ok(()));
}

#[test]
fn a_clock_that_was_days_ahead_blocks_nobody_once_it_is_right_again() {
    let quota = Quota { tokens_per_day: Some(1000), ..Quota::default() };
    let ahead = NOON + Duration::from_secs(30 * DAY);
    let mut account = Account::default();
    account.spend(Spent { tokens: 1000, cost: 0.0 }, ahead);
    assert!(account.check(&quota, ahead).is_err());
    assert_eq!(account.check(&quota, NOON), Ok(()));
    account.spend(Spent { tokens: 1000, cost: 0.0 }, NOON);
    let over = account.check(&quota, NOON).unwrap_err();
    assert_eq!(over.retry_after, Duration::from_secs(DAY / 2), "until midnight");
}
