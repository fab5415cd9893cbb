use serde_json::json;

use super::*;
use crate::tests::server;

fn stdio(args: &[&str], env: &[(&str, &str)], inherit: &[&str]) -> Secrets {
    let stdio = StdioServer {
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect(),
        inherit_env: inherit.iter().map(|name| (*name).to_owned()).collect(),
        ..StdioServer::new("npx", args)
    };
    let ours = [
        ("GITLAB_TOKEN".to_owned(), "inherited-1".to_owned()),
        ("HOME".to_owned(), "/home/me".to_owned()),
        ("OTHER_TOKEN".to_owned(), "not-inherited".to_owned()),
    ];
    Secrets::of(&server(Transport::Stdio(stdio)), &ours)
}

fn http(base_url: &str, headers: &[(&str, &str)]) -> Secrets {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    let http = HttpServer { headers, ..HttpServer::new(base_url) };
    Secrets::of(&server(Transport::Http(http)), &[])
}

fn known(secrets: &Secrets) -> Vec<&str> {
    let mut known: Vec<&str> = secrets.known.iter().map(Secret::expose).collect();
    known.sort_unstable();
    known
}

#[test]
fn arguments_are_secret_by_their_flag_their_name_or_their_look() {
    let args = [
        "-y",
        "server-files",
        "/home/me/projects",
        "--token",
        "after-flag",
        "--api-key=in-the-flag",
        "--header",
        "Authorization: Bearer in-a-header",
        "-e",
        "DB_PASSWORD=docker-style",
        "postgres://me:in-a-url@host/base",
        "ghp_0123456789abcdef",
        "TOKEN='in a shell' SECRET_KEY=in-a-script run --port=8080",
        "--token-file",
        "/run/secrets/token",
    ];
    let secrets = stdio(&args, &[], &[]);
    let expected = [
        "Bearer in-a-header",
        "after-flag",
        "docker-style",
        "ghp_0123456789abcdef",
        "in-a-header",
        "in-a-script",
        "in-a-url",
        "in-the-flag",
    ];
    for secret in expected {
        assert!(known(&secrets).contains(&secret), "{secret} is not in {:?}", known(&secrets));
    }
    let paths = "/home/me/projects/a.txt, server-files, /run/secrets/token, 8080";
    assert_eq!(secrets.content(paths.to_owned()), paths);
}

#[test]
fn variables_are_secret_by_name_in_results_and_all_of_them_in_errors() {
    let env = [
        ("API_KEY", "first-secret"),
        ("PROJECT_ROOT", "/home/me/projects"),
        ("DATABASE_URL", "mysql://root:second-secret@db/x"),
        ("SIGNING_KEY", "-----BEGIN KEY-----\nthird-secret-line-of-it\n-----END KEY-----"),
        ("SHORT_TOKEN", "tiny"),
    ];
    let secrets = stdio(&[], &env, &["GITLAB_TOKEN", "HOME"]);
    let said = "first-secret second-secret third-secret-line-of-it inherited-1 not-inherited tiny";
    let expected = "[secret] [secret] [secret] [secret] not-inherited tiny";
    assert_eq!(secrets.content(said.to_owned()), expected);
    assert_eq!(secrets.message(said), expected);
    let path = "/home/me/projects/a.txt at db";
    assert_eq!(secrets.content(path.to_owned()), path);
    assert_eq!(secrets.message(path), "[secret]/a.txt at db");
    let hidden = format!("{secrets:?}");
    assert!(!hidden.contains("first-secret"), "{hidden}");
}

#[test]
fn headers_and_credentials_of_the_url_are_secret() {
    let headers = [
        ("Authorization", "Bearer very-secret"),
        ("Accept", "application/json"),
        ("X-Key", "other-secret"),
        ("X-Env", "production"),
        ("X-Unnamed", "a81bc81b"),
    ];
    let secrets = http("https://me:url-secret@host/mcp?api_key=query-secret&page=front-page", &headers);
    let expected =
        ["Bearer very-secret", "a81bc81b", "other-secret", "query-secret", "url-secret", "very-secret"];
    let found = known(&secrets);
    assert!(expected.iter().all(|secret| found.contains(secret)), "{found:?}");
    assert!(["application/json", "production", "front-page"].iter().all(|word| !found.contains(word)));
    assert_eq!(secrets.content("Basic bWU6dXJsLXNlY3JldA==".to_owned()), "Basic bWU6[secret]A==");
    assert_eq!(secrets.message("got Bearer very-secret and very-secret"), "got [secret] and [secret]");
}

#[test]
fn a_message_that_was_cut_off_in_a_secret_does_not_show_its_half() {
    let secrets = http("https://host", &[("Authorization", "Bearer very-secret-key")]);
    assert_eq!(secrets.message("bad very-secret…"), "bad [secret]…");
    assert_eq!(secrets.message("bad Bearer very-sec"), "bad [secret]");
    assert_eq!(secrets.message("bad very-s"), "bad very-s");
    assert_eq!(secrets.message("bad very"), "bad very");
    let wide = http("https://host", &[("X-Key", "ärger-ärger-ärger")]);
    assert_eq!(wide.message("bad ärger-ärger"), "bad [secret]");
}

#[test]
fn a_value_is_searched_through_and_what_holds_no_secret_is_left_as_it_is() {
    let secrets = http("https://host", &[("Authorization", "Bearer very-secret-key")]);
    let value = json!({"content": [{"text": "a very-secret-key b"}], "very-secret-key": {"n": 1.0}});
    let expected = json!({"content": [{"text": "a [secret] b"}], "[secret]": {"n": 1.0}});
    assert_eq!(secrets.value(value), expected);
    let plain = json!({"a": ["b", null, true], "c": 2});
    assert_eq!(secrets.value(plain.clone()), plain);
}
