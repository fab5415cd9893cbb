//! One connection: requests in, frames out, one response at a time, and the ways it ends.
//!
//! It is read all the while, because that is how a client that goes away is noticed; requests that come while a response
//! is told wait for their turn. When too many wait it is not read until there is room, which slows the client down.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, close_code};
use futures_core::Stream;
use futures_util::StreamExt as _;
use lf_dialects::openai_chat::RequestError;
use lf_dialects::openai_responses::{
    Create, error_frame, limit_frame, read_create, request_error_reply, too_large_frame,
};
use tokio::time::{Instant, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::guard::BODY_LIMIT;

/// Between two pings. Their answers show that somebody is there, and proxies see that the connection is used.
const PING: Duration = Duration::from_secs(30);
/// Without a frame of any kind, or with one that the client does not take, nobody is there.
const SILENCE: Duration = Duration::from_secs(60);
/// A connection's whole life, as the specification has it.
const LIFE: Duration = Duration::from_secs(60 * 60);
/// For the client to say goodbye as well; within what a drain waits for cut streams.
const GOODBYE: Duration = Duration::from_secs(1);
/// Requests that wait for the response before theirs.
const WAITING: usize = 16;

/// The frames of one answer.
pub(super) type Frames = Pin<Box<dyn Stream<Item = String> + Send>>;

/// The connection, as far as it matters here; tests have one without a network.
pub(super) trait Line: Send {
    /// `None` at its end.
    fn hear(&mut self) -> impl Future<Output = Option<Result<Message, axum::Error>>> + Send;
    fn tell(&mut self, message: Message) -> impl Future<Output = Result<(), axum::Error>> + Send;
}

/// What ends connections from outside.
pub(super) struct Ends {
    /// Finish what runs, begin nothing else, and close.
    pub stop: CancellationToken,
}

/// Talks until the connection ends. Dropped, or at the client's end, the running turn is cancelled.
pub(super) async fn talk(mut line: impl Line, ends: &Ends, turn: impl Fn(Create) -> Frames + Send) {
    let goodbye = converse(&mut line, ends, turn).await;
    debug!(?goodbye, "a connection ends");
    let close = |code, reason: &'static str| Some(CloseFrame { code, reason: reason.into() });
    let (last, close) = match goodbye {
        // reading on is what answers the client's own goodbye
        Goodbye::Gone => (None, None),
        Goodbye::Away => (None, close(close_code::AWAY, "the daemon is shutting down")),
        Goodbye::Limit => {
            (Some(limit_frame()), close(close_code::NORMAL, "the connection has lasted long enough"))
        }
        Goodbye::TooLong => {
            (Some(too_large_frame(BODY_LIMIT)), close(close_code::SIZE, "the message is too large"))
        }
    };
    let goodbye = async {
        if let Some(frame) = last {
            line.tell(Message::text(frame)).await?;
        }
        if let Some(close) = close {
            line.tell(Message::Close(Some(close))).await?;
        }
        while let Some(Ok(_)) = line.hear().await {}
        Ok::<_, axum::Error>(())
    };
    // whoever does not answer it is gone all the same
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goodbye {
    /// The client closed it, broke it, or is silent.
    Gone,
    Away,
    Limit,
    TooLong,
}

async fn converse(line: &mut impl Line, ends: &Ends, turn: impl Fn(Create) -> Frames) -> Goodbye {
    let began = Instant::now();
    let mut heard = began;
    let mut pings = interval_at(began + PING, PING);
    let mut waiting = Waiting::default();
    let mut running: Option<Frames> = None;
    let (mut stop, mut old) = (false, false);
    loop {
        if running.is_none() {
            if stop {
                return Goodbye::Away;
            }
            if old {
                return Goodbye::Limit;
            }
            running = waiting.next().map(|asked| match asked {
                Ok(create) => turn(create),
                Err(error) => {
                    let frame = error_frame(request_error_reply(&error));
                    Box::pin(futures_util::stream::iter([frame]))
                }
            });
        }
        let say = tokio::select! {
            // what has come counts before the silence is measured
            biased;
            message = line.hear(), if waiting.has_room() => {
                heard = Instant::now();
                match message {
                    Some(Ok(Message::Text(text))) => waiting.push(text.as_str().as_bytes()),
                    Some(Ok(Message::Binary(bytes))) => waiting.push(&bytes),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_))) | None => return Goodbye::Gone,
                    Some(Err(error)) if error.to_string().contains("too long") => return Goodbye::TooLong,
                    Some(Err(_)) => return Goodbye::Gone,
                }
                continue;
            }
            () = ends.stop.cancelled(), if !stop => {
                stop = true;
                continue;
            }
            () = sleep_until(began + LIFE), if !old => {
                old = true;
                continue;
            }
            _ = pings.tick() => {
                if waiting.has_room() && heard.elapsed() >= SILENCE {
                    return Goodbye::Gone;
                }
                Message::Ping(Default::default())
            }
            frame = next(&mut running) => match frame {
                Some(frame) => Message::text(frame),
                None => {
                    running = None;
                    continue;
                }
            },
        };
        if !matches!(timeout(SILENCE, line.tell(say)).await, Ok(Ok(()))) {
            return Goodbye::Gone;
        }
    }
}

async fn next(running: &mut Option<Frames>) -> Option<String> {
    match running {
        Some(frames) => frames.next().await,
        None => pending().await,
    }
}

/// Requests in the order they came; one that cannot be read is answered when its turn comes, not into another's answer.
#[derive(Default)]
struct Waiting {
    asked: VecDeque<Result<Create, RequestError>>,
    bytes: usize,
}

impl Waiting {
    fn has_room(&self) -> bool {
        self.asked.len() < WAITING && self.bytes < BODY_LIMIT
    }

    fn push(&mut self, frame: &[u8]) {
        let asked = read_create(frame);
        self.bytes += size(&asked);
        self.asked.push_back(asked);
    }

    fn next(&mut self) -> Option<Result<Create, RequestError>> {
        let asked = self.asked.pop_front()?;
        self.bytes -= size(&asked);
        Some(asked)
    }
}

fn size(asked: &Result<Create, RequestError>) -> usize {
    asked.as_ref().map_or(0, |create| create.body.len())
}

#[cfg(test)]
mod tests;
