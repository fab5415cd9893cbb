//! Media that a tool returned, checked before a model's API is sent them: one image that it cannot read costs the whole
//! request there, and with it the chat.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Base64 of one item, in bytes: what Anthropic takes of an image, and less than the others do.
pub(crate) const MAX_ITEM: usize = 5 * 1024 * 1024;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// What base64 held.
#[derive(Debug)]
pub(crate) struct Media<'a> {
    /// As every API takes it: the standard alphabet, with padding, without line breaks.
    pub(crate) base64: Cow<'a, str>,
    pub(crate) bytes: Vec<u8>,
}

/// Why there is nothing to show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Empty,
    NotBase64,
    /// Its size in bytes, once decoded.
    TooLarge(usize),
}

/// Decodes base64 as programs write it: also with line breaks, without padding, in the alphabet for URLs, or as a `data:`
/// URL.
pub(crate) fn read(text: &str) -> Result<Media<'_>, Unreadable> {
    let data = match text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        Some(_) => text.split_once(',').map_or(text, |(_, data)| data),
        None => text,
    };
    if data.len() > MAX_ITEM + MAX_ITEM / 32 {
        return Err(Unreadable::TooLarge(data.len() / 4 * 3));
    }
    let is_plain = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    let data = match is_plain {
        true => Cow::Borrowed(data),
        false => Cow::Owned(
            data.chars()
                .filter(|c| !c.is_ascii_whitespace())
                .map(|c| match c {
                    '-' => '+',
                    '_' => '/',
                    c => c,
                })
                .collect(),
        ),
    };
    if data.len() > MAX_ITEM {
        return Err(Unreadable::TooLarge(data.len() / 4 * 3));
    }
    let bytes = LENIENT.decode(data.as_bytes()).map_err(|_| Unreadable::NotBase64)?;
    if bytes.is_empty() {
        return Err(Unreadable::Empty);
    }
    let is_whole = data.len().is_multiple_of(4);
    let base64 = if is_whole { data } else { Cow::Owned(LENIENT.encode(&bytes)) };
    Ok(Media { base64, bytes })
}

/// The type that the first bytes tell, of those that models are shown or that are often mistaken for them.
pub(crate) fn sniff(bytes: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, mark: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(mark));
    Some(match bytes {
        _ if at(0, b"\x89PNG\r\n\x1a\n") => "image/png",
        _ if at(0, b"\xff\xd8\xff") => "image/jpeg",
        _ if at(0, b"GIF87a") || at(0, b"GIF89a") => "image/gif",
        _ if at(0, b"RIFF") && at(8, b"WEBP") => "image/webp",
        _ if at(0, b"RIFF") && at(8, b"WAVE") => "audio/wav",
        _ if at(0, b"ID3") => "audio/mp3",
        [0xff, second, ..] if second & 0xe6 == 0xe2 => "audio/mp3",
        [0xff, second, ..] if second & 0xf6 == 0xf0 => "audio/aac",
        _ if at(0, b"OggS") => "audio/ogg",
        _ if at(0, b"fLaC") => "audio/flac",
        _ if at(4, b"ftypM4A") => "audio/mp4",
        _ if at(4, b"ftypavif") => "image/avif",
        _ if at(4, b"ftyphei") || at(4, b"ftypmif1") => "image/heic",
        _ if at(4, b"ftyp") => "video/mp4",
        _ if at(0, b"%PDF-") => "application/pdf",
        _ if at(0, b"BM") && at(6, &[0; 4]) => "image/bmp",
        _ if at(0, b"II*\0") || at(0, b"MM\0*") => "image/tiff",
        _ if at(0, b"PK\x03\x04") => "application/zip",
        _ if at(0, b"\x1f\x8b") => "application/gzip",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
