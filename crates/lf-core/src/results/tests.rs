use super::*;

const WIDE: Room = Room { bytes: 100_000, quarters: 100_000 };

fn look(tool: &str, arguments: Value, text: &str, room: Room) -> Result<String, String> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    Look::parse(tool, &arguments)?.at(text, room)
}

fn read(arguments: Value, text: &str) -> Result<String, String> {
    look(READ, arguments, text, WIDE)
}

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("line number {n}\n")).collect()
}

#[test]
fn bytes_are_read_from_anywhere_and_the_next_offset_is_told() {
    let text = lines(1000);
    let told = read(json!({"handle": "result-1", "offset": 141, "length": 14}), &text).unwrap();
    assert_eq!(
        told,
        format!(
            "[result-1: bytes 141 to 155 of {}, from line 11; the next offset is 155]\nine number 10\n",
            text.len()
        )
    );
    let last = read(json!({"handle": "result-1", "offset": text.len() - 4}), &text).unwrap();
    assert!(last.ends_with("; this is the end]\n999\n"), "{last}");
    let beyond = read(json!({"handle": "result-1", "offset": text.len()}), &text).unwrap_err();
    assert!(beyond.contains("there is nothing at offset"), "{beyond}");
    assert!(read(json!({"handle": "result-1", "offset": u64::MAX}), &text).is_err());
}

#[test]
fn characters_stay_whole_and_every_read_goes_forward() {
    let text = "äöü€😀".repeat(50);
    let narrow = Room { bytes: HEADING + 1, quarters: HEADING + 1 };
    let mut offset = 0;
    let mut together = String::new();
    while offset < text.len() {
        let told = look(READ, json!({"handle": "r", "offset": offset}), &text, narrow).unwrap();
        let (_, excerpt) = told.split_once('\n').unwrap();
        assert!(!excerpt.is_empty());
        together.push_str(excerpt);
        offset += excerpt.len();
    }
    assert_eq!(together, text);
}

#[test]
fn lines_are_read_as_far_as_they_fit() {
    let text = lines(1000);
    let told = read(json!({"handle": "r", "unit": "lines", "offset": 500, "length": 2}), &text).unwrap();
    assert_eq!(
        told,
        "[r: lines 500 to 502 of 1000; the next offset is 502]\nline number 500\nline number 501\n"
    );
    let room = Room { bytes: HEADING + 40, quarters: 1000 };
    let some = look(READ, json!({"handle": "r", "unit": "lines"}), &text, room).unwrap();
    assert!(some.starts_with("[r: lines 0 to 2 of 1000"), "{some}");
    let long = format!("short\n{}\n", "x".repeat(200_000));
    let by_bytes = read(json!({"handle": "r", "unit": "lines", "offset": 1}), &long).unwrap_err();
    assert!(by_bytes.ends_with("read it by bytes, from offset 6"), "{by_bytes}");
    assert!(read(json!({"handle": "r", "unit": "lines", "offset": 9}), &long).is_err());
}

#[test]
fn what_is_read_never_takes_more_room_than_there_is() {
    let text = lines(100_000);
    for room in [Room::new(100, 400), Room::new(25_000, 100_000), Room::new(25_000, 1000)] {
        for arguments in [json!({"handle": "r", "offset": 7}), json!({"handle": "r", "unit": "lines"})] {
            let told = look(READ, arguments, &text, room).unwrap();
            assert!(told.len() <= room.bytes && room.fits(&told) == told.len(), "{} of {room:?}", told.len());
        }
        let told =
            look(SEARCH, json!({"handle": "r", "pattern": "line", "max_matches": 100}), &text, room).unwrap();
        assert!(told.len() <= room.bytes, "{} of {room:?}", told.len());
    }
}

#[test]
fn places_are_found_by_text_and_by_regular_expression() {
    let text = lines(1000);
    let told = look(SEARCH, json!({"handle": "r", "pattern": "number 50\n"}), &text, WIDE).unwrap();
    assert!(told.starts_with("[r: 1 match(es) in bytes 0 to "), "{told}");
    assert!(told.contains("byte 745, line 51: "), "{told}");
    let dots = look(SEARCH, json!({"handle": "r", "pattern": "number .7$"}), &text, WIDE).unwrap();
    assert!(dots.starts_with("[r: 0 match(es)"), "a dot is a dot: {dots}");
    let told = look(
        SEARCH,
        json!({"handle": "r", "pattern": "NUMBER .7$", "regex": true, "ignore_case": true}),
        &text,
        WIDE,
    )
    .unwrap();
    assert!(told.starts_with("[r: 9 match(es)"), "{told}");
    let first =
        look(SEARCH, json!({"handle": "r", "pattern": "line", "max_matches": 2}), &text, WIDE).unwrap();
    assert!(
        first.starts_with("[r: 2 match(es) in bytes 0 to 28 of ") && first.contains("go on with offset 28]"),
        "{first}"
    );
    let then =
        look(SEARCH, json!({"handle": "r", "pattern": "line", "max_matches": 1, "offset": 28}), &text, WIDE)
            .unwrap();
    assert!(then.contains("byte 28, line 3: "), "{then}");
}

#[test]
fn what_lies_over_the_edge_of_what_one_call_looks_through_is_found_once() {
    let edge = 2 * 1024 * 1024;
    let find = |text: &str, pattern: &str, offset: usize| {
        look(SEARCH, json!({"handle": "r", "pattern": pattern, "regex": true, "offset": offset}), text, WIDE)
            .unwrap()
    };
    for before in [edge - 5, edge - 1, edge] {
        let text = format!("{}needle{}", "x".repeat(before), "x".repeat(edge));
        let first = find(&text, "needle$|needle", 0);
        let goes_on = if before < edge { before + 6 } else { edge };
        assert!(first.contains(&format!("go on with offset {goes_on}]")), "{first}");
        let second = find(&text, "needle", goes_on);
        let counts = [&first, &second].map(|told| told.matches("byte ").count());
        assert_eq!(counts, if before < edge { [1, 0] } else { [0, 1] }, "{before}: {first}{second}");
    }
    // the edge is no end of a line
    let text = format!("{}\n", "x".repeat(2 * edge));
    assert!(find(&text, "x{3}$", 0).starts_with("[r: 0 match(es)"));
}

#[test]
fn a_look_begins_where_it_is_told_to() {
    let from = |offset: usize, pattern: &str| {
        look(
            SEARCH,
            json!({"handle": "r", "pattern": pattern, "regex": true, "offset": offset}),
            "aaaa\nab",
            WIDE,
        )
        .unwrap()
    };
    assert!(from(1, "aa").starts_with("[r: 1 match(es)") && from(1, "aa").contains("byte 1, line 1"));
    assert!(from(1, "^a").starts_with("[r: 1 match(es)") && from(1, "^a").contains("byte 5, line 2"));
    assert!(from(0, "b*").starts_with("[r: 7 match(es)"), "{}", from(0, "b*"));
}

#[test]
fn a_pattern_that_would_take_too_much_is_refused_or_goes_on_later() {
    let text = "a".repeat(MAX_KEPT);
    let huge = look(SEARCH, json!({"handle": "r", "pattern": "(a{500}){500}", "regex": true}), &text, WIDE)
        .unwrap_err();
    assert!(huge.contains("the pattern cannot be used"), "{huge}");
    let broken =
        look(SEARCH, json!({"handle": "r", "pattern": "(", "regex": true}), &text, WIDE).unwrap_err();
    assert!(broken.contains("the pattern cannot be used"), "{broken}");
    for length in [search::LONGEST, search::LONGEST + 1, 100 * search::LONGEST] {
        let pattern = "b".repeat(length);
        let taken = look(SEARCH, json!({"handle": "r", "pattern": pattern}), &text, WIDE);
        assert_eq!(taken.is_ok(), length <= search::LONGEST, "{length}");
    }
    let told = look(SEARCH, json!({"handle": "r", "pattern": "b+", "regex": true}), &text, WIDE).unwrap();
    assert!(
        told.contains("0 match(es) in bytes 0 to 2097152 of 8388608; go on with offset 2097152"),
        "{told}"
    );
}

#[test]
fn a_token_is_four_bytes_of_ascii_or_about_one_character_of_another_script() {
    assert_eq!(Room::new(10, 1000).fits(&"x".repeat(100)), 40);
    assert_eq!(Room::new(10, 1000).fits(&"漢".repeat(100)), 30);
    assert_eq!(Room::new(1000, 10).fits(&"漢".repeat(100)), 9, "bytes are a limit, too");
}
