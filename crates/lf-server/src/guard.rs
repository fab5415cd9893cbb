//! What every request passes first: Host and Origin (a web page must not reach a local daemon), content type, size,
//! and a request id.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::reply::{Caller, RequestId};

/// Largest request body, in bytes.
pub(crate) const BODY_LIMIT: usize = 10 * 1024 * 1024;
/// A whole request body.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// Which hosts a request may be addressed to, and which pages may send it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// The name or address given on the command line.
    pub bound: String,
    /// Whether only this machine can reach the daemon.
    pub loopback: bool,
    /// Web pages of these origins may use the daemon and read its answers.
    pub cors: Vec<String>,
}

impl Hosts {
    /// A DNS name other than our own is how a web page reaches a local daemon (DNS rebinding); an address cannot be
    /// rebound.
    fn permits(&self, host: &str) -> bool {
        let Some(name) = host_name(host) else { return false };
        if name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(&self.bound) {
            return true;
        }
        match name.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || (!self.loopback && !address.is_unspecified()),
            Err(_) => false,
        }
    }

    /// A page of this machine, or of the very host that is asked.
    fn permits_origin(&self, origin: &str, host: &str) -> bool {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|from| {
            let Some(name) = host_name(from) else { return false };
            let ours = host_name(host).is_some_and(|host| name.eq_ignore_ascii_case(host))
                || name.eq_ignore_ascii_case("localhost")
                || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
            ours && self.permits(from)
        })
    }

    /// The origin of a page that may read what is answered.
    fn listed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (origin, None) = (origins.next()?, origins.next()) else { return None };
        self.cors.iter().any(|listed| listed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}

/// The host without its port and brackets; `None` for what is none.
fn host_name(host: &str) -> Option<&str> {
    let wrong = |letter: char| !letter.is_ascii_graphic() || "/?#@\\\"<>^`{|}%,".contains(letter);
    if host.contains(wrong) {
        return None;
    }
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_whole && !name.is_empty()).then_some(name)
}

/// An origin as browsers send it: `https://name` or `https://name:port`, in small letters.
///
/// # Errors
/// What is wrong with it.
pub fn cors_origin(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_origin = rest.is_some_and(|host| host_name(host).is_some()) && text.to_ascii_lowercase() == text;
    match is_origin {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is not the origin of a web page: write it as `https://name` or `http://name:port`, without a path; \
             `*` and `null` are everybody, and not taken"
        )),
    }
}

pub(crate) async fn guard(State(hosts): State<Arc<Hosts>>, mut request: Request, next: Next) -> Response {
    let id = uuid::Uuid::now_v7().simple().to_string();
    request.extensions_mut().insert(RequestId(id.clone()));
    let listed = hosts.listed(request.headers());
    let mut response = match refuse(&hosts, &request, listed.is_some()) {
        Some(refusal) => refusal,
        None if listed.is_some() && is_preflight(&request) => preflight(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Some(origin) = listed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    if !hosts.cors.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        // OpenAI's name for it, and Anthropic's
        headers.insert("x-request-id", id.clone());
        headers.insert("request-id", id);
    }
    response
}

/// What pages may read of an answer besides its body.
const EXPOSED: &str =
    "x-request-id, request-id, mcp-session-id, x-session-id, x-turn-id, etag, www-authenticate";
/// What pages may send. Browsers send no credentials of their own: whoever asks sends a key.
const SENT: &str = "authorization, x-api-key, content-type, accept, if-match, last-event-id, x-session-id, x-no-session, \
                    x-lf-events, openai-beta, openai-organization, openai-project, anthropic-version, anthropic-beta, \
                    anthropic-dangerous-direct-browser-access, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, \
                    x-stainless-arch, x-stainless-lang, x-stainless-os, x-stainless-package-version, \
                    x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, \
                    x-stainless-helper-method, x-stainless-async, x-stainless-poll-helper";

/// A browser asks before a request whether it may send it.
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

fn refuse(hosts: &Hosts, request: &Request, is_listed: bool) -> Option<Response> {
    let headers = request.headers();
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let answer = |status, what: &str| Some(Caller::at(request.uri().path(), id.clone()).refuse(status, what));
    let mut given = headers.get_all(header::HOST).iter();
    // a request may name its host twice, and whoever stands in between may go by either
    let named = request.uri().authority().map(http::uri::Authority::as_str);
    let host = match (given.next(), given.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        (None, _) => named.unwrap_or_default(),
        (Some(_), Some(_)) => {
            return answer(StatusCode::BAD_REQUEST, "the request has more than one Host header");
        }
    };
    if host_name(host).is_none() || named.is_some_and(|named| host_name(named).is_none()) {
        return answer(StatusCode::BAD_REQUEST, "the Host header is missing or malformed");
    }
    if let Some(foreign) = [Some(host), named].into_iter().flatten().find(|host| !hosts.permits(host)) {
        let what = format!(
            "the Host `{foreign}` is not this daemon's: use localhost or 127.0.0.1, or start `lf serve --host NAME`"
        );
        return answer(StatusCode::FORBIDDEN, &what);
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_ours =
        |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| hosts.permits_origin(origin, host));
    if !is_listed && !origins.all(is_ours) {
        return answer(StatusCode::FORBIDDEN, "requests from web pages of another origin are refused");
    }
    // browsers leave the origin out of requests that pages cannot read: pictures, scripts, frames
    let from_elsewhere = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    let is_visit = request.method() == Method::GET
        && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
        && headers.get("sec-fetch-dest").is_some_and(|to| to == "document");
    if from_elsewhere && !is_listed && !is_visit {
        return answer(StatusCode::FORBIDDEN, "requests from web pages of another site are refused");
    }
    None
}

/// A JSON body: the declared type, the size and the time are checked before anything is read into values.
///
/// # Errors
/// A whole response, in the caller's dialect.
pub(crate) async fn json_body(parts: &Parts, body: Body) -> Result<Bytes, Response> {
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !(essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json")) {
        let what = format!("the Content-Type is `{kind}`: send `Content-Type: application/json`");
        return Err(Caller::of(parts).refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, &what));
    }
    whole_body(parts, body).await
}

/// A body of any type, within the bounds of size and time.
///
/// # Errors
/// A whole response, in the caller's dialect.
pub(crate) async fn whole_body(parts: &Parts, body: Body) -> Result<Bytes, Response> {
    let refuse = |status, what: &str| Caller::of(parts).refuse(status, what);
    let declared =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > BODY_LIMIT as u64) {
        let what = format!("the request body is larger than {BODY_LIMIT} bytes");
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, &what));
    }
    match tokio::time::timeout(BODY_WAIT, to_bytes(body, BODY_LIMIT)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_large(&error) => {
            let what = format!("the request body is larger than {BODY_LIMIT} bytes");
            Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, &what))
        }
        Ok(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "the request body broke off")),
        Err(_) => {
            let what = format!("the request body did not arrive within {BODY_WAIT:?}");
            Err(refuse(StatusCode::REQUEST_TIMEOUT, &what))
        }
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner.to_string().contains("length limit") {
            return true;
        }
        source = inner.source();
    }
    false
}

pub(crate) async fn not_found(request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let what = format!("there is no route `{} {}`", parts.method, parts.uri.path());
    Caller::of(&parts).refuse(StatusCode::NOT_FOUND, &what)
}

pub(crate) async fn wrong_method(request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let what = format!("`{}` has no method {}", parts.uri.path(), parts.method);
    Caller::of(&parts).refuse(StatusCode::METHOD_NOT_ALLOWED, &what)
}

#[cfg(test)]
mod tests;
