//! Requests: from any client to any model.

use lf_core::ModelRequest;
use lf_core::model::ChatRequest;
use lf_dialects::upstream::{self, UpstreamOptions};
use lf_dialects::{Dialect, anthropic_messages, openai_chat, openai_responses};
use serde_json::Value;

/// A body is refused in words, or understood; what is understood is written in every dialect, or refused in words, to
/// the same bytes each time.
pub fn requests(body: &[u8]) {
    let chat = openai_chat::decode_request(body).map(|(request, _)| request);
    let messages = anthropic_messages::decode_request(body).map(|(request, _)| request);
    let responses = openai_responses::decode_request(body).map(|(request, _)| request);
    for decoded in [chat, messages, responses] {
        match decoded {
            Ok(request) => encode(request, body.len()),
            Err(error) => assert!(!error.message.is_empty() && error.message.len() <= 4 * body.len() + 1024),
        }
    }
}

fn encode(request: ChatRequest, size: usize) {
    let request = ModelRequest::from(request);
    for dialect in Dialect::ASKED {
        let tools = upstream::tools(dialect, &request.tools);
        let write = || upstream::encode(dialect, "m", &request, &UpstreamOptions::default());
        let (one, other) = (write(), write());
        assert_eq!(one, other);
        match one {
            Ok(encoded) => {
                let body = encoded.body(&tools);
                assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
                assert!(body.len() <= 64 * size + 4096, "{size} bytes became {}", body.len());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
