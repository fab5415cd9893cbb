//! Server-sent events, read leniently and within bounds.
//!
//! A field that is unknown, or that cannot be read, costs nothing but itself: the standard wants it ignored (WHATWG
//! HTML, section 9.2.6). Comments are not kept, so a stream may be kept alive by any number of them.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use sse_stream::Sse;
use thiserror::Error;

pub(crate) type SseError = sse_stream::Error;

/// Milliseconds before a stream is resumed, whatever a server asks for: it is neither flooded nor waited for in vain.
const RETRY: RangeInclusive<u64> = 500..=60_000;
/// Bytes of an id that is remembered; it is sent back in a header.
const MAX_ID: usize = 1024;
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// An event without end, or one that nobody wants whole.
#[derive(Debug, Clone, Copy, Error)]
#[error("an event is larger than {limit} bytes")]
pub(crate) struct TooLarge {
    pub(crate) limit: usize,
}

/// The events of a body, each of at most `limit` bytes. What comes after the last empty line is no event.
pub(crate) fn events<E>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    limit: usize,
) -> BoxStream<'static, Result<Sse, SseError>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let reading = Reading { bytes: bytes.boxed(), parser: Parser::new(limit), failed: None, is_over: false };
    futures_util::stream::unfold(reading, |mut reading| async {
        let event = reading.next().await?;
        Some((event, reading))
    })
    .boxed()
}

/// Whether a stream broke off because an event is too large.
pub(crate) fn is_too_large(error: &SseError) -> bool {
    matches!(error, SseError::Body(error) if error.is::<TooLarge>())
}

struct Reading<E> {
    bytes: BoxStream<'static, Result<Bytes, E>>,
    parser: Parser,
    /// Told after the events that came before it.
    failed: Option<SseError>,
    is_over: bool,
}

impl<E: std::error::Error + Send + Sync + 'static> Reading<E> {
    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        loop {
            if let Some(event) = self.parser.events.pop_front() {
                return Some(Ok(event));
            }
            if self.is_over {
                return self.failed.take().map(Err);
            }
            self.failed = match self.bytes.next().await {
                Some(Ok(chunk)) => match self.parser.read(&chunk) {
                    Ok(()) => continue,
                    Err(error) => Some(SseError::Body(Box::new(error))),
                },
                Some(Err(error)) => Some(SseError::Body(Box::new(error))),
                None => None,
            };
            self.is_over = true;
            // the connection is not kept for what nobody reads
            self.bytes = futures_util::stream::empty().boxed();
        }
    }
}

struct Parser {
    limit: usize,
    /// The line that has begun; of a comment, only that it is one.
    line: Vec<u8>,
    event: Sse,
    /// Bytes kept of the event that has begun.
    kept: usize,
    is_first_line: bool,
    /// A line feed now belongs to the line end before.
    after_return: bool,
    events: VecDeque<Sse>,
}

impl Parser {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: Sse::default(),
            kept: 0,
            is_first_line: true,
            after_return: false,
            events: VecDeque::new(),
        }
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.extend_line(&bytes[..end.unwrap_or(bytes.len())])?;
            let Some(end) = end else { return Ok(()) };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line();
        }
        Ok(())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.line.first() == Some(&b':') {
            return Ok(());
        }
        // a colon within a line may well come first in its piece
        let is_comment = self.line.is_empty() && bytes.first() == Some(&b':');
        if !is_comment && self.kept + self.line.len() + bytes.len() > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(if is_comment { b":" } else { bytes });
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if std::mem::take(&mut self.is_first_line) {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        if text.is_empty() {
            let event = std::mem::take(&mut self.event);
            self.kept = 0;
            let Sse { event: kind, data, id, retry } = &event;
            if kind.is_some() || data.is_some() || id.is_some() || retry.is_some() {
                self.events.push_back(event);
            }
            return;
        }
        let colon = text.iter().position(|byte| *byte == b':');
        let (name, value) = match colon {
            Some(colon) => (&text[..colon], &text[colon + 1..]),
            None => (text, &b""[..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        self.field(name, &value);
    }

    fn field(&mut self, name: &[u8], value: &str) {
        match name {
            b"data" => {
                self.kept += value.len() + 1;
                match &mut self.event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.event.data = Some(value.to_owned()),
                }
            }
            b"event" => {
                self.kept += value.len();
                self.event.event = Some(value.to_owned());
            }
            // it goes back in a header, and not at all when it is empty
            b"id" if !value.is_empty() && value.len() <= MAX_ID && !value.chars().any(char::is_control) => {
                self.event.id = Some(value.to_owned());
            }
            b"retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                // only one that is too long for the type does not parse
                let wanted = value.parse().unwrap_or(u64::MAX);
                self.event.retry = Some(wanted.clamp(*RETRY.start(), *RETRY.end()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
