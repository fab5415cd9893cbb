//! Finding a tag at a place: yes, no, or not yet decided.

use super::format::Mark;

/// Bytes of an opening tag with its attributes.
const MAX_TAG: usize = 256;
/// Blanks a model may put inside a tag.
const MAX_BLANKS: usize = 4;
/// Bytes of the name of a tag that is known by its form only.
const MAX_NAME: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    No,
    /// Everything there is fits so far.
    More,
    /// The length in bytes.
    Yes(usize),
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Open,
    Close,
    /// `<name/>`
    Empty,
}

pub(super) fn opens(text: &str, mark: Mark) -> Seen {
    match mark {
        Mark::Tag(name) => tag(text, name, Side::Open),
        Mark::Suffixed(name) => suffixed(text, "<", name),
        Mark::Word(word) => starts(text, word),
    }
}

/// The closing side of a tag; a word is its own closer.
pub(super) fn closes(text: &str, mark: Mark) -> Seen {
    match mark {
        Mark::Tag(name) => tag(text, name, Side::Close),
        Mark::Suffixed(name) => suffixed(text, "</", name),
        Mark::Word(word) => starts(text, word),
    }
}

/// `<name>` or `<name:suffix>`.
fn suffixed(text: &str, start: &str, name: &str) -> Seen {
    let rest = match starts(text, start) {
        Seen::Yes(length) => &text[length..],
        other => return other,
    };
    let after = match starts(rest, name) {
        Seen::Yes(length) => &rest[length..],
        other => return other,
    };
    let suffix = after.strip_prefix(':').map_or(0, |suffix| 1 + name_length(suffix));
    match after.as_bytes().get(suffix) {
        _ if suffix > MAX_NAME => Seen::No,
        None => Seen::More,
        Some(b'>') => Seen::Yes(start.len() + name.len() + suffix + 1),
        Some(_) => Seen::No,
    }
}

pub(super) fn is_empty_element(text: &str, name: &str) -> Seen {
    tag(text, name, Side::Empty)
}

/// An opening tag without attributes, whatever its name; and its name.
pub(super) fn any_opening_tag(text: &str) -> (Seen, &str) {
    let Some(rest) = text.strip_prefix('<') else { return (Seen::No, "") };
    let length = name_length(rest);
    match rest.as_bytes().get(length) {
        _ if length > MAX_NAME => (Seen::No, ""),
        None => (Seen::More, ""),
        Some(b'>') if length > 0 => (Seen::Yes(length + 2), &rest[..length]),
        Some(_) => (Seen::No, ""),
    }
}

fn name_length(text: &str) -> usize {
    text.bytes().take_while(|&byte| byte.is_ascii_alphanumeric() || b"_-:|".contains(&byte)).count()
}

pub(super) fn starts(text: &str, word: &str) -> Seen {
    if text.starts_with(word) {
        Seen::Yes(word.len())
    } else if word.starts_with(text) {
        Seen::More
    } else {
        Seen::No
    }
}

/// The first decided match, or `More` while one is still possible.
pub(super) fn any(seen: impl IntoIterator<Item = Seen>) -> Seen {
    let mut result = Seen::No;
    for one in seen {
        match one {
            Seen::Yes(_) => return one,
            Seen::More => result = Seen::More,
            Seen::No => {}
        }
    }
    result
}

/// Any closing tag, whatever its name.
pub(super) fn any_closing_tag(text: &str) -> Seen {
    let Some(rest) = text.strip_prefix("</") else { return starts(text, "</") };
    let name = name_length(rest);
    match rest.as_bytes().get(name) {
        _ if name > MAX_NAME => Seen::No,
        None => Seen::More,
        Some(b'>') if name > 0 => Seen::Yes("</".len() + name + 1),
        Some(_) => Seen::No,
    }
}

/// `<name>` in any case, with a few blanks inside and attributes in an opening tag; not `<name/>`.
fn tag(text: &str, name: &str, side: Side) -> Seen {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'<') {
        return if bytes.is_empty() { Seen::More } else { Seen::No };
    }
    let mut at = skip_blanks(bytes, 1);
    if side == Side::Close {
        match bytes.get(at) {
            None => return Seen::More,
            Some(b'/') => at = skip_blanks(bytes, at + 1),
            Some(_) => return Seen::No,
        }
    }
    for expected in name.bytes() {
        match bytes.get(at) {
            None => return Seen::More,
            Some(byte) if byte.eq_ignore_ascii_case(&expected) => at += 1,
            Some(_) => return Seen::No,
        }
    }
    let after_name = at;
    at = skip_blanks(bytes, at);
    if side == Side::Empty {
        match bytes.get(at) {
            None => return Seen::More,
            Some(b'/') => at += 1,
            Some(_) => return Seen::No,
        }
    }
    match bytes.get(at) {
        None => Seen::More,
        Some(b'>') => Seen::Yes(at + 1),
        Some(_) if side == Side::Open && at > after_name => attributes(bytes, at),
        Some(_) => Seen::No,
    }
}

fn attributes(bytes: &[u8], from: usize) -> Seen {
    let mut assigned = false;
    for (at, byte) in bytes.iter().enumerate().skip(from).take(MAX_TAG) {
        match byte {
            b'>' if assigned && bytes[at - 1] != b'/' => return Seen::Yes(at + 1),
            b'>' | b'<' | b'\n' | b'{' => return Seen::No,
            b'=' => assigned = true,
            _ => {}
        }
    }
    if bytes.len() >= from + MAX_TAG { Seen::No } else { Seen::More }
}

fn skip_blanks(bytes: &[u8], from: usize) -> usize {
    let blanks =
        bytes.iter().skip(from).take(MAX_BLANKS).take_while(|&&byte| byte == b' ' || byte == b'\t').count();
    from + blanks
}
