use lf_core::ModelError;
use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn read(frame: Value) -> Result<Create, String> {
    read_create(frame.to_string().as_bytes()).map_err(|error| error_frame(request_error_reply(&error)))
}

#[test]
fn a_frame_is_a_streamed_request() {
    let create = read(json!({
        "type": "response.create", "model": "m", "store": false, "previous_response_id": "resp_1", "input": "hi",
        "stream": false, "stream_options": {"include_obfuscation": true}, "background": false,
    }))
    .unwrap();
    assert_eq!(create.previous_response_id.as_deref(), Some("resp_1"));
    let (request, view) = decode_request(&create.body).unwrap();
    assert!(request.stream && view.stream && !view.store && !view.background);
    assert_eq!(request.model.as_deref(), Some("m"));
    assert!(request.parameters.is_empty(), "{:?}", request.parameters);
}

#[test]
fn a_frame_that_is_no_request_is_refused_in_the_envelope() {
    let frames = [
        json!({"model": "m", "input": "hi"}),
        json!({"type": "response.cancel"}),
        json!({"type": 1}),
        json!({"type": "response.create", "model": "m", "input": "hi", "background": true}),
        json!([]),
    ];
    let told: Vec<String> = frames
        .into_iter()
        .map(|frame| {
            let told: Value = serde_json::from_str(&read(frame).unwrap_err()).unwrap();
            assert_eq!((told["type"].as_str(), told["status"].as_u64()), (Some("error"), Some(400)));
            format!("{} {} {}", told["error"]["code"], told["error"]["param"], told["error"]["message"])
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    "missing_required_parameter" "type" "`type` is missing: write `response.create`"
    "invalid_value" "type" "`type` is `response.cancel`; use `response.create`; to stop a response, close the connection"
    "invalid_type" "type" "`type` must be a string, not a number"
    "unsupported_parameter" "background" "`background` has no meaning on a connection; send it with `POST`, or leave `background` out"
    "invalid_type" null "the body must be a JSON object; send {\"type\": \"response.create\", \"input\": [...]}"
    "#);
    assert!(read_create(b"{").is_err());
}

#[test]
fn an_error_always_has_a_code() {
    let error = ModelError::Failed {
        url: "u".to_owned(),
        status: 500,
        message: "down".to_owned(),
        retry_after: None,
    };
    let internal = internal_error_reply(503, "no");
    for frame in [error_frame(error_reply(&error)), error_frame(internal), limit_frame(), too_large_frame(9)]
    {
        let told: Value = serde_json::from_str(&frame).unwrap();
        assert!(told["error"]["code"].as_str().is_some_and(|code| !code.is_empty()), "{frame}");
        assert!(told["error"]["message"].is_string() && told["status"].is_u64(), "{frame}");
    }
}
