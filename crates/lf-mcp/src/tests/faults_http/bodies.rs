//! Answers that end early, never, or are none.

use super::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n";

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

/// 34
#[tokio::test]
async fn a_reset_in_the_head_or_in_the_body_is_a_lost_call_that_is_not_made_again() {
    for bytes in ["", "HTTP/1.1 200 OK\r\ncontent-ty", HEAD, &format!("{HEAD}{{\"jsonrpc\"")] {
        let bytes = bytes.to_owned();
        lost(&fails(move |_| Reply::raw(bytes.clone(), Ending::Reset)).await, "was cut off");
    }
}

/// 35
#[tokio::test]
async fn an_end_before_the_whole_answer_is_an_error_and_no_success() {
    for ending in [Ending::Close, Ending::HalfClose] {
        for (bytes, words) in [
            (String::new(), "connection closed before message completed"),
            ("HTTP/1.1 200 OK\r\n".to_owned(), "connection closed before message completed"),
            // a body shorter than it says
            (
                format!("{HEAD}{}", json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}})),
                "was cut off",
            ),
            // without its last chunk
            (format!("{CHUNKED}2\r\n{{}}\r\n"), "was cut off"),
        ] {
            lost(&fails(move |_| Reply::raw(bytes.clone(), ending)).await, words);
        }
    }
}

/// 36
#[tokio::test]
async fn a_page_instead_of_an_answer_is_shown_by_its_first_characters() {
    let page = format!("<html>\r\n\u{1b}[31m\u{7}{}", "x".repeat(1000));
    let shown = fails(move |_| Reply::new(200, "text/html", page.clone())).await;
    lost(&shown, "answered with `text/html` instead of MCP: <html>");
    assert!(!reason(&shown).chars().any(char::is_control));
    assert!(reason(&shown).chars().count() < 300, "{shown}");
    let bare = fails(|_| Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", Ending::Close)).await;
    lost(&bare, "answered with no content type instead of MCP: hi");
    let other = fails(|_| Reply::new(200, "application/json", "{\"error\": \"no such route\"}")).await;
    lost(&other, "answered with JSON that is no message of the protocol: {\"error\": \"no such route\"}");
    let refused = fails(|_| Reply::new(418, "text/plain", "I am\na teapot")).await;
    turned_away(&refused, "answered 418 I'm a teapot: I am a teapot");
}

/// 39: what a body says of its length is believed only where it is too large.
#[tokio::test]
async fn a_body_without_end_is_cut_off_at_the_limit() {
    let limit = 16 << 20;
    let expected = ToolError::TooLarge { tool: "echo".into(), limit };
    let vast = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000000000\r\n\r\n{";
    let plain = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    let piece = "x".repeat(4096);
    for bytes in
        [vast.to_owned(), format!("{plain}{piece}"), format!("{CHUNKED}ff9\r\n{}\r\n", "x".repeat(4089))]
    {
        let peer = peer(move |_| Reply::raw(bytes.clone(), Ending::Endless)).await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        list(&tools).await;
        assert_eq!(call(&tools, "echo", json!({})).await, Err(expected.clone()));
        assert_eq!(peer.count("tools/call"), 1);
    }
}

/// 39
#[tokio::test]
async fn a_body_that_is_longer_than_it_says_is_read_as_far_as_it_says() {
    let body =
        json!({"jsonrpc": "2.0", "id": "?", "result": {"content": [{"type": "text", "text": "called"}]}});
    let peer = peer(move |request| {
        let mut body = body.clone();
        body["id"] = request.body["id"].clone();
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Reply::raw(format!("{head}{body}HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"), Ending::Close)
    })
    .await;
    let pool = pool();
    assert_eq!(text(call(&tools(&pool, http(&peer.url)), "echo", json!({})).await), "called");
}

/// 40: 10 MB of zeros in 10 kB. It is not even unpacked.
#[tokio::test]
async fn a_body_that_is_packed_although_nobody_asked_for_it_is_refused_unread() {
    for encoding in ["gzip", "br", "zstd", "deflate", "gzip, gzip"] {
        for kind in ["application/json", "text/event-stream"] {
            let bomb = fails(move |request| {
                assert_eq!(request.header("accept-encoding"), "");
                Reply::new(200, kind, "\u{1f}\u{8b}".repeat(5_000)).with("content-encoding", encoding)
            })
            .await;
            lost(&bomb, &format!("answered in the encoding `{encoding}`, which was not asked for"));
        }
        for status in [302, 400, 500] {
            let bomb = fails(move |_| {
                Reply::new(status, "application/json", "\u{1f}\u{8b}".repeat(5_000))
                    .with("content-encoding", encoding)
            })
            .await;
            let shown = reason(&bomb);
            assert!(shown.contains(&format!("answered {status}")) && shown.len() < 200, "{bomb}");
        }
    }
}

/// 43
#[tokio::test]
async fn a_flood_of_interim_answers_is_given_up_and_a_few_are_passed_over() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n";
    let flood = fails_in_the_end(move |_| Reply::raw(interim.repeat(100), Ending::Endless)).await;
    assert!(matches!(flood, ToolError::Timeout { .. } | ToolError::Lost { .. }), "{flood:?}");
    let peer = peer(move |request| {
        let body = answer(request).unwrap().to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n";
        let trailers = "0\r\nx-trailer: 1\r\ncontent-type: text/html\r\n\r\n";
        let length = body.len();
        Reply::raw(format!("{interim}{head}\r\n{length:x}\r\n{body}\r\n{trailers}"), Ending::Close)
    })
    .await;
    let pool = pool();
    assert_eq!(text(call(&tools(&pool, http(&peer.url)), "echo", json!({})).await), "called");
}

/// 43
#[tokio::test]
async fn a_head_that_is_too_large_or_contradicts_itself_is_refused() {
    let vast = format!("HTTP/1.1 200 OK\r\nx-vast: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-many: 1\r\n".repeat(10_000));
    let twice = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ncontent-length: 7\r\n\r\n{}";
    for (bytes, words) in [
        (vast, "message head is too large"),
        (many, "message head is too large"),
        (twice.to_owned(), "invalid content-length parsed"),
    ] {
        lost(&fails(move |_| Reply::raw(bytes.clone(), Ending::Close)).await, words);
    }
}
