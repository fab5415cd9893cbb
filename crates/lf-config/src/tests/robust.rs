//! Files that are meant to do harm, and files that are merely odd.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Of a processor. Far above what any of them takes, far below what the attack wants.
const SOON: Duration = Duration::from_secs(5);

fn refused_soon(what: &str, text: &str) -> String {
    let start = own_time();
    let rejected = parse_whole(text).expect_err(what).to_string();
    let took = own_time() - start;
    assert!(took < SOON, "{what}: {took:?}");
    assert!(rejected.len() < 100_000, "{what}: {} bytes", rejected.len());
    rejected
}

#[test]
fn deep_nesting_is_refused_at_once() {
    for opener in ["[", "{", "- ", "a: [", "? "] {
        refused_soon(opener, &opener.repeat(100_000 / opener.len()));
    }
    let nested: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(refused_soon("block", &nested).contains("nested more than 64 levels deep"));
    let toml = format!("a = {}", "[".repeat(100_000));
    let start = own_time();
    assert!(parse(&source("llamafarm.toml", &toml), Path::new("/"), &Variables::none()).is_err());
    assert!(own_time() - start < SOON);
}

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert!(refused_soon("bomb", &text).contains("more than 20000 values"));
    let many = format!("a: &a x\nb: [{}]\n", vec!["*a"; 200].join(", "));
    assert!(refused_soon("aliases", &many).contains("more than 100 aliases"));
    let merged = format!("a: &a {{k: v}}\nb: {{{}}}\n", vec!["<<: *a"; 200].join(", "));
    refused_soon("merges", &merged);
    assert!(refused_soon("itself", "a: &a [*a]\n").contains("inside the value it repeats"));
}

#[test]
fn a_flood_of_values_or_mistakes_is_bounded() {
    let values = format!("rag: [{}]\n", "1, ".repeat(50_000));
    assert!(refused_soon("values", &values).contains("more than 20000 values"));
    let keys: String = (0..5_000).map(|index| format!("  key{index}: 1\n")).collect();
    let text = refused_soon("keys", &format!("{HEAD}mcp:\n{keys}"));
    assert!(text.contains("further diagnostics are not shown"), "{text}");
    let one_line = format!(
        "{{\"mcp\":{{{}}}}}",
        (0..5_000).map(|index| format!("\"key{index}\":1")).collect::<Vec<_>>().join(",")
    );
    refused_soon("one line", &one_line);
}

#[test]
fn a_large_file_is_refused_before_it_is_parsed() {
    refused_soon("text", &"x".repeat(10_000_000));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("llamafarm.yaml");
    std::fs::write(&path, "x: y\n".repeat(2_000_000)).expect("written");
    let start = own_time();
    assert!(matches!(load(&path, |_| None), Err(LoadError::TooLarge { limit: 1_048_576, .. })));
    assert!(own_time() - start < SOON);
}

const SEED: &str = "version: v1
name: farm
namespace: default
mcp:
  servers:
    - name: fs
      transport: stdio
      command: npx
      args: ['-y', \"a\\tb\", ${env:X:-y}]
      tools: {allow: ['r*'], rename: {a: b}}
      approval: {'w*': ask}
      timeout: 30s
    - &web {name: web, transport: http, base_url: 'https://x.example/${X}', headers: {A: 'é ${env:T}'}}
runtime:
  default_model: m
  models:
    - name: m
      provider: openai
      model: gpt-4
      mcp_servers: [fs, web]
      limits: {rounds: 3, turn_timeout: 5m}
      tools:
        - {type: function, name: t, description: d, parameters: {type: object}}
prompts:
  - name: p
    messages: [{role: system, content: \"hi {{x}}\"}]
";

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_to_a_file_makes_the_reader_panic(
        changes in prop::collection::vec((0..SEED.len(), 0..12_usize, "[\\[\\]{}:,&*!|>'\"#$%@ \\n\\ta0-éЖ~?<-]{0,6}"), 1..6),
    ) {
        let mut text = SEED.replace(", ${env:X:-y}]", ", '${env:X:-y}']");
        for (at, length, new) in changes {
            let floor = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            let (start, end) = (floor(at), floor(at + length));
            text.replace_range(start..end, &new);
        }
        for name in ["llamafarm.yaml", "llamafarm.toml"] {
            match parse(&source(name, &text), Path::new("/srv/farm"), &Variables::none()) {
                Ok(loaded) => {
                    loaded.render_diagnostics(Style::Colour);
                    let _ = show(&loaded);
                    prop_assert!(loaded.diagnostics.iter().all(|one| one.severity != Severity::Error));
                }
                Err(rejected) => {
                    prop_assert!(rejected.diagnostics.iter().any(|one| one.severity == Severity::Error));
                    rejected.render(Style::Colour);
                }
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,80}") {
        for name in ["llamafarm.yaml", "llamafarm.toml"] {
            let _ = parse(&source(name, &text), Path::new("/srv/farm"), &Variables::new(Some(&text), |_| None))
                .map_err(|rejected| rejected.to_string());
        }
    }
}
