//! Why an HTTP server gave no usable answer, in words.

use std::error::Error as StdError;
use std::io;

use http::StatusCode;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::{CONNECT_TIMEOUT, HttpError};
use crate::failure::{Failure, excerpt};

/// Characters shown of a body that is no answer.
const SHOWN_BODY: usize = 200;

pub(super) fn describe(error: &HttpError, base_url: &str) -> Failure {
    match error {
        StreamableHttpError::Client(error) => describe_request(error, base_url),
        StreamableHttpError::AuthRequired(_) => needs_credentials(StatusCode::UNAUTHORIZED),
        StreamableHttpError::InsufficientScope(_) => needs_credentials(StatusCode::FORBIDDEN),
        StreamableHttpError::HttpStatus(error) => {
            describe_status(StatusCode::from_u16(error.status).unwrap_or_default(), "")
        }
        StreamableHttpError::UnexpectedServerResponse(text) => match parse_status(text) {
            Some((status, body)) => describe_status(status, body),
            None => Failure::new(format!("answered unexpectedly: {}", excerpt(text, SHOWN_BODY))),
        },
        StreamableHttpError::UnexpectedContentType(kind) => not_mcp(kind.as_deref()),
        StreamableHttpError::ReservedHeaderConflict(name) => Failure::hinted(
            format!("header `{name}` is set by the protocol itself"),
            "remove it from `headers`",
        ),
        other => Failure::new(excerpt(&other.to_string(), SHOWN_BODY)),
    }
}

/// The library reports other statuses as text that begins with "HTTP 404 Not Found: ".
fn parse_status(text: &str) -> Option<(StatusCode, &str)> {
    let rest = text.strip_prefix("HTTP ")?;
    let status = StatusCode::from_bytes(rest.get(..3)?.as_bytes()).ok()?;
    Some((status, rest.split_once(": ").map_or("", |(_, body)| body)))
}

pub(crate) fn describe_status(status: StatusCode, body: &str) -> Failure {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => needs_credentials(status),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Failure::hinted(
            format!("answered {status} at its `base_url`"),
            "check the path of `base_url` and whether the server speaks `http` or the older `sse` transport",
        ),
        status if status.is_redirection() => Failure::hinted(
            format!("answered {status}: it redirects elsewhere"),
            "set `base_url` to the place it redirects to",
        ),
        status => {
            let body = excerpt(body, SHOWN_BODY);
            let said = if body.is_empty() { String::new() } else { format!(": {body}") };
            Failure::new(format!("answered {status}{said}"))
        }
    }
}

fn needs_credentials(status: StatusCode) -> Failure {
    let said =
        if status == StatusCode::FORBIDDEN { "refuses these credentials" } else { "needs credentials" };
    Failure::hinted(
        format!("answered {status}: it {said}"),
        "set `headers`, such as `Authorization: 'Bearer ${env:API_TOKEN}'`, to what the server expects",
    )
}

pub(crate) fn not_mcp(kind: Option<&str>) -> Failure {
    let kind = kind.map_or("no content type".to_owned(), |kind| format!("`{}`", excerpt(kind, 64)));
    Failure::hinted(
        format!("answered with {kind} instead of MCP"),
        "check `base_url`: this looks like a web page or another API",
    )
}

/// Why a request got no answer at all.
pub(crate) fn describe_request(error: &reqwest::Error, base_url: &str) -> Failure {
    let place = place(base_url);
    let cause = innermost_io(error);
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Failure::hinted(
            format!("Connection refused: nothing listens at {place}"),
            "start the server, or correct `base_url`",
        ),
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            Failure::new(format!("the connection to {place} was cut off"))
        }
        _ if error.is_timeout() => Failure::hinted(
            format!("no connection to {place} within {} s", CONNECT_TIMEOUT.as_secs()),
            "check the host, the network and any firewall on the way",
        ),
        _ if chain(error).contains("dns error") => Failure::hinted(
            format!("the host of {place} was not found"),
            "check the host name in `base_url` and the network",
        ),
        _ if error.is_builder() => Failure::hinted(
            format!("`{}` cannot be requested", excerpt(&place, SHOWN_BODY)),
            "`base_url` must be an http or https URL",
        ),
        _ => Failure::new(format!("no answer from {place}: {}", excerpt(&chain(error), SHOWN_BODY))),
    }
}

/// The URL without what may be secret in it.
fn place(base_url: &str) -> String {
    let Ok(mut url) = url::Url::parse(base_url) else { return base_url.to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

fn innermost_io<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut found = None;
    let mut current = Some(error);
    while let Some(error) = current {
        found = error.downcast_ref::<io::Error>().or(found);
        current = error.source();
    }
    found
}

/// The causes below the outermost error, whose text may hold the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut parts = Vec::new();
    let mut current = error.source();
    while let Some(error) = current {
        parts.push(error.to_string());
        current = error.source();
    }
    parts.dedup();
    if parts.is_empty() { "the request failed".to_owned() } else { parts.join(": ") }
}
