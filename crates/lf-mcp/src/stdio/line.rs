//! Lines of bounded length. What is too long is skipped, and whose answer it was is read off its ends.

use std::io;

use rmcp::model::RequestId;
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Bytes kept of either end of a line that is skipped.
const ENDS: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    /// Without its line end.
    Whole(Vec<u8>),
    /// Longer than the limit. `id` is that of the answer it was, where it can be told.
    TooLong {
        id: Option<RequestId>,
    },
    End,
}

pub(super) struct LineReader<R> {
    reader: R,
    limit: usize,
    line: Vec<u8>,
    /// The last bytes of the line that is being skipped.
    skipping: Option<Skipped>,
}

struct Skipped {
    end: Vec<u8>,
    /// The line was reported already, from its head.
    reported: bool,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, line: Vec::new(), skipping: None }
    }

    /// Cancel-safe. A last line without an end is not reported: it was cut off.
    pub(super) async fn next(&mut self) -> io::Result<Line> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(Line::End);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |position| position + 1);
            let part = available[..newline.unwrap_or(available.len())].to_vec();
            let mut found = None;
            if self.skipping.is_none() && self.line.len() + part.len() <= self.limit {
                self.line.extend_from_slice(&part);
            } else {
                found = self.skip(part);
            }
            self.reader.consume(taken);
            if found.is_some() {
                if newline.is_some() {
                    // the next line is another one
                    self.skipping = None;
                }
                return Ok(Line::TooLong { id: found });
            }
            if newline.is_none() {
                continue;
            }
            return match self.skipping.take() {
                None => Ok(Line::Whole(clean(std::mem::take(&mut self.line)))),
                Some(skipped) if skipped.reported => continue,
                Some(skipped) => Ok(Line::TooLong { id: id_at_end(&skipped.end) }),
            };
        }
    }

    /// Skips a part of a line that is too long. Returns its id when that can be told now, once.
    fn skip(&mut self, mut part: Vec<u8>) -> Option<RequestId> {
        let mut found = None;
        let skipped = self.skipping.get_or_insert_with(|| {
            let head: Vec<u8> = self.line.iter().chain(&part).take(ENDS).copied().collect();
            found = id_at_start(&head);
            let end = std::mem::take(&mut self.line);
            Skipped { end, reported: found.is_some() }
        });
        skipped.end.append(&mut part);
        let surplus = skipped.end.len().saturating_sub(ENDS);
        skipped.end.drain(..surplus);
        skipped.end.shrink_to(ENDS);
        found
    }
}

fn clean(mut line: Vec<u8>) -> Vec<u8> {
    const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.starts_with(BYTE_ORDER_MARK) {
        line.drain(..BYTE_ORDER_MARK.len());
    }
    line
}

/// The id of an answer that begins like `{"jsonrpc":"2.0","id":7,"result":…`, as the Python SDK writes it.
fn id_at_start(head: &[u8]) -> Option<RequestId> {
    let text = String::from_utf8_lossy(head);
    let (before, after) = text.split_once("\"id\":")?;
    let is_top_level = before.matches('{').count() == 1 && !before.contains("\"method\"");
    is_top_level.then(|| first_value(after)).flatten()
}

/// The id of an answer that ends like `…},"jsonrpc":"2.0","id":7}`, as the TypeScript SDK writes it.
fn id_at_end(end: &[u8]) -> Option<RequestId> {
    let text = String::from_utf8_lossy(end);
    let (_, after) = text.rsplit_once("\"id\":")?;
    let is_top_level = after.matches(['{', '}']).count() == 1 && after.trim_end().ends_with('}');
    is_top_level.then(|| first_value(after)).flatten()
}

fn first_value(text: &str) -> Option<RequestId> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    RequestId::deserialize(values.next()?.ok()?).ok()
}
