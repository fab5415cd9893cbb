use super::*;
use crate::tool::ToolRef;

fn tool(server: &str, name: &str) -> Tool {
    Tool::new(ToolRef { server: server.into(), name: name.into() }, None, empty_schema())
}

fn set(tools: &[(&str, &str)]) -> ToolSet {
    let tools = tools.iter().map(|(server, name)| tool(server, name)).collect();
    ToolSet::new(&Catalogue { tools, ..Catalogue::default() }, &[], &[])
}

fn names(set: &ToolSet) -> Vec<&str> {
    set.iter().map(|(name, _)| name).collect()
}

fn meant(set: &ToolSet, name: &str, server: Option<&str>) -> Option<String> {
    match set.resolve(name, server) {
        Ok((_, Target::Source(tool))) => Some(format!("{}/{}", tool.id.server, tool.id.name)),
        Ok((_, Target::Client(name))) => Some(name.clone()),
        Err(_) => None,
    }
}

#[test]
fn tools_are_in_the_files_order_of_servers_and_by_name_within_one() {
    let one = set(&[("b", "y"), ("b", "x"), ("a", "z")]);
    let other = set(&[("b", "x"), ("b", "y"), ("a", "z")]);
    assert_eq!(names(&one), ["b__x", "b__y", "a__z"]);
    assert_eq!(names(&one), names(&other), "the order a server lists in does not matter");
}

#[test]
fn the_same_tool_name_on_two_servers_is_two_tools() {
    let set = set(&[("a", "read"), ("b", "read")]);
    assert_eq!(meant(&set, "a__read", None).as_deref(), Some("a/read"));
    assert_eq!(meant(&set, "b__read", None).as_deref(), Some("b/read"));
    assert_eq!(meant(&set, "read", None), None, "which one is not said");
    assert_eq!(meant(&set, "read", Some("b")).as_deref(), Some("b/read"));
}

#[test]
fn names_that_would_fall_together_are_told_apart() {
    let set = set(&[("a", "b__c"), ("a__b", "c"), ("s", "x.y"), ("s", "x_y")]);
    let all = names(&set);
    let mut unique = all.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 4, "{all:?}");
    for (name, target) in set.iter() {
        assert!(
            name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        );
        let (Target::Source(wanted), Ok((_, Target::Source(found)))) = (target, set.resolve(name, None))
        else {
            panic!("{name} leads to its tool")
        };
        assert_eq!(wanted.id, found.id);
    }
}

#[test]
fn a_long_name_keeps_its_start_and_gets_a_hash_of_the_whole() {
    let long = "x".repeat(100);
    let fitted = fit_name(&long);
    assert_eq!(fitted.len(), 64);
    assert_ne!(fitted, fit_name(&"x".repeat(101)));
    assert_eq!(fitted, fit_name(&long));
    assert_eq!(fit_name("cli.dataset_upload"), "cli_dataset_upload");
}

#[test]
fn a_model_may_spell_a_name_differently() {
    let tools = Catalogue { tools: vec![tool("Files", "Read_File")], ..Catalogue::default() };
    let inline =
        InlineTool { name: "cli.upload".to_owned(), description: String::new(), parameters: empty_schema() };
    let set = ToolSet::new(&tools, &[inline], &[]);
    for name in
        ["Files__Read_File", "files__read_file", "functions.Files__Read_File", "read_file", "files.read_file"]
    {
        assert_eq!(meant(&set, name, None).as_deref(), Some("Files/Read_File"), "{name}");
    }
    for name in ["cli.upload", "cli_upload"] {
        assert_eq!(meant(&set, name, None).as_deref(), Some("cli.upload"), "{name}");
    }
    let unknown = set.resolve("read_fil", None).map(|_| ()).expect_err("no such tool");
    assert_eq!(unknown.near, ["Files__Read_File"]);
}

#[test]
fn a_clients_history_is_told_in_exposed_names() {
    use crate::message::{Arguments, AssistantMessage, ToolCall, ToolResult};

    let tools = Catalogue { tools: vec![tool("s", "read")], ..Catalogue::default() };
    let inline =
        InlineTool { name: "cli.upload".to_owned(), description: String::new(), parameters: empty_schema() };
    let set = ToolSet::new(&tools, &[inline], &[]);
    let call = |name: &str| ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let calls = vec![call("cli.upload"), call("s__read"), call("gone.tool")];
    let mut messages = vec![
        Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() }),
        Message::Tool(ToolResult::error(&call("cli.upload"), "no")),
    ];
    set.expose_history(&mut messages);
    let [Message::Assistant(said), Message::Tool(result)] = &messages[..] else {
        panic!("the same messages")
    };
    let names: Vec<&str> = said.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["cli_upload", "s__read", "gone_tool"]);
    assert_eq!(result.name.as_deref(), Some("cli_upload"));
}

mod any_names {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exposed_names_are_valid_and_lead_back(pairs in prop::collection::btree_set(("[a-z_.é-]{1,70}", "[a-z_./-]{1,70}"), 1..30)) {
            let tools: Vec<Tool> = pairs.iter().map(|(server, name)| tool(server, name)).collect();
            let set = ToolSet::new(&Catalogue { tools, ..Catalogue::default() }, &[], &[]);
            prop_assert_eq!(set.len(), pairs.len(), "no tool is lost");
            for (exposed, target) in set.iter() {
                prop_assert!(exposed.len() <= 64);
                prop_assert!(exposed.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                let (found, _) = set.resolve(exposed, None).expect("it is there");
                prop_assert_eq!(found, exposed);
                let Target::Source(tool) = target else { panic!("a source's tool") };
                prop_assert!(pairs.contains(&(tool.id.server.to_string(), tool.id.name.to_string())));
            }
        }
    }
}
