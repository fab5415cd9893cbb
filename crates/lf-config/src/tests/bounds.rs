//! The limits of a file: what is just within them, one over, and a hundred times too much.

use std::fs::File;
use std::io::Write as _;

use super::*;

/// Whether a file with this after its head can be read at all; why not.
fn refused(text: &str) -> Option<String> {
    parse_whole(&format!("{HEAD}{text}")).err().map(|rejected| rejected.to_string())
}

/// Of a list that is nested so deep, in a file of which the outermost mapping is a level, too.
fn nested(levels: usize) -> Option<String> {
    let lists = levels - 1;
    refused(&format!("rag: {}{}\n", "[".repeat(lists), "]".repeat(lists)))
}

#[test]
fn a_file_of_a_mebibyte_is_read_and_a_larger_one_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("llamafarm.yaml");
    let head = format!("{HEAD}runtime: {{models: [{{name: a, provider: demo}}]}}\n#");
    for (size, is_read) in [(1 << 20, true), ((1 << 20) + 1, false), (100 << 20, false)] {
        let mut file = File::create(&path).expect("a file");
        file.write_all(head.as_bytes()).expect("written");
        file.write_all("x".repeat(size - head.len()).as_bytes()).expect("written");
        let loaded = load(&path, |_| None);
        assert_eq!(loaded.is_ok(), is_read, "{size}");
        let too_large = matches!(loaded, Err(LoadError::TooLarge { limit: 1_048_576, .. }));
        assert_eq!(too_large, !is_read, "{size}");
    }
}

#[test]
fn values_are_nested_64_levels_deep_and_no_deeper() {
    assert_eq!(nested(64), None);
    for levels in [65, 6_400] {
        let why = nested(levels).expect("refused");
        assert!(why.contains("nested more than 64 levels deep"), "{levels}: {why}");
    }
}

#[test]
fn a_hundred_aliases_are_followed_and_no_more() {
    let aliases =
        |count: usize| refused(&format!("rag: {{a: &a x, b: [{}]}}\n", vec!["*a"; count].join(", ")));
    assert_eq!(aliases(100), None);
    for count in [101, 10_000] {
        let why = aliases(count).expect("refused");
        assert!(why.contains("more than 100 aliases"), "{count}: {why}");
    }
}

#[test]
fn twenty_thousand_values_are_read_and_no_more() {
    // the mapping, three keys and values of the head, the key `rag` and its list
    let values = |count: usize| refused(&format!("rag: [{}]\n", "1,".repeat(count - 9)));
    assert_eq!(values(20_000), None);
    for count in [20_001, 200_000] {
        let why = values(count).expect("refused");
        assert!(why.contains("more than 20000 values"), "{count}: {why}");
    }
}

#[test]
fn names_have_up_to_63_characters() {
    let named = |length: usize| {
        let name = "x".repeat(length);
        parse_whole(&format!("version: v1\nname: {name}\nnamespace: default\n")).is_ok()
    };
    assert!(named(1) && named(63));
    assert!(!named(64) && !named(6_300));
}
