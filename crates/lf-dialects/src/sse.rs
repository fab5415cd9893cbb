//! Framing of streamed answers: server-sent events and newline-delimited JSON, from bytes cut anywhere.
//!
//! Field rules: WHATWG HTML, "Server-sent events", section 9.2.6. `id` and `retry` are not used by model APIs.

use thiserror::Error;

/// What one event or line may hold. Model APIs send a few KiB; only images in an answer come near.
pub const MAX_EVENT_BYTES: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an event of more than {MAX_EVENT_BYTES} bytes")]
pub struct TooLarge;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The `event:` field; empty where the stream sent none.
    pub event: String,
    /// The `data:` lines joined by line feeds. Invalid UTF-8 becomes U+FFFD.
    pub data: String,
}

/// Server-sent events, incrementally. Linear in the input; holds at most one event.
#[derive(Debug, Default)]
pub struct SseDecoder {
    lines: Lines,
    event: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl SseDecoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next bytes and appends the events they complete.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        let Self { lines, event, data, has_data } = self;
        lines.push(bytes, &mut |line| {
            if line.is_empty() {
                dispatch(event, data, has_data, events);
                return Ok(());
            }
            field(line, event, data, has_data)
        })
    }

    /// The end of the stream: a last event that lacks its blank line is told all the same.
    pub fn finish(&mut self, events: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        let Self { lines, event, data, has_data } = self;
        lines.finish(&mut |line| field(line, event, data, has_data))?;
        dispatch(event, data, has_data, events);
        Ok(())
    }
}

fn field(line: &[u8], event: &mut Vec<u8>, data: &mut Vec<u8>, has_data: &mut bool) -> Result<(), TooLarge> {
    let (name, value) = match line.iter().position(|&byte| byte == b':') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &line[line.len()..]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => {
            if data.len() + value.len() > MAX_EVENT_BYTES {
                return Err(TooLarge);
            }
            if *has_data {
                data.push(b'\n');
            }
            *has_data = true;
            data.extend_from_slice(value);
        }
        b"event" => {
            event.clear();
            event.extend_from_slice(value);
        }
        _ => {}
    }
    Ok(())
}

fn dispatch(event: &mut Vec<u8>, data: &mut Vec<u8>, has_data: &mut bool, events: &mut Vec<SseEvent>) {
    if *has_data {
        events.push(SseEvent { event: text(event), data: text(data) });
    }
    event.clear();
    data.clear();
    *has_data = false;
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Newline-delimited JSON: one value a line, blank lines ignored.
#[derive(Debug, Default)]
pub struct LineDecoder {
    lines: Lines,
}

impl LineDecoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next bytes and appends the lines they complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<String>) -> Result<(), TooLarge> {
        self.lines.push(bytes, &mut |line| keep(line, out))
    }

    /// The end of the stream: a last line without its line end counts.
    pub fn finish(&mut self, out: &mut Vec<String>) -> Result<(), TooLarge> {
        self.lines.finish(&mut |line| keep(line, out))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a line's consumer")]
fn keep(line: &[u8], out: &mut Vec<String>) -> Result<(), TooLarge> {
    if !line.trim_ascii().is_empty() {
        out.push(text(line));
    }
    Ok(())
}

/// Lines that end in LF, CR or CRLF, without a byte order mark at the start of the stream.
#[derive(Debug, Default)]
struct Lines {
    /// The start of a line whose end has not come.
    partial: Vec<u8>,
    /// The last byte was a CR, whose LF may be the next.
    after_cr: bool,
    /// The first line, where the mark may be, is through.
    past_mark: bool,
}

type Consumer<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), TooLarge>;

impl Lines {
    fn push(&mut self, mut bytes: &[u8], consume: Consumer<'_>) -> Result<(), TooLarge> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                if self.partial.len() + bytes.len() > MAX_EVENT_BYTES {
                    return Err(TooLarge);
                }
                self.partial.extend_from_slice(bytes);
                return Ok(());
            };
            self.after_cr = bytes[end] == b'\r';
            let (head, tail) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() {
                self.line(head, consume)?;
            } else {
                let mut line = std::mem::take(&mut self.partial);
                line.extend_from_slice(head);
                self.line(&line, consume)?;
                line.clear();
                self.partial = line;
            }
            bytes = tail;
        }
        Ok(())
    }

    fn finish(&mut self, consume: Consumer<'_>) -> Result<(), TooLarge> {
        let line = std::mem::take(&mut self.partial);
        if line.is_empty() { Ok(()) } else { self.line(&line, consume) }
    }

    fn line(&mut self, mut line: &[u8], consume: Consumer<'_>) -> Result<(), TooLarge> {
        if !std::mem::replace(&mut self.past_mark, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.len() > MAX_EVENT_BYTES {
            return Err(TooLarge);
        }
        consume(line)
    }
}

#[cfg(test)]
mod tests;
