use lf_core::project::{Project, Transport};

use super::*;

fn with(dotenv: Option<&str>, process: &[(&str, &str)], text: &str) -> Result<Loaded, Rejected> {
    let process: Vec<(String, String)> =
        process.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let variables = Variables::new(dotenv, move |name| {
        process.iter().find(|(one, _)| one == name).map(|(_, value)| value.clone())
    });
    parse(&source("llamafarm.yaml", &format!("{HEAD}{text}")), Path::new("/srv/farm"), &variables)
}

fn arg(process: &[(&str, &str)], text: &str) -> String {
    let yaml = format!("mcp: {{servers: [{{name: s, transport: stdio, command: x, args: ['{text}']}}]}}\n");
    let project = with(None, process, &yaml).unwrap_or_else(|rejected| panic!("{rejected}")).project;
    match &project.servers["s"] {
        Ok(server) => match &server.transport {
            Transport::Stdio(stdio) => stdio.args[0].expose().to_owned(),
            other => panic!("{other:?}"),
        },
        Err(disabled) => format!("off: {}", disabled.reason),
    }
}

fn header(project: &Project) -> String {
    match &project.servers["api"] {
        Ok(server) => match &server.transport {
            Transport::Http(http) => http.headers[0].1.expose().to_owned(),
            other => panic!("{other:?}"),
        },
        Err(disabled) => format!("off: {}", disabled.reason),
    }
}

const API: &str = "mcp:
  servers:
    - name: api
      transport: http
      base_url: ${env:URL:-https://api.example/mcp}
      headers:
        Authorization: Bearer ${env:TOKEN}
    - {name: fs, transport: stdio, command: x}
runtime:
  models:
    - {name: m, provider: demo}
";

#[test]
fn all_four_forms_are_replaced() {
    let set = [("X", "value"), ("EMPTY", "")];
    assert_eq!(arg(&set, "a ${env:X} b ${X} c"), "a value b value c");
    assert_eq!(arg(&set, "${env:NONE:-other}/${NONE:-}/${X:-unused}"), "other//value");
    assert_eq!(arg(&set, "[${env:EMPTY}][${EMPTY}][${env:EMPTY:-default}]"), "[][][default]");
}

#[test]
fn what_is_no_reference_stays_as_it_is() {
    let set = [("X", "value"), ("HOME", "/home/me")];
    assert_eq!(arg(&set, "$$ $HOME $X ${env:X}$$"), "$$ $HOME $X value$$");
    assert_eq!(arg(&set, "$${env:X} ${not a name} ${{x}}"), "${env:X} ${not a name} ${{x}}");
}

#[test]
fn a_value_never_becomes_yaml_or_a_further_reference() {
    let set = [("A", "${env:B}"), ("B", "secret"), ("C", "]\nname: other")];
    assert_eq!(arg(&set, "${env:A}"), "${env:B}");
    assert_eq!(arg(&set, "${env:C}"), "]\nname: other");
}

#[test]
fn a_missing_variable_disables_what_needs_it_and_nothing_else() {
    let loaded = with(None, &[], API).expect("no errors");
    assert_eq!(header(&loaded.project), "off: variable `TOKEN` is not set (llamafarm.yaml:10:31)");
    assert!(loaded.project.servers["fs"].is_ok());
    assert!(loaded.project.models["m"].is_ok());
    assert_eq!(loaded.diagnostics.len(), 1);
    assert_eq!(loaded.diagnostics[0].severity, Severity::Warning);
}

#[test]
fn the_projects_own_file_comes_before_the_process() {
    let dotenv = "# secrets\nexport TOKEN='from file'\n";
    assert_eq!(
        header(&with(Some(dotenv), &[("TOKEN", "x")], API).expect("loads").project),
        "Bearer from file"
    );
    assert_eq!(header(&with(Some(""), &[("TOKEN", "x")], API).expect("loads").project), "Bearer x");
}

#[test]
fn a_dotenv_file_has_quotes_comments_and_mistakes() {
    let dotenv =
        "A=1 # one\nB = \"two\\nlines # kept\" # gone\nC='$A'\nno line\nD=\"open\n1E=x\nF=\nA=2\n\u{feff}";
    let variables = Variables::new(Some(dotenv), |_| None);
    let values: Vec<_> = ["A", "B", "C", "D", "F", "G"].iter().map(|name| variables.get(name)).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(values, [text("1"), text("two\nlines # kept"), text("$A"), None, text(""), None]);
    assert_eq!(variables.problems().len(), 4);
    let loaded =
        parse(&source("llamafarm.yaml", &format!("{HEAD}{API}")), Path::new("/srv/farm"), &variables);
    let text = loaded.expect("loads").render_diagnostics(Style::Plain);
    assert!(text.contains("warning: line 4 of `.env` is not `NAME=value` and is skipped"), "{text}");
    assert!(!text.contains("open"), "a line may hold a secret: {text}");
}

#[test]
fn a_wrong_value_of_a_variable_disables_and_is_not_shown() {
    let loaded =
        with(None, &[("TOKEN", "top\nsecret"), ("URL", "https://x.example")], API).expect("no errors");
    let text = loaded.render_diagnostics(Style::Plain);
    assert!(
        header(&loaded.project).starts_with("off: the value of header `Authorization` holds a line break")
    );
    assert!(!text.contains("top"), "{text}");
    let loaded = with(None, &[("TOKEN", "t"), ("URL", "nowhere")], API).expect("no errors");
    assert!(header(&loaded.project).starts_with("off: `base_url` is no URL to connect to"));
}

#[test]
fn the_usual_variable_of_a_provider_is_its_key_and_may_be_missing() {
    let yaml = "runtime:
  models:
    - {name: o, provider: openai, model: gpt-4}
    - {name: l, provider: ollama, model: llama3.1:8b}
    - {name: k, provider: openai, model: gpt-4, api_key: '${env:MINE}', base_url: 'https://x.example/v1/'}
";
    let key = |loaded: &Loaded, name: &str| {
        let model = loaded.project.models[name].as_ref().expect("usable");
        (model.base_url.clone(), model.api_key.as_ref().map(|key| key.expose().to_owned()))
    };
    let loaded = with(None, &[("OPENAI_API_KEY", "sk-1"), ("OLLAMA_HOST", "box:11435"), ("MINE", "k")], yaml)
        .expect("loads");
    assert_eq!(key(&loaded, "o"), ("https://api.openai.com/v1".to_owned(), Some("sk-1".to_owned())));
    assert_eq!(key(&loaded, "l"), ("http://box:11435/v1".to_owned(), Some("ollama".to_owned())));
    assert_eq!(key(&loaded, "k"), ("https://x.example/v1".to_owned(), Some("k".to_owned())));
    let loaded = with(None, &[], yaml).expect("loads");
    assert_eq!(key(&loaded, "o").1, None);
    assert!(loaded.project.models["k"].is_err());
}

#[test]
fn prose_keeps_what_only_looks_like_a_variable() {
    let yaml = "prompts:
  - {name: p, messages: [{role: system, content: 'write ${name} in a template of ${env:LANG_NAME}, ${file:x}'}]}
  - {name: q, messages: [{role: system, content: 'hello ${env:NOBODY} and ${never closed'}]}
runtime:
  models:
    - {name: a, provider: demo, prompts: [p]}
    - {name: b, provider: demo, prompts: [q]}
";
    let loaded = with(None, &[("LANG_NAME", "JS")], yaml).expect("loads");
    let content = &loaded.project.prompts["p"].messages[0].content;
    assert_eq!(content, "write ${name} in a template of JS, ${file:x}");
    assert!(loaded.project.models["a"].is_ok());
    let disabled = loaded.project.models["b"].as_ref().expect_err("needs a variable");
    assert!(disabled.reason.contains("`NOBODY`"), "{}", disabled.reason);
}

#[test]
fn conversations_are_kept_where_the_file_says() {
    use lf_core::project::Storage;
    let storage = |process: &[(&str, &str)], text: &str| with(None, process, text).unwrap().project.storage;
    let models = "runtime: {models: [{name: m, provider: demo}]}\n";
    assert_eq!(storage(&[], models), Ok(Storage::Sqlite));
    assert_eq!(storage(&[], &format!("storage: sqlite\n{models}")), Ok(Storage::Sqlite));
    let url = format!("storage: postgres://lf:${{env:DB_PASSWORD}}@db/lf\n{models}");
    let expected = Storage::Postgres("postgres://lf:s3cret@db/lf".into());
    assert_eq!(storage(&[("DB_PASSWORD", "s3cret")], &url), Ok(expected));
    let off = storage(&[], &url).unwrap_err();
    assert!(off.reason.contains("`DB_PASSWORD` is not set"), "{off:?}");
    let shown = show(&with(None, &[("DB_PASSWORD", "s3cret")], &url).unwrap());
    assert!(!shown.contains("s3cret"), "{shown}");
    let plain = show(&with(None, &[], &url.replace("${env:DB_PASSWORD}", "s3cret")).unwrap());
    assert!(!plain.contains("s3cret") && plain.contains("@db/lf"), "{plain}");
    let wrong = with(None, &[], &format!("storage: mysql://lf:s3cret@db/lf\n{models}")).unwrap_err();
    let told = wrong.render(Style::Plain);
    assert!(told.contains("`storage` is neither `sqlite` nor") && !told.contains("s3cret"), "{told}");
}

#[test]
fn where_each_variable_goes_is_known_whether_it_is_set_or_not() {
    let text = "mcp:
  servers:
    - name: far
      transport: http
      base_url: https://far.example/mcp?key=${env:SECRET}
      headers: {Authorization: 'Bearer ${env:TOKEN}'}
    - {name: near, transport: stdio, command: x, env: {GIVEN: '${env:EMPTY}'}, inherit_env: [HOME]}
runtime:
  models:
    - {name: named, provider: openai, model: '${env:MODEL:-gpt}', base_url: 'http://10.0.0.5/v1', api_key: '${env:TOKEN}'}
    - {name: usual, provider: openai, model: gpt}
    - {name: open, provider: openai, model: gpt, base_url: 'https://open.example/v1', mcp_servers: []}
    - {name: lost, provider: openai, model: gpt, base_url: 'https://${env:HOST}/v1', api_key: x}
";
    let set = [("TOKEN", "token-value"), ("SECRET", "secret-value"), ("EMPTY", ""), ("OPENAI_API_KEY", "k")];
    let project = with(None, &set, text).unwrap().project;
    let said = project.carried.iter().map(|one| {
        let set = if one.is_set { "set" } else { "not set" };
        format!("{:?} {:?}, {set}: {}", one.entry, one.asked, one.grant())
    });
    let said: Vec<String> = said.collect();
    assert_eq!(
        said,
        [
            "Server(\"far\") Written, set: SECRET -> https://far.example",
            "Server(\"far\") Written, set: TOKEN -> https://far.example",
            "Server(\"far\") Implied, set:  -> https://far.example",
            "Server(\"near\") Written, not set: EMPTY -> command of near",
            "Server(\"near\") Written, set: HOME -> command of near",
            "Model(\"named\") Written, not set: MODEL -> texts",
            "Model(\"named\") Written, set: TOKEN -> http://10.0.0.5",
            "Model(\"named\") Written, set:  -> http://10.0.0.5",
            "Model(\"usual\") Usual, set: OPENAI_API_KEY -> https://api.openai.com",
            "Model(\"usual\") Usual, set:  -> https://api.openai.com",
            "Model(\"open\") Implied, set: OPENAI_API_KEY -> https://open.example",
            "Model(\"open\") Implied, set:  -> https://open.example",
            "Model(\"lost\") Written, not set: HOST -> https://v1",
        ]
    );
}
