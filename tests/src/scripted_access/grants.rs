//! The authorization server: codes with PKCE, refresh tokens that are good for one use, tokens for clients themselves,
//! registrations and revocations.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::extract::{Query, State as Shelf};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Code, Shared, State, Token, laid_over};

type Fields = HashMap<String, String>;

pub(super) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/.well-known/oauth-authorization-server", get(about))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .route("/register", post(register))
        .route("/revoke", post(revoke))
        .route("/sink", get(sink).post(sink))
        .with_state(shared)
}

async fn about(Shelf(shared): Shelf<Shared>) -> Json<Value> {
    let mut state = shared.state();
    state.note("server-metadata");
    let issuer = &shared.issuer;
    let rules = &state.rules;
    let method = if rules.secret.is_some() { "client_secret_basic" } else { "none" };
    let mut document = json!({
        "issuer": **issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [method],
        "authorization_response_iss_parameter_supported": true,
    });
    if rules.registration {
        document["registration_endpoint"] = format!("{issuer}/register").into();
    }
    if rules.revocation {
        document["revocation_endpoint"] = format!("{issuer}/revoke").into();
    }
    Json(laid_over(document, &rules.metadata))
}

async fn sink(Shelf(shared): Shelf<Shared>) -> StatusCode {
    shared.state().note("sink");
    StatusCode::OK
}

async fn register(Shelf(shared): Shelf<Shared>, Json(body): Json<Value>) -> Response {
    let mut state = shared.state();
    state.note("register");
    if body["application_type"] != "native" || !body["redirect_uris"].is_array() {
        state.violates(format!("a registration lacks something: {body}"));
    }
    let id = format!("registered-{}", state.clients.len() + 1);
    let answer = laid_over(json!({"client_id": id}), &body);
    state.clients.insert(id, body);
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn authorize(Shelf(shared): Shelf<Shared>, Query(fields): Query<Fields>) -> Response {
    let mut state = shared.state();
    let of = |name: &str| fields.get(name).cloned().unwrap_or_default();
    state.note(format!("authorize {}", of("scope")));
    if of("response_type") != "code" || of("code_challenge_method") != "S256" || of("state").len() < 32 {
        state.violates(format!("an authorization lacks something: {fields:?}"));
    }
    let registered = state.clients.get(&of("client_id")).cloned();
    if let Some(client) = registered
        && !client["redirect_uris"].as_array().expect("checked").contains(&of("redirect_uri").into())
    {
        state.violates(format!("{} is not a redirect URI of the client", of("redirect_uri")));
    }
    state.given += 1;
    let code = format!("code-{:032}", state.given);
    let scopes = of("scope").split_whitespace().map(str::to_owned).collect();
    let waiting = Code {
        client: of("client_id"),
        redirect_uri: of("redirect_uri"),
        challenge: of("code_challenge"),
        resource: of("resource"),
        scopes,
    };
    state.codes.insert(code.clone(), waiting);
    let answer = json!({"code": code, "state": of("state"), "iss": &*shared.issuer});
    let answer = laid_over(answer, &state.rules.redirect);
    let mut url = reqwest::Url::parse(&of("redirect_uri")).expect("a redirect URI");
    for (name, value) in answer.as_object().expect("made above") {
        url.query_pairs_mut().append_pair(name, value.as_str().expect("text"));
    }
    (StatusCode::FOUND, [(header::LOCATION, url.to_string())]).into_response()
}

async fn token(Shelf(shared): Shelf<Shared>, headers: HeaderMap, body: String) -> Response {
    let fields = parsed(&body);
    let of = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let mut state = shared.state();
    let grant = of("grant_type");
    state.note(format!("token {grant}"));
    let audience = state.rules.audience.clone().unwrap_or_else(|| format!("{}/mcp", shared.tools));
    if of("resource") != audience {
        state.violates(format!("a token was asked for `{}`", of("resource")));
    }
    let Some(client) = client_of(&state, &headers, &fields) else {
        return refused(StatusCode::UNAUTHORIZED, "invalid_client");
    };
    let scopes = match grant.as_str() {
        "authorization_code" => {
            let Some(code) = state.codes.remove(&of("code")) else {
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            };
            let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier")));
            if proof != code.challenge
                || of("redirect_uri") != code.redirect_uri
                || of("resource") != code.resource
            {
                state.violates(format!("a code was exchanged by another than asked for it: {fields:?}"));
            }
            if client != code.client {
                state.violates(format!("a code of {} was exchanged by {client}", code.client));
            }
            code.scopes
        }
        "refresh_token" => match state.refreshes.remove(&of("refresh_token")) {
            Some(scopes) => scopes,
            None => {
                state.note("reused");
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            }
        },
        "client_credentials" => of("scope").split_whitespace().map(str::to_owned).collect(),
        _ => return refused(StatusCode::BAD_REQUEST, "unsupported_grant_type"),
    };
    let own = grant == "client_credentials";
    Json(given(&mut state, scopes, own)).into_response()
}

fn given(state: &mut State, scopes: Vec<String>, is_own: bool) -> Value {
    state.given += 1;
    let (access, refresh) = (format!("access-{:032}", state.given), format!("refresh-{:032}", state.given));
    let expires = Instant::now() + Duration::from_secs(state.rules.life);
    let mut answer = json!({
        "access_token": access,
        "token_type": "bearer",
        "expires_in": state.rules.life,
        "scope": scopes.join(" "),
    });
    if state.rules.refresh && !is_own {
        answer["refresh_token"] = refresh.clone().into();
        state.refreshes.insert(refresh, scopes.clone());
    }
    state.tokens.insert(access, Token { scopes, expires });
    answer
}

/// Who asks; `None` where the secret is wrong.
fn client_of(state: &State, headers: &HeaderMap, fields: &Fields) -> Option<String> {
    let basic =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let Some(basic) = basic else {
        let is_public = state.rules.secret.is_none();
        return fields.get("client_id").cloned().filter(|_| is_public);
    };
    let pair = String::from_utf8(STANDARD.decode(basic).ok()?).ok()?;
    let (id, secret) = pair.split_once(':')?;
    (Some(secret) == state.rules.secret.as_deref()).then(|| id.to_owned())
}

async fn revoke(Shelf(shared): Shelf<Shared>, body: String) -> StatusCode {
    let token = parsed(&body).remove("token").unwrap_or_default();
    let mut state = shared.state();
    state.note(format!("revoke {}", token.split('-').next().unwrap_or_default()));
    state.refreshes.remove(&token);
    state.refused.insert(token);
    StatusCode::OK
}

fn refused(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

fn parsed(body: &str) -> Fields {
    let url = reqwest::Url::parse(&format!("http://x/?{body}")).expect("a form");
    url.query_pairs().into_owned().collect()
}
