//! Answers that lead elsewhere.

use super::*;

/// 37
#[tokio::test]
async fn a_redirect_is_followed_within_its_origin_only_and_with_its_method_only() {
    let (other, bait) = (peer(|_| Reply::accepted()).await, peer(|_| Reply::accepted()).await);
    let elsewhere = [
        other.url.clone(),
        other.url.replace("http://", "https://"),
        bait.url.replace("127.0.0.1", "localhost"),
        "file:///etc/passwd".to_owned(),
        "//127.0.0.1:1/".to_owned(),
        "http://[::1".to_owned(),
    ];
    for status in [301, 302, 303, 307, 308] {
        for place in &elsewhere {
            let place = place.clone();
            let stopped =
                fails(move |_| Reply::new(status, "text/plain", "").with("location", place.clone())).await;
            turned_away(&stopped, "it redirects elsewhere");
        }
    }
    for status in [301, 302, 303] {
        let stopped = fails(move |_| Reply::new(status, "text/plain", "").with("location", "/other")).await;
        turned_away(&stopped, "it redirects elsewhere");
    }
    for peer in [other, bait] {
        assert!(peer.requests.lock().unwrap().is_empty());
    }
    let peer = peer(|request| match request.path.as_str() {
        "/" => Reply::new(308, "text/plain", "").with("location", "/other"),
        _ => Reply::json(&answer(request).unwrap()),
    })
    .await;
    let pool = pool();
    assert_eq!(text(call(&tools(&pool, http(&peer.url)), "echo", json!({})).await), "called");
}

/// 37
#[tokio::test]
async fn a_redirect_that_goes_in_a_circle_ends() {
    let peer = peer(|_| Reply::new(307, "text/plain", "").with("location", "/")).await;
    let pool = pool();
    let stopped = call(&tools(&pool, http(&peer.url)), "echo", json!({})).await.unwrap_err();
    turned_away(&stopped, "it redirects elsewhere");
    assert!(peer.count("tools/call") <= 7);
}
