//! What every request passes first: Host and Origin (a web page must not reach a local daemon), content type, size,
//! and a request id.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::reply::{Caller, RequestId};

/// Largest request body, in bytes.
pub(crate) const BODY_LIMIT: usize = 10 * 1024 * 1024;
/// A whole request body.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// Which hosts a request may be addressed to.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    /// The name or address given on the command line.
    pub bound: String,
    /// Whether other machines can reach the daemon at all.
    pub loopback: bool,
}

impl Hosts {
    /// A DNS name other than our own is how a web page reaches a local daemon (DNS rebinding); an address cannot be
    /// rebound.
    fn permits(&self, host: &str) -> bool {
        let name = host_name(host);
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
            let name = host_name(from);
            let ours = name.eq_ignore_ascii_case(host_name(host))
                || name.eq_ignore_ascii_case("localhost")
                || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
            !from.contains(['/', '?', '#', '@', '\\']) && ours && self.permits(from)
        })
    }
}

/// The host without its port and brackets.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

pub(crate) async fn guard(State(hosts): State<Hosts>, mut request: Request, next: Next) -> Response {
    let id = uuid::Uuid::now_v7().simple().to_string();
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = match refuse(&hosts, &request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    if let Ok(id) = HeaderValue::from_str(&id) {
        // OpenAI's name for it, and Anthropic's
        response.headers_mut().insert("x-request-id", id.clone());
        response.headers_mut().insert("request-id", id);
    }
    response
}

fn refuse(hosts: &Hosts, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let answer = |status, what: &str| Some(Caller::at(request.uri().path(), id.clone()).refuse(status, what));
    let mut given = headers.get_all(header::HOST).iter();
    let host = match (given.next(), given.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        (None, _) => request.uri().host().unwrap_or_default(),
        (Some(_), Some(_)) => {
            return answer(StatusCode::BAD_REQUEST, "the request has more than one Host header");
        }
    };
    if host.is_empty() || host.contains(['/', '?', '#', '@', '\\', ' ']) {
        return answer(StatusCode::BAD_REQUEST, "the Host header is missing or malformed");
    }
    if !hosts.permits(host) {
        let what = format!(
            "the Host `{host}` is not this daemon's: use localhost or 127.0.0.1, or start `lf serve --host NAME`"
        );
        return answer(StatusCode::FORBIDDEN, &what);
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if origins.all(|origin| origin.to_str().is_ok_and(|origin| hosts.permits_origin(origin, host))) {
        return None;
    }
    answer(StatusCode::FORBIDDEN, "requests from web pages of another origin are refused")
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
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_and_addresses_are_hosts() {
        let local = Hosts { bound: "127.0.0.1".to_owned(), loopback: true };
        for host in ["localhost", "localhost:14345", "127.0.0.1:1", "[::1]:14345", "LOCALHOST"] {
            assert!(local.permits(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "0.0.0.0:14345", "10.0.0.1", "localhost.evil"]
        {
            assert!(!local.permits(host), "{host}");
        }
        let open = Hosts { bound: "farm.lan".to_owned(), loopback: false };
        assert!(open.permits("farm.lan:14345") && open.permits("10.0.0.1:14345"));
        assert!(!open.permits("other.lan"));
    }

    #[test]
    fn an_origin_is_a_scheme_and_one_of_our_hosts() {
        let local = Hosts { bound: "127.0.0.1".to_owned(), loopback: true };
        assert!(local.permits_origin("http://localhost:3000", "127.0.0.1:1"));
        let open = Hosts { bound: "farm.lan".to_owned(), loopback: false };
        assert!(open.permits_origin("http://10.0.0.1:80", "10.0.0.1:14345"));
        assert!(!open.permits_origin("http://203.0.113.5", "10.0.0.1:14345"));
        for origin in ["null", "file://", "https://evil.example", "http://localhost@evil.example"] {
            assert!(!local.permits_origin(origin, "localhost"), "{origin}");
        }
    }
}
