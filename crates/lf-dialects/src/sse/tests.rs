use proptest::prelude::*;

use super::*;

fn decode(pieces: &[&[u8]]) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new();
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events).unwrap();
    }
    decoder.finish(&mut events).unwrap();
    events
}

fn event(event: &str, data: &str) -> SseEvent {
    SseEvent { event: event.to_owned(), data: data.to_owned() }
}

#[test]
fn every_line_end_and_field_form_is_read() {
    let bytes = b"\xef\xbb\xbf: hello\r\ndata:a\rdata: b\ndata\n\nevent: error\r\ndata: {}\r\n\r\nid: 7\nretry: 1\n\ndata:  c";
    assert_eq!(decode(&[bytes]), [event("", "a\nb\n"), event("error", "{}"), event("", " c")]);
}

#[test]
fn a_character_cut_between_reads_stays_whole() {
    let bytes = "data: 天😀\n\n".as_bytes();
    for cut in 0..bytes.len() {
        assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), [event("", "天😀")]);
    }
}

#[test]
fn an_event_over_the_bound_is_refused_however_it_comes() {
    let long = vec![b'x'; MAX_EVENT_BYTES];
    let mut events = Vec::new();
    let mut decoder = SseDecoder::new();
    assert!(decoder.push(b"data: ", &mut events).is_ok());
    assert_eq!(decoder.push(&long, &mut events), Err(TooLarge));

    let mut decoder = SseDecoder::new();
    let line = [b"data: ".as_slice(), &long[..MAX_EVENT_BYTES / 2], b"\n"].concat();
    assert!(decoder.push(&line, &mut events).is_ok());
    assert_eq!(decoder.push(&[&line[..], &line[..]].concat(), &mut events), Err(TooLarge));
}

#[test]
fn lines_of_json_come_out_without_blank_ones() {
    let mut decoder = LineDecoder::new();
    let mut lines = Vec::new();
    decoder.push(b"{\"a\":1}\r\n\n{\"b\"", &mut lines).unwrap();
    decoder.push(b":2}", &mut lines).unwrap();
    decoder.finish(&mut lines).unwrap();
    assert_eq!(lines, ["{\"a\":1}", "{\"b\":2}"]);
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_events(
        text in "(data:|data: |event: |: |x|é|😀|\u{feff}|\r|\n|\r\n|\n\n){0,40}",
        cuts in prop::collection::vec(0usize..200, 0..6),
    ) {
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decode(&pieces), decode(&[bytes]));
    }
}
