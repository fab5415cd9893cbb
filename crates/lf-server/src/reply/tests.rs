use std::time::Duration;

use super::*;

#[test]
fn our_own_routes_pass_on_what_is_wrong_with_a_model() {
    let caller = Caller::at("/conversations/c/chat", String::new());
    let told = |error: ModelError| caller.refused(&Refusal::Model(error));
    let pause = Some(Duration::from_secs(7));
    let limited = told(ModelError::RateLimited {
        url: "http://up".to_owned(),
        message: "slow down".to_owned(),
        retry_after: pause,
    });
    assert_eq!((limited.status, limited.retry_after), (429, pause));
    assert_eq!(limited.body["error"], "Unavailable");
    assert!(limited.body["message"].as_str().unwrap().contains("slow down"), "{}", limited.body);
    assert_eq!(told(ModelError::going_down()).status, 503);
    let unreachable =
        told(ModelError::Unreachable { url: "http://up".to_owned(), reason: "refused".to_owned() });
    assert_eq!(unreachable.status, 502);
}

#[test]
fn what_of_openai_s_api_is_not_here_is_told_in_its_words() {
    for path in ["/v1/embeddings", "/v1/completions", "/v1/files/file-1/content", "/v1/threads/t/messages"] {
        let told = Caller::at(path, String::new()).trouble(StatusCode::NOT_FOUND, "there is no route");
        assert_eq!(told.body["error"]["message"], "there is no route", "{path}: {}", told.body);
    }
    let own = Caller::at("/v1/projects/x", String::new()).trouble(StatusCode::NOT_FOUND, "there is no route");
    assert_eq!(own.body["message"], "there is no route", "{}", own.body);
}
