//! Messages whose headers say what they are: reasoning, an answer, or a call.

use super::super::body::CUT;
use super::super::candidate::Candidate;
use super::super::format::{Channels, TextFormat};
use super::super::markdown::Context;
use super::super::marks::{self, Seen};
use super::looks::Look;
use super::{Mode, TextScanner};

/// Bytes of a header.
const MAX_HEADER: usize = 512;

/// What a header says.
struct Header<'a> {
    role: Option<&'a str>,
    recipient: Option<&'a str>,
    reasoning: bool,
    /// Bytes of the header, its end mark included.
    length: usize,
}

impl TextScanner {
    pub(super) fn look_for_channel(&mut self) -> Look {
        let formats = self.formats;
        for format in formats {
            let Some(channels) = format.channels else { continue };
            match marks::any(channels.open.iter().map(|open| marks::starts(self.rest(), open))) {
                Seen::No => {}
                Seen::More if self.ended.is_none() => return Look::Undecided,
                Seen::More => {}
                Seen::Yes(open) => return self.open_channel(format, channels, open),
            }
        }
        Look::Other
    }

    fn open_channel(
        &mut self,
        format: &'static TextFormat,
        channels: &'static Channels,
        open: usize,
    ) -> Look {
        let header = match read_header(self.rest(), channels) {
            Ok(header) => header,
            Err(recipient) => {
                if self.ended.is_none() && self.rest().len() < MAX_HEADER {
                    return Look::Undecided;
                }
                // a header without its end: of a call, nothing can be run; of anything else, the mark is left out
                match recipient {
                    true if self.ended.is_some() => self.emit(vec![Err(CUT.to_owned())], self.rest().len()),
                    _ => self.drop(open),
                }
                return Look::Taken;
            }
        };
        let length = header.length;
        let role = header.role.unwrap_or("assistant").to_owned();
        let recipient = header.recipient.map(str::to_owned);
        let reasoning = header.reasoning;
        self.context = Context::new();
        match recipient.as_deref() {
            _ if role != "assistant" && self.has_calls => {
                self.output.removed();
                self.mode = Mode::Invented;
            }
            Some("self") => {
                self.drop(length);
                self.think(channels.reasoning);
            }
            None | Some("user" | "all" | "assistant") => {
                self.drop(length);
                self.context = Context::new();
                if reasoning {
                    self.think(channels.reasoning);
                }
            }
            Some(name) if channels.calls => {
                let name = name.strip_prefix("functions.").unwrap_or(name).to_owned();
                self.mode = Mode::Candidate(Box::new(Candidate::arguments(format, length, name)));
            }
            Some(_) => {
                self.drop(length);
                self.context = Context::new();
            }
        }
        Look::Taken
    }
}

/// The header at the start of `text`. `Err` where it has no end yet: whether it names a recipient.
fn read_header<'a>(text: &'a str, channels: &Channels) -> Result<Header<'a>, bool> {
    let limit = text.floor_char_boundary(text.len().min(MAX_HEADER));
    let head = &text[..limit];
    let message = head.find(channels.message);
    // the end mark may be missing before arguments
    let brace = head.find('{').filter(|&at| recipient(&head[..at]).is_some());
    let (header, length) = match (message, brace) {
        (message, Some(at)) if message.is_none_or(|message| at < message) => (&head[..at], at),
        (Some(at), _) => (&head[..at], at + channels.message.len()),
        (None, _) => return Err(recipient(head).is_some()),
    };
    let words = |text: &'a str| text.split(|c: char| c.is_whitespace() || c == '<').next();
    let after = |mark: &str| header.split(mark).nth(1).map(str::trim_start);
    Ok(Header {
        role: after("<|start|>").and_then(words).filter(|role| !role.is_empty()),
        recipient: recipient(header),
        reasoning: after("<|channel|>").is_some_and(|name| name.starts_with("analysis")),
        length,
    })
}

/// The name after `to=`.
fn recipient(header: &str) -> Option<&str> {
    let (before, after) = header.split_once("to=")?;
    if before.ends_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    after.split(|c: char| c.is_whitespace() || c == '<').next().filter(|name| !name.is_empty())
}
