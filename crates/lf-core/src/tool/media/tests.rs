use super::*;

const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[test]
fn base64_is_read_as_programs_write_it_and_told_as_every_api_takes_it() {
    let bare = PIXEL.trim_end_matches('=');
    let lines =
        PIXEL.as_bytes().chunks(20).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>();
    let for_urls = PIXEL.replace('+', "-").replace('/', "_");
    let url = format!("data:image/png;base64,{PIXEL}");
    for text in [PIXEL, bare, &lines.join("\r\n"), &for_urls, &url] {
        let media = read(text).unwrap_or_else(|error| panic!("{error:?} {text}"));
        assert_eq!(media.base64, PIXEL);
        assert_eq!(sniff(&media.bytes), Some("image/png"));
    }
}

#[test]
fn what_is_no_base64_is_told_apart_from_what_is_too_large() {
    assert_eq!(read("not base64!").err(), Some(Unreadable::NotBase64));
    assert_eq!(read("AAAAA").err(), Some(Unreadable::NotBase64));
    assert_eq!(read("").err(), Some(Unreadable::Empty));
    assert_eq!(read(" \n").err(), Some(Unreadable::Empty));
    let large = "A".repeat(MAX_ITEM + 4);
    assert!(matches!(read(&large).err(), Some(Unreadable::TooLarge(bytes)) if bytes > 3 * 1024 * 1024));
    let huge = "A".repeat(50 * 1024 * 1024);
    assert!(matches!(read(&huge).err(), Some(Unreadable::TooLarge(_))));
}

#[test]
fn types_are_told_by_their_first_bytes() {
    for (bytes, kind) in [
        (&b"\xff\xd8\xff\xe0rest"[..], Some("image/jpeg")),
        (b"GIF89a..", Some("image/gif")),
        (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
        (b"RIFF\0\0\0\0WAVEfmt ", Some("audio/wav")),
        (b"ID3\x04", Some("audio/mp3")),
        (b"\xff\xfb\x90\x00", Some("audio/mp3")),
        (b"\xff\xf1\x50\x80", Some("audio/aac")),
        (b"OggS\0", Some("audio/ogg")),
        (b"%PDF-1.7\n", Some("application/pdf")),
        (b"\0\0\0\x20ftypheic", Some("image/heic")),
        (b"<svg xmlns=", None),
        (b"", None),
        (b"\x89PN", None),
    ] {
        assert_eq!(sniff(bytes), kind, "{bytes:?}");
    }
}
