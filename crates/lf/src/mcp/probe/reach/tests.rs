use super::*;

#[test]
fn a_url_has_a_host_and_a_port_whatever_else_it_has() {
    let places = [
        ("http://localhost:8000/mcp", "localhost", 8000),
        ("https://example.com/mcp?key=1", "example.com", 443),
        ("http://example.com", "example.com", 80),
        ("http://me:secret@[::1]:99/", "[::1]", 99),
        ("https://[::1]/mcp", "[::1]", 443),
    ];
    for (url, host, port) in places {
        assert_eq!(place(url), Some((host.to_owned(), port)), "{url}");
    }
    assert_eq!(place("http://host:port/"), None);
    assert_eq!(place("nothing"), None);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_found_before_the_protocol_begins() {
    let steps = way("127.0.0.1", 1, &[]).await;
    assert_eq!(steps.len(), 2);
    assert!(!steps[0].has_failed());
    assert!(steps[1].has_failed());
}
