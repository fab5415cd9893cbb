use proptest::prelude::*;
use serde_json::json;

use super::*;

const FILE: &str = "\
# head
version: v1
name: demo   # who
namespace: 'default'

mcp:
  # about the servers
  servers:
    # the first
    - name: one
      transport: stdio
      command: ls # list
      args: [-l, \"/tmp\"]

    # the second
    - name: two
      transport: http
      base_url: https://x.example/mcp
      headers:
        # who we are
        X-Who: me

runtime:
  models:
    - name: small
      provider: demo
      description: |
        one
        two
      # own
      mcp_servers: [one,
        two]
# tail
";

fn source(text: &str) -> Source {
    Source { path: "llamafarm.yaml".into(), text: text.to_owned() }
}

fn edited(text: &str, change: impl FnOnce(&mut Json)) -> String {
    let mut value = stored(&source(text)).unwrap();
    change(&mut value);
    let new = edit(&source(text), &value).unwrap();
    assert!(same(&stored(&source(&new)).unwrap(), &value), "{new}");
    new
}

/// The lines that are in one text only: `-` of the old, `+` of the new, in their order.
fn difference(new: &str) -> String {
    let old: Vec<&str> = FILE.lines().collect();
    let mut out = String::new();
    let mut at = 0;
    for line in new.lines() {
        match old[at..].iter().position(|other| *other == line) {
            Some(skipped) if !line.trim().is_empty() || skipped == 0 => {
                old[at..at + skipped].iter().for_each(|line| out.push_str(&format!("-{line}\n")));
                at += skipped + 1;
            }
            _ => out.push_str(&format!("+{line}\n")),
        }
    }
    old[at..].iter().for_each(|line| out.push_str(&format!("-{line}\n")));
    out
}

#[test]
fn a_scalar_changes_in_its_place_and_keeps_its_quotes_and_comment() {
    let new = edited(FILE, |value| {
        value["name"] = json!("other");
        value["namespace"] = json!("it's");
        value["mcp"]["servers"][0]["args"][1] = json!("/var");
    });
    assert!(new.contains("name: other   # who\nnamespace: 'it''s'\n"), "{new}");
    assert!(new.contains("args: [-l, \"/var\"]\n"), "{new}");
    assert_eq!(new.lines().count(), FILE.lines().count());
}

#[test]
fn a_key_is_added_at_the_end_of_its_map() {
    let new = edited(FILE, |value| {
        value["mcp"]["servers"][0]["env"] = json!({"A": "1", "B": "x: y"});
        value["memory"] = json!({"on": true});
    });
    let expected = "+      env:\n+        A: '1'\n+        B: 'x: y'\n+memory:\n+  'on': true\n";
    assert_eq!(difference(&new), expected, "{new}");
}

#[test]
fn an_item_is_removed_with_its_lines_and_comment() {
    let new = edited(FILE, |value| {
        value["mcp"]["servers"].as_array_mut().unwrap().remove(0);
        value["runtime"]["models"][0]["mcp_servers"] = json!(["two"]);
    });
    assert!(new.contains("  servers:\n\n    # the second\n    - name: two\n"), "{new}");
    assert!(new.contains("# own\n      mcp_servers: [two]\n"), "{new}");
}

#[test]
fn an_item_is_inserted_where_it_belongs() {
    let server = json!({"name": "mid", "transport": "stdio", "command": "cat", "args": ["*", "-"]});
    let new = edited(FILE, |value| value["mcp"]["servers"].as_array_mut().unwrap().insert(1, server.clone()));
    let expected =
        "+    - name: mid\n+      transport: stdio\n+      command: cat\n+      args: ['*', '-']\n";
    assert_eq!(difference(&new), expected, "{new}");
    let new = edited(FILE, |value| value["mcp"]["servers"].as_array_mut().unwrap().insert(0, server));
    assert_eq!(new.matches('#').count(), FILE.matches('#').count(), "{new}");
}

#[test]
fn lines_of_text_stay_lines() {
    let new = edited(FILE, |value| value["runtime"]["models"][0]["description"] = json!("three\n\nfour\n"));
    assert!(new.contains("description: |\n        three\n\n        four\n      # own\n"), "{new}");
    let new = edited(FILE, |value| value["runtime"]["models"][0]["description"] = json!("short"));
    assert!(new.contains("description: short\n      # own\n"), "{new}");
}

#[test]
fn the_first_key_of_an_item_can_go_and_a_map_can_become_empty() {
    let new = edited(FILE, |value| {
        value["mcp"]["servers"][0].as_object_mut().unwrap().shift_remove("name");
        value["mcp"]["servers"][1]["headers"] = json!({});
    });
    assert!(new.contains("    # the first\n    - transport: stdio\n"), "{new}");
    assert!(new.contains("headers: {}\n"), "{new}");
}

#[test]
fn empty_values_get_one_and_values_become_empty() {
    let new = edited("a:\nb: # none\n- x\n".trim_end_matches("- x\n"), |value| {
        value["a"] = json!("x");
        value["b"] = json!([1, 2]);
    });
    assert_eq!(new, "a: x\nb: [1, 2] # none\n");
    assert_eq!(edited("- \n- b\n", |value| value[0] = json!({"k": 1})), "- k: 1\n- b\n");
}

#[test]
fn anchors_and_merges_are_not_changed_for_others() {
    let text = "base: &b {x: 1, y: 2}\none:\n  <<: *b # shared\n  z: 3\ntwo: *b\n";
    let new = edited(text, |value| value["one"]["x"] = json!(5));
    assert_eq!(new, "base: &b {x: 1, y: 2}\none:\n  <<: *b # shared\n  z: 3\n  x: 5\ntwo: *b\n");
    let new = edited(text, |value| value["two"]["x"] = json!(7));
    assert!(new.starts_with("base: &b {x: 1, y: 2}\none:\n  <<: *b # shared\n"), "{new}");
}

#[test]
fn json_stays_json() {
    let text = "{\n  \"name\": \"a\",\n  \"list\": [1, 2],\n  \"n\": null\n}\n";
    let new = edited(text, |value| {
        value["name"] = json!("b");
        value["list"] = json!([2, "x"]);
        value["more"] = json!({"k": "v"});
    });
    serde_json::from_str::<Json>(&new).unwrap();
    assert!(
        new.starts_with("{\n  \"name\": \"b\",\n  \"list\": [2, \"x\"],\n") || new.contains("\"b\""),
        "{new}"
    );
    assert!(new.contains("\n  \"more\": {\"k\":\"v\"}\n}"), "{new}");
}

#[test]
fn toml_is_not_touched() {
    let source = Source { path: "llamafarm.toml".into(), text: "a = 1\n".to_owned() };
    assert!(matches!(edit(&source, &json!({"a": 2})), Err(EditError::Toml)));
}

fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        "[ -~\n]{0,12}".prop_map(Json::from),
        "\\PC{0,6}".prop_map(Json::from),
        Just(json!("${env:X}")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec(("[a-c ]{1,3}", inner), 0..4)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

/// Somewhere in the tree, something else.
fn disturb(target: &mut Json, way: &[usize], new: &Json) {
    let Some((step, rest)) = way.split_first() else {
        *target = new.clone();
        return;
    };
    match target {
        Json::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(step % map.len()).unwrap().clone();
            match step % 7 {
                0 if map.len() > 1 => {
                    map.shift_remove(&key);
                }
                1 => {
                    map.insert("added".to_owned(), new.clone());
                }
                _ => disturb(&mut map[&key], rest, new),
            }
        }
        Json::Array(items) if !items.is_empty() => {
            let at = step % items.len();
            match step % 5 {
                0 => {
                    items.remove(at);
                }
                1 => items.insert(at, new.clone()),
                _ => disturb(&mut items[at], rest, new),
            }
        }
        other => *other = new.clone(),
    }
}

proptest! {
    #[test]
    fn whatever_is_wanted_is_what_is_written(
        edits in prop::collection::vec((prop::collection::vec(any::<usize>(), 1..6), value()), 1..4)
    ) {
        let mut wanted = stored(&source(FILE)).unwrap();
        for (way, new) in &edits {
            disturb(&mut wanted, way, new);
        }
        prop_assume!(wanted.is_object());
        let new = edit(&source(FILE), &wanted).unwrap();
        prop_assert!(same(&stored(&source(&new)).unwrap(), &wanted), "{new}");
    }

    #[test]
    fn any_value_can_be_written_and_changed_into_any_other(one in value(), other in value()) {
        let one = json!({"k": one});
        let text = write(&one).unwrap();
        prop_assert!(same(&stored(&source(&text)).unwrap(), &one), "{text}");
        let wanted = json!({"k": other});
        let new = edit(&source(&text), &wanted).unwrap();
        prop_assert!(same(&stored(&source(&new)).unwrap(), &wanted), "{new}");
    }

    #[test]
    fn comments_of_what_is_not_touched_stay(server in 0..2_usize, new in value()) {
        let mut wanted = stored(&source(FILE)).unwrap();
        wanted["mcp"]["servers"][server]["extra"] = new;
        let text = edit(&source(FILE), &wanted).unwrap();
        for line in FILE.lines().filter(|line| line.contains('#')) {
            prop_assert!(text.lines().any(|other| other == line), "{line} is missing:\n{text}");
        }
    }
}
