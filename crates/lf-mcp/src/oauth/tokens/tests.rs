use super::*;

#[test]
fn no_half_of_a_secret_is_shown_where_a_long_answer_is_cut() {
    let secret = "refresh-0123456789abcdef";
    let credentials =
        Credentials { id: "c".to_owned(), secret: None, private_key: None, method: ClientMethod::None };
    let fields = [("refresh_token", secret.to_owned())];
    for before in SHOWN - secret.len()..SHOWN {
        let shown = without(&format!("{}{secret} is wrong", "x".repeat(before)), &fields, &credentials);
        assert!(!shown.contains(&secret[..4]), "{shown}");
        assert!(shown.chars().count() <= SHOWN + 1, "{shown}");
    }
}
