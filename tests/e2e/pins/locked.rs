//! `--locked`: for machines where nobody looks.

use super::*;

#[test]
fn without_a_lock_or_with_a_server_that_is_not_in_it_nothing_runs() {
    let bench = Bench::new(vec![Reply::calls([call("c1", "look")]), Reply::text("Done.")]);
    for command in [
        &["chat", "--locked", "Go."][..],
        &["serve", "--locked", "--port", "0"],
        &["mcp", "call", "--locked", "disk", "look"],
    ] {
        let refused = bench.project.run(command);
        assert_eq!(refused.status, Some(1), "{command:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("llamafarm.lock") && refused.stderr.contains("`lf mcp lock`"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!(bench.calls(), 0);
    bench.project.run(&["mcp", "lock"]).ok();
    assert_eq!(bench.project.run(&["chat", "--locked", "Go."]).ok().stdout.trim(), "Done.");
    let mut other = said();
    other["tools"].as_array_mut().unwrap().pop();
    bench.say(&other);
    let refused = bench.project.run(&["chat", "--locked", "Go."]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("tool `send` is gone (told only)"), "{}", refused.stderr);
    bench.model.finish();
}

#[test]
fn a_locked_daemon_refuses_a_server_that_is_added_while_it_runs() {
    let bench = Bench::locked(vec![]);
    let daemon = bench.project.serve_with(&["--locked"]);
    assert_eq!(tools(&daemon).0.len(), 2);
    let path = bench.project.path().join("llamafarm.yaml");
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut added = document["mcp"]["servers"][0].clone();
    added["name"] = json!("other");
    document["mcp"]["servers"].as_array_mut().unwrap().push(added);
    bench.project.write("llamafarm.yaml", &document.to_string());
    within(SOON, "the file to be refused", || {
        let refused = get(&daemon.url("/v1/config/status")).ok()["projects"][0]["refused"].take();
        refused["message"].as_str()?.contains("MCP server `other` is not in llamafarm.lock").then_some(())
    });
    assert_eq!(tools(&daemon).0.len(), 2);
}

#[test]
fn a_lock_that_cannot_be_used_is_told_with_its_place_and_nothing_starts() {
    let bench = Bench::locked(vec![]);
    let lock = std::fs::read_to_string(bench.lock()).unwrap();
    for (text, why) in [
        (lock.replace("Does look.", "Does more."), "damaged: tool `look` of MCP server `disk`"),
        (lock.replace("[[server]]", "[[server"), "damaged: "),
        (lock.replace("version = 1", "version = 2"), "written by a newer lf"),
    ] {
        bench.project.write("llamafarm.lock", &text);
        for command in [&["mcp", "tools"][..], &["config", "validate"], &["mcp", "lock", "--update"]] {
            let refused = bench.project.run(command);
            assert_eq!(refused.status, Some(2), "{command:?}: {}", refused.stderr);
            assert!(refused.stderr.contains(why), "{command:?}: {}", refused.stderr);
            let place = refused.stderr.split("llamafarm.lock:").nth(1).unwrap_or_default();
            assert!(place.starts_with(|c: char| c.is_ascii_digit()), "{}", refused.stderr);
        }
    }
    assert_eq!(bench.calls(), 0);
}
