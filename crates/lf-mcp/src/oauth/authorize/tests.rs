use super::*;
use crate::oauth::metadata::AuthorizationServer;

fn found(says_issuer: bool) -> Discovered {
    let server = AuthorizationServer {
        issuer: "https://id.example".to_owned(),
        authorization_response_iss_parameter_supported: says_issuer,
        ..AuthorizationServer::default()
    };
    Discovered { resource: "https://host.example/mcp".to_owned(), scopes: None, server }
}

#[test]
fn a_code_is_taken_from_the_answer_to_this_request_alone() {
    let code = |query: &str| code_in(query, "abc", &found(false));
    assert_eq!(code("code=1&state=abc").unwrap(), "1");
    assert_eq!(code("state=abc&code=a%2Fb&iss=https%3A%2F%2Fid.example").unwrap(), "a/b");
    for (query, why) in [
        ("code=1", "`state`"),
        ("code=1&state=abd", "`state`"),
        ("code=1&state=abc&state=abc", "`state`"),
        ("code=1&state=abc&iss=https://evil.example", "another issuer"),
        ("code=1&state=abc&iss=https://id.example/", "another issuer"),
        ("code=1&code=2&state=abc", "no code"),
        ("code=&state=abc", "no code"),
        ("state=abc", "no code"),
        ("error=access_denied&error_description=not%0Atoday&state=abc", "access_denied (not today)"),
    ] {
        let failure = code(query).unwrap_err();
        assert!(failure.reason.contains(why), "{query}: {failure}");
    }
}

#[test]
fn a_server_that_says_who_it_is_must_do_so_and_another_s_error_is_not_shown() {
    let code = |query: &str| code_in(query, "abc", &found(true));
    assert!(code("code=1&state=abc").unwrap_err().reason.contains("does not say who"));
    assert!(code("code=1&state=abc&iss=https://id.example").is_ok());
    let failure = code("error=x&error_description=call+me&iss=https://evil.example&state=abc").unwrap_err();
    assert!(!failure.reason.contains("call me"), "{failure}");
}
