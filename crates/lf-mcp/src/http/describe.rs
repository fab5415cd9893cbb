//! Why an HTTP server gave no usable answer, in words.

use std::error::Error as StdError;
use std::io;

use http::StatusCode;
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};
use rustls::Error as TlsError;

use super::{CONNECT_TIMEOUT, HttpError, told, wanted_pause};
use crate::failure::{Cause, Failure, excerpt};

/// Characters shown of a body that is no answer.
const SHOWN_BODY: usize = 200;

pub(super) fn describe(error: &HttpError, base_url: &str) -> Failure {
    if let Some(told) = told(error) {
        return told.failure.clone();
    }
    match error {
        StreamableHttpError::Client(error) => describe_request(error, base_url),
        StreamableHttpError::AuthRequired(_) => needs_credentials(StatusCode::UNAUTHORIZED),
        StreamableHttpError::InsufficientScope(_) => needs_credentials(StatusCode::FORBIDDEN),
        StreamableHttpError::HttpStatus(error) => too_many(error),
        StreamableHttpError::ReservedHeaderConflict(name) => Failure::hinted(
            format!("header `{name}` is set by the protocol itself"),
            "remove it from `headers`",
        ),
        other => Failure::new(excerpt(&other.to_string(), SHOWN_BODY)),
    }
}

fn too_many(error: &HttpStatusError) -> Failure {
    let status = StatusCode::from_u16(error.status).unwrap_or_default();
    let when = match wanted_pause(error) {
        Some(pause) => format!("; it wants to be left alone for {} s", pause.as_secs()),
        None => String::new(),
    };
    Failure::hinted(
        format!("answered {status}: it has too many requests{when}"),
        "try again later, or have its operator raise the limit",
    )
    .of(Cause::RateLimited)
}

pub(crate) fn describe_status(status: StatusCode, body: &str) -> Failure {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => needs_credentials(status),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Failure::hinted(
            format!("answered {status} at its `base_url`"),
            "check the path of `base_url` and whether the server speaks `http` or the older `sse` transport",
        )
        .of(Cause::HttpStatus),
        status if status.is_redirection() => Failure::hinted(
            format!("answered {status}: it redirects elsewhere"),
            "set `base_url` to the place it redirects to",
        )
        .of(Cause::HttpStatus),
        status => Failure::new(format!("answered {status}{}", said(body))).of(Cause::HttpStatus),
    }
}

/// The beginning of a body, as the end of a sentence.
fn said(body: &str) -> String {
    let body = excerpt(body, SHOWN_BODY);
    if body.is_empty() { String::new() } else { format!(": {body}") }
}

fn needs_credentials(status: StatusCode) -> Failure {
    let said =
        if status == StatusCode::FORBIDDEN { "refuses these credentials" } else { "needs credentials" };
    Failure::hinted(
        format!("answered {status}: it {said}"),
        "set `headers`, such as `Authorization: 'Bearer ${env:API_TOKEN}'`, to what the server expects",
    )
    .of(Cause::AuthRequired)
}

/// Of an answer that is something else, with the beginning of it.
pub(crate) fn not_mcp(kind: Option<&str>, body: &str) -> Failure {
    let kind = kind.map_or("no content type".to_owned(), |kind| format!("`{}`", excerpt(kind, 64)));
    Failure::hinted(
        format!("answered with {kind} instead of MCP{}", said(body)),
        "check `base_url`: this looks like a web page or another API",
    )
    .of(Cause::ProtocolError)
}

/// Of a body that says it is JSON and cannot be read.
pub(super) fn unreadable(body: &str) -> Failure {
    let body = if body.is_empty() { "nothing" } else { body };
    Failure::new(format!("answered with JSON that is no message of the protocol{}", said(body)))
        .of(Cause::ProtocolError)
}

/// Of a body that is packed although nobody asked for it: what it unpacks to has no bound.
pub(crate) fn encoded(encoding: &str) -> Failure {
    Failure::hinted(
        format!("answered in the encoding `{}`, which was not asked for", excerpt(encoding, 64)),
        "turn compression off for requests without `Accept-Encoding` at the server, or at a proxy before it",
    )
    .of(Cause::ProtocolError)
}

/// Whether a connect that failed may succeed in a moment.
pub(super) fn is_passing(error: &reqwest::Error) -> bool {
    let cause = innermost_io(error).map(io::Error::kind);
    tls_error(error).is_none()
        && matches!(cause, Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset))
}

/// Why a request got no answer at all.
pub(crate) fn describe_request(error: &reqwest::Error, base_url: &str) -> Failure {
    if let Some(refused) = lf_egress::Refused::within(error) {
        return Failure::new(refused.to_string());
    }
    let place = place(base_url);
    if let Some(error) = tls_error(error) {
        return describe_tls(error, &place);
    }
    let is_tls = error.is_connect() && place.starts_with("https:");
    match innermost_io(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Failure::hinted(
            format!("Connection refused: nothing listens at {place}"),
            "start the server, or correct `base_url`",
        )
        .of(Cause::Unreachable),
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe)
            if is_tls =>
        {
            Failure::hinted(
                format!("the connection to {place} was cut off while TLS was agreed on"),
                "check that the server speaks TLS at this port",
            )
            .of(Cause::Tls)
        }
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            Failure::new(format!("the connection to {place} was cut off"))
        }
        _ if error.is_timeout() => Failure::hinted(
            format!("no connection to {place} within {} s", CONNECT_TIMEOUT.as_secs()),
            "check the host, the network and any firewall on the way",
        )
        .of(Cause::Unreachable),
        _ if chain(error).contains("dns error") => Failure::hinted(
            format!("the host of {place} was not found"),
            "check the host name in `base_url` and the network",
        )
        .of(Cause::HostNotFound),
        _ if error.is_builder() => Failure::hinted(
            format!("`{}` cannot be requested", excerpt(&place, SHOWN_BODY)),
            "`base_url` must be an http or https URL",
        ),
        _ => Failure::new(format!("no answer from {place}: {}", excerpt(&chain(error), SHOWN_BODY))),
    }
}

/// Nothing less is tried instead, whatever is wrong.
fn describe_tls(error: &TlsError, place: &str) -> Failure {
    use rustls::CertificateError as Certificate;
    let (reason, hint) = match error {
        TlsError::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => (
            format!("the certificate of {place} has expired"),
            "renew the certificate of the server, and check the clock of this machine",
        ),
        TlsError::InvalidCertificate(Certificate::NotValidYet | Certificate::NotValidYetContext { .. }) => (
            format!("the certificate of {place} is not valid yet"),
            "check the clock of this machine and the certificate of the server",
        ),
        TlsError::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => (
            format!("the certificate of {place} is for another host"),
            "use the name in `base_url` that the certificate is made out for",
        ),
        TlsError::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => (
            format!("the certificate of {place} is signed by nobody who is trusted here"),
            "set `SSL_CERT_FILE` to a file with the certificate of the authority that signed it",
        ),
        TlsError::InvalidCertificate(other) => (
            format!("the certificate of {place} was refused: {}", excerpt(&other.to_string(), SHOWN_BODY)),
            "have the server use a certificate of an authority; `SSL_CERT_FILE` names your own",
        ),
        TlsError::PeerIncompatible(_)
        | TlsError::AlertReceived(
            rustls::AlertDescription::ProtocolVersion | rustls::AlertDescription::HandshakeFailure,
        ) => {
            (format!("{place} offers no version of TLS that is safe"), "have the server offer TLS 1.2 or 1.3")
        }
        TlsError::InvalidMessage(_) => (
            format!("{place} does not speak TLS"),
            "check whether `base_url` should begin with `http://`, and its port",
        ),
        other => (
            format!("TLS with {place} failed: {}", excerpt(&other.to_string(), SHOWN_BODY)),
            "check the TLS settings of the server",
        ),
    };
    Failure::hinted(reason, hint).of(Cause::Tls)
}

fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a TlsError> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// An error and its causes. An `io::Error` passes over what it holds: its source is that of its content.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn StdError + 'static) = *error;
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        held.map(|held| held as &(dyn StdError + 'static)).or_else(|| error.source())
    })
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
    causes(error).filter_map(|error| error.downcast_ref()).last()
}

/// The innermost cause of an error: those around it only repeat that there is one.
pub(super) fn reason_of(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
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
