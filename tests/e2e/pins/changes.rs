//! Every kind of change, and a thousand that are none.

use lf_tests::project::{Listener, remote};

use super::*;

/// Names that stay on offer, by what the server says instead.
fn kinds() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut said = said();
        change(&mut said);
        said
    };
    vec![
        ("a title", changed(&|said| said["tools"][1]["title"] = json!("Delete")), &["look"]),
        (
            "a hidden word",
            changed(&|said| said["tools"][1]["description"] = json!("Does send.\u{e0041}")),
            &["look"],
        ),
        (
            "a schema",
            changed(&|said| said["tools"][1]["inputSchema"]["properties"]["cc"] = json!({})),
            &["look"],
        ),
        (
            "a result's schema",
            changed(&|said| said["tools"][1]["outputSchema"] = json!({"type": "object"})),
            &["look"],
        ),
        (
            "annotations",
            changed(&|said| said["tools"][1]["annotations"]["readOnlyHint"] = json!(false)),
            &["look"],
        ),
        ("meta", changed(&|said| said["tools"][1]["_meta"] = json!({"io.lf/labels": ["egress"]})), &["look"]),
        ("another name", changed(&|said| said["tools"][1]["name"] = json!("send_all")), &["look"]),
        ("a confusable name", changed(&|said| said["tools"][1]["name"] = json!("s\u{435}nd")), &["look"]),
        (
            "swapped names",
            changed(&|said| {
                said["tools"][0]["name"] = json!("send");
                said["tools"][1]["name"] = json!("look");
            }),
            &[],
        ),
        (
            "one more",
            changed(&|said| said["tools"].as_array_mut().unwrap().push(definition("x"))),
            &["look", "send"],
        ),
        ("one less", changed(&|said| drop(said["tools"].as_array_mut().unwrap().pop())), &["look"]),
        ("another server", changed(&|said| said["serverInfo"]["name"] = json!("dusk")), &[]),
        ("another version", changed(&|said| said["serverInfo"]["version"] = json!("1.0.1")), &[]),
        ("instructions", changed(&|said| said["instructions"] = json!("Send first.")), &[]),
    ]
}

#[test]
fn every_kind_of_change_is_held_back_at_the_next_start() {
    let bench = Bench::locked(vec![]);
    for (what, said, stays) in kinds() {
        bench.say(&said);
        let listed = bench.project.run(&["mcp", "tools", "--json"]).ok().json();
        let names: Vec<&str> =
            listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, stays, "{what}: {listed}");
        let differs = bench.project.run(&["mcp", "diff", "--json"]);
        assert_eq!(differs.status, Some(1), "{what}: {}", differs.stdout);
        assert!(differs.stdout.chars().all(|c| c != '\u{e0041}' || what == "a hidden word"), "{what}");
        let shown = bench.project.run(&["mcp", "diff"]).stdout;
        assert!(!shown.contains('\u{e0041}') && shown.contains("MCP server `disk`"), "{what}: {shown}");
        if what == "a hidden word" {
            assert!(shown.contains("+ Does send.\\U000e0041"), "{shown}");
        }
    }
    bench.say(&said());
    bench.project.run(&["mcp", "diff"]).ok();
}

#[test]
fn another_command_holds_back_all_tools_and_an_unknown_server_in_the_lock_is_told() {
    let bench = Bench::locked(vec![]);
    let path = bench.project.path().join("llamafarm.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    document["mcp"]["servers"][0]["env"] = json!({"NODE_OPTIONS": "--require ./x.js"});
    std::fs::write(&path, document.to_string()).unwrap();
    let listed = bench.project.run(&["mcp", "tools", "--json"]).ok().json();
    assert_eq!(
        (listed["total"].as_u64(), listed["held_back"].as_array().unwrap().len()),
        (Some(0), 2),
        "{listed}"
    );
    assert!(listed["held_back"][0]["reason"].as_str().unwrap().contains("another `env` than in"), "{listed}");
    document["mcp"]["servers"][0].as_object_mut().unwrap().shift_remove("env");
    document["mcp"]["servers"][0]["name"] = json!("drive");
    std::fs::write(&path, document.to_string()).unwrap();
    let listed = bench.project.run(&["mcp", "tools", "--json"]).ok().json();
    assert!(
        listed["held_back"][0]["reason"].as_str().unwrap().contains("`drive` is not in llamafarm.lock"),
        "{listed}"
    );
    let differs = bench.project.run(&["mcp", "diff", "--json"]);
    let differs: Value = serde_json::from_str(&differs.stdout).unwrap();
    let told: Vec<(&str, &str)> = differs["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["server"].as_str().unwrap(), one["change"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("drive", "new"), ("disk", "gone")]);
    // what is new is added, what is gone is left out; nothing that differed is accepted by that
    bench.project.run(&["mcp", "lock"]).ok();
    bench.project.run(&["mcp", "diff"]).ok();
}

#[test]
fn a_thousand_reconnects_that_say_the_same_raise_no_alarm() {
    // over HTTP: as many processes would take minutes
    let home = tempfile::tempdir().unwrap();
    let says = home.path().join("says.json");
    let say = |words: &Value| std::fs::write(&says, words.to_string()).unwrap();
    say(&said());
    let server = Listener::scripted_mcp("http", &Script { says: Some(says.clone()), ..Script::default() });
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[remote("disk", "http", server.url())]);
    project.run(&["mcp", "lock"]).ok();
    let daemon = project.serve();
    let turned = |value: &Value, by: usize| -> Value {
        let mut fields: Vec<(String, Value)> =
            value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let length = fields.len();
        fields.rotate_left(by % length);
        fields.into_iter().collect::<serde_json::Map<_, _>>().into()
    };
    for turn in 0..1_000 {
        let mut said = said();
        for tool in said["tools"].as_array_mut().unwrap() {
            *tool = turned(tool, turn);
        }
        if turn % 2 == 0 {
            said["tools"].as_array_mut().unwrap().reverse();
        }
        say(&turned(&said, turn / 3));
        let renewed =
            post(&daemon.url("/v1/projects/default/demo/mcp/servers/disk/restart"), &json!({})).ok();
        assert_eq!(renewed["state"], "ready", "turn {turn}: {renewed}");
        let (offered, held) = tools(&daemon);
        assert_eq!((offered.len(), held.len()), (2, 0), "turn {turn}: {held:?}");
    }
    assert!(!daemon.log().contains("held back"), "{}", daemon.log());
}
