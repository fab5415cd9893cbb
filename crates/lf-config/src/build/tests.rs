use std::time::Duration;

use super::duration::parse;

#[test]
fn lengths_of_time_have_units_or_are_seconds() {
    let cases = [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("1.5m", 90_000),
        ("45", 45_000),
        ("0.25", 250),
        (" 2 s ", 2_000),
        ("24h", 86_400_000),
    ];
    for (text, milliseconds) in cases {
        assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in [
        "",
        "0",
        "0s",
        "-1s",
        "s",
        "5 weeks",
        "1e3",
        "25h",
        "99999999999999999999h",
        "1.2.3s",
        "NaN",
        "inf",
        "1h 30",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}
