//! What variables hold is repeated in no message, wherever in the file they stand.

use lf_core::project::{Carried, Destination, Entry};

use super::*;

const VALUES: [&str; 5] = [
    "canary-5f0c9e71d2",
    "canary://canary.example/canary",
    "canary, canary and\ncanary",
    "https://canary.example/canary path",
    "canary\\\"'{}",
];

const TEXT: &str = r#"mcp:
  servers:
    - {name: a, transport: stdio, command: "COMMAND", args: ["ARG"], env: {A: "ENV"}, cwd: "CWD",
       limits: {memory: "MEMORY"}, timeout: "T1", max_timeout: "T2", startup_timeout: "T3"}
    - {name: b, transport: http, base_url: "https://b.example/URL", headers: {X: "HEADER"},
       auth: {type: bearer, token: "TOKEN"}}
    - {name: c, transport: sse, base_url: "WHOLE",
       auth: {type: client_credentials, client_id: "ID", client_secret: "SECRET", private_key: "KEY",
              scopes: ["SCOPE"], issuer: "ISSUER"}}
    - {name: d, transport: http, base_url: "https://d.example",
       auth: {type: oauth, client_metadata_url: "METADATA", redirect_uri: "REDIRECT"}}
prompts:
  - {name: p, messages: [{role: system, content: "CONTENT"}]}
storage: "STORAGE"
runtime:
  models:
    - {name: m, provider: openai, model: "MODEL", base_url: "http://BASE", api_key: "APIKEY", description: "DESCRIPTION",
       limits: {turn_timeout: "T4", final_timeout: "T5", approval_timeout: "T6", queue_timeout: "T7"},
       extra_body: {user: "USER"}, tools: [
        {type: function, name: "TOOL", description: "TOLD", parameters: {type: "TYPE", properties: {}}},
        {type: function, name: "TOOL", description: "x", parameters: {type: object, properties: {a: {type: "INNER"}}}}]}
"#;

const PLACES: [&str; 34] = [
    "COMMAND",
    "ARG",
    "ENV",
    "CWD",
    "MEMORY",
    "T1",
    "T2",
    "T3",
    "T4",
    "T5",
    "T6",
    "T7",
    "URL",
    "HEADER",
    "TOKEN",
    "WHOLE",
    "ID",
    "SECRET",
    "KEY",
    "SCOPE",
    "ISSUER",
    "METADATA",
    "REDIRECT",
    "CONTENT",
    "STORAGE",
    "MODEL",
    "BASE",
    "APIKEY",
    "DESCRIPTION",
    "USER",
    "TOOL",
    "TOLD",
    "TYPE",
    "INNER",
];

/// All that is told of a file in which this variable stands at these places.
fn told(places: &[&str], value: &str) -> String {
    let mut text = format!("{HEAD}{TEXT}");
    for place in PLACES {
        let given = if places.contains(&place) { "${env:HELD:-object}" } else { usual(place) };
        text = text.replace(&format!("{place}\""), &format!("{given}\""));
    }
    let variables = Variables::new(None, |name| (name == "HELD").then(|| value.to_owned()));
    match parse(&source("llamafarm.yaml", &text), Path::new("/srv/farm"), &variables) {
        Err(rejected) => format!("{rejected} {}", rejected.summary()),
        Ok(loaded) => {
            let reasons = loaded.project.servers.values().filter_map(|entry| entry.as_ref().err());
            let reasons =
                reasons.chain(loaded.project.models.values().filter_map(|entry| entry.as_ref().err()));
            let reasons = reasons.chain(loaded.project.storage.as_ref().err());
            let reasons: String = reasons.map(|disabled| disabled.reason.as_str()).collect();
            let carried: String = loaded.project.carried.iter().map(ToString::to_string).collect();
            format!("{}{reasons}{carried}", loaded.render_diagnostics(Style::Plain))
        }
    }
}

/// What may stand there.
fn usual(place: &str) -> &str {
    match place {
        "MEMORY" => "1GiB",
        "T1" | "T2" | "T3" | "T4" | "T5" | "T6" | "T7" => "30s",
        "WHOLE" | "ISSUER" => "https://c.example",
        "METADATA" => "https://d.example/client",
        "REDIRECT" => "http://127.0.0.1:8400/callback",
        "KEY" => "-----BEGIN PRIVATE KEY-----",
        "STORAGE" => "sqlite",
        "TYPE" | "INNER" => "object",
        "BASE" => "m.example",
        _ => "x",
    }
}

#[test]
fn no_message_repeats_what_a_variable_holds() {
    for value in VALUES {
        for place in PLACES {
            let told = told(&[place], value);
            assert!(!told.to_lowercase().contains("canary"), "{value} at {place}: {told}");
        }
        let told = told(&PLACES, value);
        assert!(!told.to_lowercase().contains("canary"), "{value} everywhere: {told}");
    }
    let told = told(&["T1"], "long");
    assert!(told.contains("`timeout` is no length of time: `\"${env:HELD:-object}\"`"), "{told}");
}

fn carried(text: &str) -> Vec<Carried> {
    let variables = Variables::new(Some("OLLAMA_HOST=http://evil.example"), |name| {
        Some(if name == "OLLAMA_HOST" { "http://box:1" } else { "canary-5f0c9e71d2" }.to_owned())
    });
    let source = source("llamafarm.yaml", &format!("{HEAD}{text}"));
    parse(&source, Path::new("/srv/farm"), &variables)
        .unwrap_or_else(|error| panic!("{error}"))
        .project
        .carried
}

fn goes(carried: &[Carried], variable: &str) -> Vec<Destination> {
    let of_it = carried.iter().filter(|one| one.variable.as_deref() == Some(variable));
    of_it.map(|one| one.to.clone()).collect()
}

fn host(origin: &str) -> Destination {
    Destination::Host(origin.to_owned())
}

#[test]
fn what_proves_a_client_goes_to_its_issuer_too() {
    let carried = carried(
        "mcp: {servers: [{name: s, transport: http, base_url: 'https://a.example/mcp', auth: {type: client_credentials, \
         client_id: me, client_secret: '${env:X}', issuer: 'https://b.example'}}]}\n",
    );
    assert_eq!(goes(&carried, "X"), [host("https://a.example"), host("https://b.example")]);
}

#[test]
fn a_variable_in_a_path_goes_to_the_host_and_is_not_shown() {
    let text = "mcp: {servers: [{name: s, transport: http, base_url: 'https://a.example/x/${env:X}'}]}\n\
                runtime: {models: [{name: m, provider: openai, model: m, base_url: 'https://a.example/${env:Y}/v1'}]}\n";
    let carried = carried(text);
    for variable in ["X", "Y"] {
        assert_eq!(goes(&carried, variable), [host("https://a.example")]);
    }
}

#[test]
fn every_prompt_set_and_the_storage_ask_for_what_they_hold() {
    let text = "prompts: [{name: p, messages: [{role: system, content: 'x ${env:X}'}]}]\n\
                runtime: {models: [{name: m, provider: demo, prompts: []}]}\n\
                storage: 'postgres://me:${env:Y}@DB.example/x?host=evil.example'\n";
    let carried = carried(text);
    assert_eq!(goes(&carried, "X"), [Destination::Texts]);
    assert!(carried.iter().any(|one| one.entry == Entry::Prompts("p".to_owned())));
    assert_eq!(goes(&carried, "Y"), [host("postgres://db.example:5432?host=evil.example")]);
    assert!(carried.iter().any(|one| one.entry == Entry::Storage && one.variable.is_none()));
}

#[test]
fn the_env_file_beside_the_project_names_no_usual_address() {
    use lf_core::project::Asked;
    let carried = carried("runtime: {models: [{name: m, provider: ollama, model: m}]}\n");
    let key =
        carried.iter().find(|one| one.variable.as_deref() == Some("OLLAMA_API_KEY")).expect("asked for");
    assert_eq!((key.asked, &key.to), (Asked::Implied, &host("http://evil.example")));
}
