use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn a_resource_is_that_of_the_server_at_its_path_or_below() {
    let server = url("https://host.example/a/mcp");
    for resource in [
        "https://host.example/a/mcp",
        "https://host.example/a/mcp/",
        "https://host.example/a",
        "https://host.example",
        "https://HOST.example:443/a",
    ] {
        assert!(covers(resource, &server), "{resource}");
    }
    for resource in [
        "https://evil.example/a/mcp",
        "http://host.example/a/mcp",
        "https://host.example:8443/a/mcp",
        "https://host.example/a/m",
        "https://host.example/b",
        "https://host.example/a/mcp/more",
        "https://host.example/a#x",
        "host.example/a/mcp",
        "",
    ] {
        assert!(!covers(resource, &server), "{resource}");
    }
}

#[test]
fn an_issuer_is_the_same_only_to_the_letter_but_for_the_slash_of_a_bare_host() {
    assert!(same_issuer("https://id.example", "https://id.example/"));
    assert!(same_issuer("https://id.example/tenant", "https://id.example/tenant"));
    for other in [
        "https://id.example/tenant/",
        "https://ID.example/tenant",
        "https://id.example/tenant2",
        "http://id.example/tenant",
    ] {
        assert!(!same_issuer(other, "https://id.example/tenant"), "{other}");
    }
}

#[test]
fn a_server_is_named_without_what_is_not_its_place() {
    assert_eq!(canonical(&url("https://Host.example")), "https://host.example");
    assert_eq!(canonical(&url("https://u:p@host.example/mcp?key=1#x")), "https://host.example/mcp");
}
