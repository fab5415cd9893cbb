//! What became of a request that failed, which decides whether it may be sent again.

use std::error::Error as StdError;
use std::io;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};
use thiserror::Error;

use super::describe::describe;
use super::{HttpError, exchange};
use crate::failure::Failure;

/// Longest `Retry-After` that is waited for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What became of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No connection was made: the server does not know of it.
    Unsent,
    /// It was not run, and will not be now; after this pause it may be.
    TurnedAway(Option<Duration>),
    /// It was not run: what was agreed on with the server holds no longer.
    Outdated,
    /// The answer is too large.
    TooLarge,
    /// It may have been run.
    Unknown,
}

/// A failure in our own words, in the library's error.
#[derive(Debug, Error)]
#[error("{failure}")]
pub(crate) struct Told {
    pub(crate) failure: Failure,
    pub(crate) fate: Fate,
    pub(super) status: Option<StatusCode>,
    /// Whether it may have been refused for its session.
    pub(super) doubts_session: bool,
}

impl From<Told> for HttpError {
    fn from(told: Told) -> Self {
        Self::Io(io::Error::other(told))
    }
}

pub(super) fn told(error: &HttpError) -> Option<&Told> {
    match error {
        StreamableHttpError::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// Whether no connection was made, so that the server does not know of the request.
pub(super) fn is_unsent(error: &HttpError) -> bool {
    matches!(error, StreamableHttpError::Client(error) if error.is_connect())
}

/// How long to wait before a server that has too many requests is asked again; `None` where it does not say, or says too
/// much (RFC 9110, section 10.2.3).
fn pause_of(error: &HttpStatusError) -> Option<Duration> {
    wanted_pause(error).filter(|pause| *pause <= MAX_RETRY_AFTER)
}

pub(super) fn wanted_pause(error: &HttpStatusError) -> Option<Duration> {
    let text = error.retry_after.as_deref()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

pub(super) fn fate(error: &HttpError) -> Fate {
    match error {
        error if is_unsent(error) => Fate::Unsent,
        StreamableHttpError::AuthRequired(_)
        | StreamableHttpError::InsufficientScope(_)
        | StreamableHttpError::ReservedHeaderConflict(_) => Fate::TurnedAway(None),
        StreamableHttpError::HttpStatus(error) => Fate::TurnedAway(pause_of(error)),
        StreamableHttpError::ResponseBodyTooLarge { .. } => Fate::TooLarge,
        // Not `SessionRecoveryTimeout`: that is also what ends a request which the old session was still running.
        StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
            Fate::Outdated
        }
        error => told(error).map_or(Fate::Unknown, |told| told.fate),
    }
}

/// Whether another request of another generation would fail just the same: nobody answers, or only those who are known.
pub(crate) fn is_final(error: &(dyn StdError + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<HttpError>() else { return false };
    match error {
        StreamableHttpError::Client(error) => error.is_connect() || error.is_timeout() || error.is_builder(),
        StreamableHttpError::AuthRequired(_)
        | StreamableHttpError::InsufficientScope(_)
        | StreamableHttpError::HttpStatus(_)
        | StreamableHttpError::ReservedHeaderConflict(_) => true,
        error => told(error)
            .and_then(|told| told.status)
            .is_some_and(|status| status.is_redirection() || status == StatusCode::UNAUTHORIZED),
    }
}

/// What a status means that turns a request away for want of credentials, or because there are too many.
pub(crate) fn turned_away(status: StatusCode, headers: &HeaderMap) -> Option<(Failure, Fate)> {
    let error = exchange::turned_away(status, headers)?;
    Some((describe(&error, ""), fate(&error)))
}

/// What a request over this transport failed with, and what became of it; `None` for other transports.
pub(crate) fn failure_of(error: &(dyn StdError + 'static), base_url: &str) -> Option<(Failure, Fate)> {
    let error = error.downcast_ref::<HttpError>()?;
    Some((describe(error, base_url), fate(error)))
}
