//! The tool server: legacy MCP with two tools, `read` and `write`, for whoever has a token.

use std::time::Instant;

use axum::Json;
use axum::Router;
use axum::extract::State as Shelf;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::{Shared, laid_over};

pub(super) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/mcp", post(answer))
        .route("/.well-known/oauth-protected-resource/mcp", get(about))
        .route("/sink", get(sink).post(sink))
        .with_state(shared)
}

async fn about(Shelf(shared): Shelf<Shared>) -> Json<Value> {
    let mut state = shared.state();
    state.note("resource-metadata");
    let document = json!({
        "resource": format!("{}/mcp", shared.tools),
        "authorization_servers": [&*shared.issuer],
        "scopes_supported": ["read"],
    });
    Json(laid_over(document, &state.rules.resource))
}

/// Where nobody should ever come.
async fn sink(Shelf(shared): Shelf<Shared>) -> StatusCode {
    shared.state().note("sink");
    StatusCode::OK
}

async fn answer(Shelf(shared): Shelf<Shared>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let given = headers.get_all("authorization").iter().map(|value| value.to_str().expect("text").to_owned());
    let given: Vec<String> = given.collect();
    let mut state = shared.state();
    state.note(format!("{method} {}", given.join("|")));
    if given.len() > 1 {
        state.violates(format!("{method} came with {} Authorization headers", given.len()));
    }
    let token = given.first().and_then(|value| value.strip_prefix("Bearer "));
    let known = token.and_then(|token| state.tokens.get(token).cloned().map(|known| (token, known)));
    let valid =
        known.filter(|(token, known)| !state.refused.contains(*token) && known.expires > Instant::now());
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", shared.tools);
    let Some((_, token)) = valid else {
        let challenge = state.rules.challenge.clone();
        let challenge =
            challenge.unwrap_or_else(|| format!("Bearer resource_metadata=\"{metadata}\", scope=\"read\""));
        state.note("401");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    };
    let wanted = match message["params"]["name"].as_str() {
        Some("write") if method == "tools/call" => state.rules.write_scopes.clone(),
        _ => vec!["read".to_owned()],
    };
    if !wanted.iter().all(|scope| token.scopes.contains(scope)) {
        let missing: Vec<String> = wanted.into_iter().filter(|scope| scope != "read").collect();
        let challenge = format!(
            "Bearer error=\"insufficient_scope\", scope=\"{}\", resource_metadata=\"{metadata}\"",
            missing.join(" ")
        );
        state.note("403");
        return (StatusCode::FORBIDDEN, [("www-authenticate", challenge)]).into_response();
    }
    drop(state);
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let tool = |name: &str| json!({"name": name, "description": name, "inputSchema": {"type": "object"}});
    let result = match method.as_str() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "guarded", "version": "1"},
        }),
        "tools/list" => json!({"tools": [tool("read"), tool("write")]}),
        // a server that repeats what it was sent
        "tools/call" => json!({"content": [{"type": "text", "text": format!("done with {}", given[0])}]}),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            return (StatusCode::BAD_REQUEST, Json(json!({"jsonrpc": "2.0", "id": id, "error": error})))
                .into_response();
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}
