use super::*;

const TIME: &str = "2026-11-21T08:21:34Z";

fn record(tool: &str) -> Record {
    let arguments = Some(hash_of(br#"{"path":"a"}"#));
    Record { server: Some("fs".into()), tool: Some(tool.into()), arguments, ..Record::new(Event::Call) }
}

fn lines() -> Vec<String> {
    let mut chain = Chain::default();
    ["read", "write", "\"},\"hash\":\"x", "list"].map(|tool| chain.add(&record(tool), TIME)).into()
}

fn verify(lines: &[String]) -> Result<Chain, (usize, Broken)> {
    let mut chain = Chain::default();
    for (at, line) in lines.iter().enumerate() {
        chain.follow(line).map_err(|broken| (at, broken))?;
    }
    Ok(chain)
}

#[test]
fn what_was_written_is_followed_to_its_end() {
    let lines = lines();
    let end = verify(&lines).unwrap();
    assert_eq!((end.number, lines[3].contains(&end.hash)), (4, true));
    let value: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(value["event"], "call");
    assert_eq!(value["time"], TIME);
    assert_eq!(value["arguments"].as_str().unwrap().len(), "sha256:".len() + 64);
    let value: Value = serde_json::from_str(&lines[2]).unwrap();
    assert_eq!(value["tool"], "\"},\"hash\":\"x");
}

#[test]
fn every_byte_that_is_changed_is_found() {
    let whole = lines();
    for (at, line) in whole.iter().enumerate() {
        for byte in 0..line.len() {
            let mut changed = whole.clone();
            let mut bytes = line.clone().into_bytes();
            bytes[byte] ^= 1;
            changed[at] = String::from_utf8(bytes).unwrap();
            let (found, _) = verify(&changed).unwrap_err();
            assert_eq!(found, at, "byte {byte}");
        }
    }
}

#[test]
fn lines_that_are_left_out_put_in_or_exchanged_are_found() {
    let whole = lines();
    let mut without = whole.clone();
    without.remove(1);
    assert_eq!(verify(&without), Err((1, Broken::Gap { last: 1, found: 3 })));
    let mut twice = whole.clone();
    twice.insert(1, whole[0].clone());
    assert_eq!(verify(&twice), Err((1, Broken::Gap { last: 1, found: 1 })));
    // another record of the same number, right in itself
    let mut foreign = whole.clone();
    let mut chain = Chain { number: 1, hash: "f".repeat(64) };
    foreign[1] = chain.add(&record("other"), TIME);
    assert_eq!(verify(&foreign), Err((1, Broken::Foreign)));
    // and one that was put in the place of a line: the one after it does not fit any more
    let mut forged = whole.clone();
    let mut chain = Chain::at(&whole[0]).unwrap();
    forged[1] = chain.add(&record("other"), TIME);
    assert_eq!(verify(&forged), Err((2, Broken::Foreign)));
}

#[test]
fn a_record_whose_beginning_was_put_away_is_followed_from_its_first_line() {
    let lines = lines();
    let mut chain = Chain::at(&lines[1]).unwrap();
    chain.follow(&lines[2]).unwrap();
    assert_eq!(Chain::at("{}"), Err(Broken::NoRecord));
    assert_eq!(Chain::at(&lines[1].replace("write", "wrote")), Err(Broken::Changed));
}

#[test]
fn details_are_one_line_of_bounded_length_that_no_terminal_obeys() {
    let told = Record::new(Event::Denied).detail(&format!("a\u{1b}[31m\nb{}", "c".repeat(1000)));
    let detail = told.detail.unwrap();
    assert_eq!(detail.chars().count(), 500);
    assert!(detail.starts_with("a bccc"), "{detail}");
}

#[test]
fn names_are_bounded_and_those_that_are_cut_stay_apart() {
    let named = |name: String| record(&name).bounded().tool.unwrap();
    for plain in ["read", "lesen/größe", "\"},\"hash\":\"x"] {
        assert_eq!(named(plain.to_owned()), plain);
    }
    let most = "x".repeat(MOST_NAME);
    assert_eq!(named(most.clone()), most);
    let (one, other) = (named(format!("{most}1")), named(format!("{most}2")));
    assert!(one.starts_with(&format!("{most}… (sha256:")) && one.len() < 400, "{one}");
    assert_ne!(one, other);
    // nobody sees that it is another name
    assert!(named("re\u{200b}ad".to_owned()).starts_with("read… (sha256:"));
    let long = Chain::default().add(&record(&"\u{1}".repeat(1 << 20)).bounded(), TIME);
    assert!(long.len() < 4096, "{}", long.len());
}

#[test]
fn events_are_called_in_records_as_they_are_on_the_command_line() {
    for event in Event::ALL {
        assert_eq!(serde_json::to_value(event).unwrap(), event.name());
    }
}
