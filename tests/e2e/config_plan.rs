//! `lf config why` and `lf config plan`: what becomes of a call, and what an edit changes.

use std::process::Command;

use lf_tests::project::{TestProject, document_of, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use serde_json::{Value, json};

fn document(servers: &Value, policy: &Value) -> Value {
    let tools = [
        ScriptedTool::new("look", Act::Echo).annotated(json!({"readOnlyHint": true})),
        ScriptedTool::new("wipe", Act::Echo),
        ScriptedTool::new("hide", Act::Echo),
    ];
    let mut disk = scripted("disk", &Script::with(tools));
    disk["tools"] = json!({"deny": ["hide"]});
    disk["approval"] = json!({"wipe": "ask"});
    disk["labels"] = json!({"wipe": ["egress"]});
    let other = scripted("other", &Script::echoing(&["read"]));
    let model = json!({"name": "assistant", "provider": "demo", "mcp_servers": servers});
    let mut document = document_of(&[model], &[disk, other]);
    document["policy"] = policy.clone();
    document
}

fn rules() -> Value {
    json!({"rules": [
        {"name": "no-etc", "tools": ["wipe"], "when": "args.path.startsWith('/etc/')", "verdict": "deny"},
        {"models": ["other*"], "verdict": "deny"},
    ]})
}

fn says<'a>(told: &'a Value, step: &str) -> Vec<(&'a str, &'a Value)> {
    let steps = told["steps"].as_array().expect("steps").iter().filter(|told| told["step"] == step);
    steps.map(|step| (step["says"].as_str().expect("words"), &step["verdict"])).collect()
}

#[test]
fn why_goes_through_what_a_call_passes() {
    let project = TestProject::of(&document(&json!(["disk"]), &rules()));
    let why = |arguments: &[&str]| -> Value {
        let all: Vec<&str> =
            ["config", "why", "assistant"].iter().chain(arguments).chain(&["--json"]).copied().collect();
        project.run(&all).ok().json()
    };
    let told = why(&["disk__wipe", "--args", r#"{"path": "/etc/passwd"}"#]);
    assert_eq!(
        (&told["verdict"], &told["server"], &told["tool"]),
        (&json!("deny"), &json!("disk"), &json!("wipe"))
    );
    let of_rules = says(&told, "rule");
    assert!(of_rules[0].0.contains("no-etc") && of_rules[0].1 == "deny", "{told}");
    assert!(of_rules[1].0.contains("`models`") && of_rules[1].1.is_null(), "{told}");
    assert!(
        told["steps"][3]["place"].as_str().is_some_and(|place| place.contains("llamafarm.yaml:")),
        "{told}"
    );
    assert_eq!(says(&told, "approval")[0].1, "ask");
    assert!(says(&told, "labels")[0].0.contains("egress"), "{told}");

    let told = why(&["disk__wipe", "--args", r#"{"path": "/tmp/x"}"#]);
    assert_eq!(told["verdict"], "ask");
    let told = why(&["disk__wipe"]);
    assert_eq!(told["verdict"], "ask");
    assert!(says(&told, "rule")[0].0.contains("`--args` would tell"), "{told}");
    assert_eq!(why(&["disk/look"])["verdict"], "allow");
    let told = why(&["other__read"]);
    assert_eq!((&told["verdict"], says(&told, "access")[0].1), (&json!("deny"), &json!("deny")));
    let told = why(&["disk__hide"]);
    assert_eq!((&told["verdict"], says(&told, "filter")[0].1), (&json!("deny"), &json!("deny")));

    let text = project.run(&["config", "why", "assistant", "disk__wipe"]).ok().stdout;
    assert!(text.starts_with("model `assistant` calls `wipe` of MCP server `disk`: ask\n"), "{text}");
    let unknown = project.run(&["config", "why", "assistant", "nothing"]).failed(2);
    assert!(unknown.contains("no tool `nothing` is known") && unknown.contains("disk__wipe"), "{unknown}");
    let no_model = project.run(&["config", "why", "nobody", "disk__wipe"]).failed(2);
    assert!(no_model.contains("model `nobody` does not exist"), "{no_model}");
    let no_json = project.run(&["config", "why", "assistant", "disk__wipe", "--args", "x"]).failed(2);
    assert!(no_json.contains("`--args` is not a JSON object"), "{no_json}");
    project.assert_nothing_left();
}

#[test]
fn plan_tells_which_tools_a_model_gains_loses_and_has_otherwise() {
    let project = TestProject::of(&document(&json!(["disk"]), &json!({})));
    let next = document(&json!(["disk", "other"]), &rules())
        .to_string()
        .replace(r#"{"deny":["hide"]}"#, r#"{"deny":["look"]}"#);
    project.write("next.yaml", &next);
    let told = project.run(&["config", "plan", "next.yaml", "--json"]).ok().json();
    let model = &told["models"][0];
    assert_eq!(
        (&model["model"], &model["before"]["tools"], &model["after"]["tools"]),
        (&json!("assistant"), &json!(2), &json!(3))
    );
    let change = |tool: &str| {
        let changes = model["changes"].as_array().expect("changes");
        changes
            .iter()
            .find(|change| change["tool"] == tool)
            .unwrap_or_else(|| panic!("{tool} in {model}"))
            .clone()
    };
    assert_eq!(change("disk__look")["change"], "lost");
    let hide = change("disk__hide");
    assert_eq!((&hide["change"], &hide["after"]["destructive"]), (&json!("gained"), &json!(true)));
    assert!(hide["after"]["tokens"].as_u64().is_some_and(|tokens| tokens > 0));
    let wipe = change("disk__wipe");
    assert_eq!((&wipe["change"], &wipe["after"]["verdict"]), (&json!("changed"), &json!("ask")));
    assert!(wipe["after"]["depends"][0].as_str().is_some_and(|depends| depends.contains("no-etc")), "{wipe}");
    let text = project.run(&["config", "plan", "next.yaml"]).ok().stdout;
    assert!(
        text.contains("  + disk__hide") && text.contains("  - disk__look") && text.contains("may destroy"),
        "{text}"
    );

    let back = project.run(&["config", "plan", "--against", "next.yaml", "--json"]).ok().json();
    assert_eq!(
        (&back["models"][0]["before"]["tools"], &back["models"][0]["after"]["tools"]),
        (&json!(3), &json!(2))
    );
    project.assert_nothing_left();
}

#[test]
fn plan_tells_nothing_of_rules_that_only_stand_elsewhere() {
    let unnamed = |deny: &str| json!({"tools": [deny], "verdict": "deny"});
    let when = json!({"verdict": "ask", "when": "args.path.startsWith('/etc')"});
    let policy = |first: &[Value]| {
        let rules = [first, &[when.clone(), unnamed("wipe")]].concat();
        json!({"rules": rules})
    };
    let project = TestProject::of(&document(&json!(["disk"]), &policy(&[])));
    let moved = format!("# another line\n{}", document(&json!(["disk"]), &policy(&[unnamed("nothing")])));
    project.write("next.yaml", &moved);
    let told = project.run(&["config", "plan", "next.yaml"]).ok().stdout;
    assert!(told.contains("nothing changes"), "{told}");
    let told = project.run(&["config", "plan", "next.yaml", "--json"]).ok().json();
    assert_eq!(told["models"][0]["changes"], json!([]));
    let stricter = json!({"tools": ["look"], "verdict": "ask"});
    project.write("next.yaml", &document(&json!(["disk"]), &policy(&[stricter])).to_string());
    let told = project.run(&["config", "plan", "next.yaml", "--json"]).ok().json();
    let changes = told["models"][0]["changes"].as_array().expect("changes");
    assert_eq!((changes.len(), &changes[0]["tool"]), (1, &json!("disk__look")), "{told}");
    let why = changes[0]["after"]["why"].as_str().unwrap_or_default();
    assert!(why.contains("rule 1 (") && why.contains("next.yaml:1)"), "{why}");
    project.assert_nothing_left();
}

#[test]
fn plan_compares_with_what_git_has_and_says_what_it_could_not_know() {
    let project = TestProject::of(&document(&json!(["disk"]), &json!({})));
    let nothing = project.run(&["config", "plan"]).failed(2);
    assert!(nothing.contains("nothing to compare") && nothing.contains("--against FILE"), "{nothing}");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(project.path()).env("HOME", project.home());
        assert!(git.status().expect("git can be started").success());
    };
    let commit = || git(&["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "x"]);
    git(&["init", "-q"]);
    git(&["add", "."]);
    commit();
    let told = project.run(&["config", "plan"]).ok().stdout;
    assert!(told.contains("nothing changes"), "{told}");
    let broken = document(&json!(["disk", "other"]), &json!({}))
        .to_string()
        .replace("lf-scripted-mcp", "lf-not-there");
    project.write("llamafarm.yaml", &broken);
    let told = project.run(&["config", "plan", "--json"]).ok();
    assert!(told.stderr.contains("its tools are not known"), "{}", told.stderr);
    assert_eq!(told.json()["unknown"]["after"].as_array().map(Vec::len), Some(2));
    project.write("llamafarm.yaml", &format!("{broken}\n# {}", "é".repeat(1024 * 1024)));
    commit();
    let told = project.run(&["config", "plan"]).failed(2);
    assert!(told.contains("larger than 1048576 bytes"), "{told}");
}
