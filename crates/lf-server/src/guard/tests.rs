use super::*;

fn local() -> Hosts {
    Hosts { bound: "127.0.0.1".to_owned(), loopback: true, cors: Vec::new() }
}

#[test]
fn only_our_own_names_and_addresses_are_hosts() {
    for host in ["localhost", "localhost:14345", "127.0.0.1:1", "[::1]:14345", "LOCALHOST", "127.0.0.1:"] {
        assert!(local().permits(host), "{host}");
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0:14345",
        "[::]:14345",
        "10.0.0.1",
        "localhost.evil",
        "localhost.",
        "127.0.0.1.",
        "[::1].evil.example",
        "[::1]evil",
        "[::ffff:127.0.0.1]",
        "[fe80::1%25lo]",
        "::1",
        "localhost:80:80",
        "localhost:evil",
        "localhost:123456",
        "localhost/x",
        "localhost?",
        "localhost#",
        "user@localhost",
        "localhost\\x",
        "localhost,evil.example",
        "local host",
        "0177.0.0.1",
        "2130706433",
        "127.1",
        "",
        ":80",
    ] {
        assert!(!local().permits(host), "{host}");
    }
    let open = Hosts { bound: "farm.lan".to_owned(), loopback: false, cors: Vec::new() };
    assert!(open.permits("farm.lan:14345") && open.permits("10.0.0.1:14345"));
    assert!(!open.permits("other.lan") && !open.permits("0.0.0.0"));
}

#[test]
fn an_origin_is_a_scheme_and_one_of_our_hosts() {
    assert!(local().permits_origin("http://localhost:3000", "127.0.0.1:1"));
    let open = Hosts { bound: "farm.lan".to_owned(), loopback: false, cors: Vec::new() };
    assert!(open.permits_origin("http://10.0.0.1:80", "10.0.0.1:14345"));
    assert!(!open.permits_origin("http://203.0.113.5", "10.0.0.1:14345"));
    for origin in [
        "null",
        "",
        "file://",
        "file:///etc/passwd",
        "https://evil.example",
        "http://localhost@evil.example",
        "http://localhost.evil.example",
        "http://[::1].evil.example",
        "chrome-extension://abc",
        "data:",
        "http://0.0.0.0:14345",
        "http://localhost http://evil.example",
    ] {
        assert!(!local().permits_origin(origin, "localhost"), "{origin}");
    }
}

#[test]
fn an_origin_that_is_to_be_listed_is_one_of_a_page() {
    for origin in ["https://app.example", "http://localhost:3000", "http://[::1]:8080"] {
        assert_eq!(cors_origin(origin).as_deref(), Ok(origin));
    }
    for origin in
        ["*", "null", "app.example", "https://app.example/", "https://App.example", "ftp://x", "https://"]
    {
        assert!(cors_origin(origin).is_err(), "{origin}");
    }
}
