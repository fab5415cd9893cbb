use proptest::prelude::*;

use super::*;

fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.to_owned() }
}

/// Every line as it would be shown.
fn shown(path: &str, text: &str) -> String {
    let source = source(path, text);
    let mut start = 0;
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let (masked, _) = without_secrets(&source, &(start..start + line.len()), &(0..0));
        lines.push(masked);
        start += line.len() + 1;
    }
    lines.join("\n")
}

#[test]
fn secrets_of_yaml_are_hidden_by_their_names_and_places() {
    insta::assert_snapshot!(shown("llamafarm.yaml", r#"
mcp:
  servers:
    - name: remote
      base_url: https://ada:pass@host/mcp?key=abc&n=${env:N}
      headers:
        Authorization: Bearer abc.def
        "X-Team": 'it''s' # was: old
      auth:
        type: bearer
        whatever: abc
    - name: local
      command: npx
      args:
        - --token
        - abc
        - --api-key=abc
        - --port
        - "8080"
      env: {GITHUB_TOKEN: abc, REGION: eu, PASSWORD: "a, b}", LEVEL: 3}
    - args: ["--token", "abc", "notes"]
      headers: {X: Bearer abc, Y: def}
runtime:
  models:
    - api_key: sk-abc
      name: assistant # sk-0123456789abcdef
      description: the key of the house
    - api_key: |
        sk-abc
        def
    - api_key: ${env:OPENAI_API_KEY:-sk-abc}
      model: gpt
"#).trim(), @r#"
mcp:
  servers:
    - name: remote
      base_url: https://********@host/mcp?key=***&n=${env:N}
      headers:
        Authorization: Bearer *******
        "X-Team": '*****' **********
      auth:
        type: bearer
        whatever: ***
    - name: local
      command: npx
      args:
        - --token
        - ***
        - --api-key=***
        - --port
        - "8080"
      env: {GITHUB_TOKEN: ***, REGION: eu, PASSWORD: "*****", LEVEL: 3}
    - args: ["--token", "***", "notes"]
      headers: {X: Bearer ***, Y: ***}
runtime:
  models:
    - api_key: ******
      name: assistant # *******************
      description: the key of the house
    - api_key: *
        ******
        ***
    - api_key: ${env:OPENAI_API_KEY:-******}
      model: gpt
"#);
}

#[test]
fn secrets_are_hidden_where_the_file_is_wrong() {
    insta::assert_snapshot!(shown("llamafarm.yaml", r#"
models:
  - api_key sk-abc
  - api_key:sk-abc
  - name: api_key: sk-abc
  - api_key: "sk-abc
  - api_key: 'sk-abc' def
  - {api_key: "sk-abc" "def", name: x}
  - --token abc
  -api_key: abc
	api_key: abc
"#).trim(), @r#"
models:
  - api_key ******
  - api_key:******
  - name: api_key: ******
  - api_key: "******
  - api_key: '******' ***
  - {api_key: "******" "***", name: x}
  - --token ***
  -api_key: ***
	api_key: ***
"#);
}

#[test]
fn secrets_of_json_are_hidden_however_it_is_laid_out() {
    insta::assert_snapshot!(shown("llamafarm.json", r#"
{"mcp": {"servers": [{"name": "a", "headers": {"X": "abc", "Y": "Bearer d\"ef"}, "timeout": "5s"}]},
"runtime": {"models": [{"api_key":
"abc", "name": "m"
, "headers": {
"Z": "abc"
}, "model": "gpt"}]}}
"#).trim(), @r#"
{"mcp": {"servers": [{"name": "a", "headers": {"X": "***", "Y": "Bearer *****"}, "timeout": "5s"}]},
"runtime": {"models": [{"api_key":
"***", "name": "m"
, "headers": {
"Z": "***"
}, "model": "gpt"}]}}
"#);
}

#[test]
fn secrets_of_toml_are_hidden_in_their_tables() {
    insta::assert_snapshot!(shown("llamafarm.toml", r#"
[[mcp.servers]]
name = "a"
headers = { X = "abc", "Y" = 'def' }
headers.Z = "abc"
[mcp.servers.headers]
Accept = "abc"
[[runtime.models]]
name = "m"
api_key = "sk-abc"
"api_key" = "sk-abc"
"#).trim(), @r#"
[[mcp.servers]]
name = "a"
headers = { X = "***", "Y" = '***' }
headers.Z = "***"
[mcp.servers.headers]
Accept = "***"
[[runtime.models]]
name = "m"
api_key = "******"
"api_key" = "******"
"#);
}

#[test]
fn the_marked_part_stays_where_it_is() {
    let text = "api_key: äöü${env:X}";
    let part = text.find('$').unwrap()..text.len();
    let (masked, part) = without_secrets(&source("a.yaml", text), &(0..text.len()), &part);
    assert_eq!((masked.as_str(), &masked[part]), ("api_key: ***${env:X}", "${env:X}"));
}

proptest! {
    #[test]
    fn any_line_keeps_its_length(text in "[-{}\\[\\],:='\"#$ \\nä\\\\?&@/a]{0,60}|(api_key|headers|token)[:= {\\n\"'$]{0,4}[a-z{}$:\"\\n ]{0,20}") {
        for path in ["a.yaml", "a.toml"] {
            for text in [text.clone(), format!("{{{text}")] {
                let same = |line: &str| line.chars().count();
                let shown = shown(path, &text);
                prop_assert!(text.split('\n').map(same).eq(shown.split('\n').map(same)));
            }
        }
    }
}
