use super::*;

/// One delta: `index|id|name|arguments` per entry, `-` for an absent index.
fn assemble(deltas: &[&[&str]], ending: Ending) -> String {
    let mut assembler = Assembler::default();
    for delta in deltas {
        assembler.begin_delta();
        for entry in *delta {
            let fields: Vec<&str> = entry.splitn(4, '|').collect();
            let fragment = Fragment {
                index: fields[0].parse().ok(),
                id: fields[1],
                name: fields[2],
                arguments: Piece::Text(fields[3]),
                rest: Map::new(),
            };
            assembler.add(fragment).unwrap();
        }
    }
    let calls = assembler.finish(ending);
    let lines = calls.iter().map(|call| match call.arguments.value() {
        Ok(object) => format!("{} {} {}", call.id, call.name, Value::Object(object.clone())),
        Err(problem) => format!("{} {} !{problem}: {}", call.id, call.name, call.arguments.raw()),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn clean(deltas: &[&[&str]]) -> String {
    assemble(deltas, Ending::Clean)
}

#[test]
fn interleaved_indexes_stay_apart() {
    let deltas: &[&[&str]] =
        &[&["0|a|one|", "1|b|two|"], &["1|||{\"x\":"], &["0|||{\"y\":"], &["1|||1}", "0|||2}"]];
    assert_eq!(clean(deltas), "a one {\"y\":2}\nb two {\"x\":1}");
}

#[test]
fn a_new_id_on_a_used_index_is_a_new_call() {
    assert_eq!(clean(&[&["0|a|one|{}", "0|b|one|{\"x\":1}"], &["0|b||"]]), "a one {}\nb one {\"x\":1}");
}

#[test]
fn another_name_after_complete_arguments_is_a_new_call() {
    assert_eq!(clean(&[&["0||one|{\"x\":1}"], &["0||two|{}"]]), " one {\"x\":1}\n two {}");
    assert_eq!(clean(&[&["0||one|{\"x\":"], &["0||two|1}"]]), " one {\"x\":1}");
}

#[test]
fn calls_without_indexes_are_told_apart_by_id_then_by_name() {
    assert_eq!(clean(&[&["-|a|one|{\"x\":1}"], &["-|b|one|{\"x\":2}"]]), "a one {\"x\":1}\nb one {\"x\":2}");
    assert_eq!(clean(&[&["-|a|one|"], &["-|||{\"x\":"], &["-|a||1}"]]), "a one {\"x\":1}");
    assert_eq!(clean(&[&["-||one|", "-||two|{}"]]), " one {}\n two {}");
    assert_eq!(clean(&[&["-|a|one|"], &["0|||{\"x\":1}"]]), "a one {\"x\":1}");
    assert_eq!(clean(&[&["-||one|{\"x\":1}", "-||one|{\"x\":2}"]]), " one {\"x\":1}\n one {\"x\":2}");
}

#[test]
fn ids_and_names_are_set_once_in_whatever_order_they_come() {
    let resent: &[&[&str]] = &[&["0|a|one|"], &["0|a|one|{\"x\":"], &["0|a|one|1}"]];
    assert_eq!(clean(resent), "a one {\"x\":1}");
    assert_eq!(clean(&[&["0||one|{"], &["0|a||}"]]), "a one {}");
    assert_eq!(clean(&[&["0|a||{"], &["0||one|}"]]), "a one {}");
}

#[test]
fn arguments_sent_again_count_once() {
    assert_eq!(clean(&[&["0|a|one|{\"x\":1}"], &["0|||{\"x\":1}"]]), "a one {\"x\":1}");
    assert_eq!(clean(&[&["0|a|one|{"], &["0|||{\"x\":"], &["0|||{\"x\":1}"]]), "a one {\"x\":1}");
    assert_eq!(clean(&[&["0|a|one|{}"], &["0|||{\"x\":"], &["0|||1}"]]), "a one {\"x\":1}");
}

#[test]
fn an_object_that_starts_like_its_parent_is_not_taken_for_a_repetition() {
    assert_eq!(clean(&[&["0|a|one|{\"x\":"], &["0|||{\"x\":1}}"]]), "a one {\"x\":{\"x\":1}}");
}

#[test]
fn nothing_is_made_up_for_a_call_that_was_cut() {
    let cut = |deltas: &[&[&str]]| assemble(deltas, Ending::Cut);
    assert_eq!(
        cut(&[&["0|a|one|{\"x\":1}"], &["1|b|two|{\"y\":1"]]),
        "a one {\"x\":1}\nb two !the arguments were cut off before their end: {\"y\":1"
    );
    assert_eq!(
        cut(&[&["0|a|one|"], &["1|b|two|"]]),
        "a one {}\nb two !the arguments were cut off before their end: "
    );
    assert_eq!(cut(&[&["0|a|one|\"{\\\"x\\\":1}\""]]).chars().next(), Some('a'));
}

#[test]
fn a_call_without_a_name_is_reported_and_an_empty_entry_is_not() {
    assert_eq!(clean(&[&["0|a||{}"]]), "a  !the call has no tool name: {}");
    assert_eq!(clean(&[&["0|||"]]), "");
}

#[test]
fn more_calls_than_any_answer_has_are_refused() {
    let mut assembler = Assembler::default();
    let mut add = |index: usize| {
        let fragment = Fragment { index: Some(index as u64), name: "t", ..Fragment::default() };
        assembler.add(fragment)
    };
    assert!((0..MAX_CALLS).all(|index| add(index).is_ok()));
    assert_eq!(add(MAX_CALLS), Err(TooMuch));
    // and so of a message that tells them whole
    let mut assembler = Assembler::default();
    assembler.begin_delta();
    let mut complete = |place| assembler.complete(place, Fragment { name: "t", ..Fragment::default() });
    assert!((0..MAX_CALLS).all(|place| complete(place).is_ok()));
    assert_eq!(complete(MAX_CALLS), Err(TooMuch));
}
