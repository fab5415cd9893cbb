use super::*;

fn parse(pieces: &[&[u8]], limit: usize) -> Result<Vec<Sse>, TooLarge> {
    let mut parser = Parser::new(limit);
    for piece in pieces {
        parser.read(piece)?;
    }
    Ok(parser.events.into())
}

fn data(text: &[u8]) -> Vec<String> {
    parse(&[text], 1000).unwrap().into_iter().filter_map(|event| event.data).collect()
}

#[test]
fn every_line_end_and_a_byte_order_mark_are_read_and_cuts_make_no_difference() {
    let text = "\u{feff}data: one\r\rdata: two\n\ndata: three\r\n\r\n: comment\nid: é\ndata: a\ndata: b\n\n"
        .as_bytes();
    let whole = format!("{:?}", parse(&[text], 1000).unwrap());
    assert_eq!(data(text), ["one", "two", "three", "a\nb"]);
    for cut in 0..=text.len() {
        let (head, tail) = text.split_at(cut);
        assert_eq!(format!("{:?}", parse(&[head, tail], 1000).unwrap()), whole, "cut at {cut}");
    }
}

#[test]
fn what_comes_without_an_empty_line_is_no_event() {
    assert!(data(b"data: {\"half\":").is_empty());
    assert!(data(b"data: whole but not ended\n").is_empty());
}

#[test]
fn a_field_that_cannot_be_read_costs_nothing_else() {
    let text = b"retry: soon\nretry: -1\nunknown: x\nno colon\ndata: \xff\ndata\nid: a\x00b\n\n";
    let events = parse(&[text], 1000).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].data.as_deref(), &events[0].id, events[0].retry),
        (Some("\u{fffd}\n"), &None, None)
    );
}

#[test]
fn the_pause_before_a_stream_is_resumed_is_half_a_second_to_a_minute() {
    for (asked, kept) in
        [("0", 500), ("1500", 1500), ("99999999", 60_000), ("99999999999999999999999999", 60_000)]
    {
        let events = parse(&[format!("retry: {asked}\n\n").as_bytes()], 1000).unwrap();
        assert_eq!(events[0].retry, Some(kept), "{asked}");
    }
}

#[test]
fn an_id_that_no_header_can_carry_is_not_kept() {
    for id in ["", "a\tb", "a\u{85}b", &"x".repeat(2000)] {
        let events = parse(&[format!("id: {id}\ndata: x\n\n").as_bytes()], 10_000).unwrap();
        assert_eq!(events[0].id, None, "{id}");
    }
}

#[test]
fn an_event_beyond_the_limit_ends_it_and_a_flood_of_comments_does_not() {
    assert!(parse(&[b"data: ", &[b'x'; 200]], 100).is_err());
    let lines: Vec<&[u8]> = std::iter::repeat_n(&b"data: xxxxxxxxxx\n"[..], 20).collect();
    assert!(parse(&lines, 100).is_err());
    let comments: Vec<&[u8]> = std::iter::repeat_n(&b": ping\n"[..], 1000).collect();
    assert!(parse(&comments, 100).unwrap().is_empty());
    let long: Vec<&[u8]> = std::iter::repeat_n(&b": endless"[..], 1000).collect();
    assert!(parse(&long, 100).unwrap().is_empty());
    assert_eq!(data(b": a comment\ndata: x\n\n"), ["x"]);
    // a piece that begins with a colon is only a comment where a line begins
    let colons = std::iter::once(&b"data: "[..]).chain(std::iter::repeat_n(&b"::::::::"[..], 20));
    assert!(parse(&colons.collect::<Vec<_>>(), 100).is_err());
}
