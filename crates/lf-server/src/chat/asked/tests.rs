use lf_core::Catalogue;
use serde_json::json;

use super::*;

fn system(text: &str) -> Message {
    Message::System(Prose { content: text.into(), rest: Map::new() })
}

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), rest: Map::new() })
}

#[test]
fn the_projects_prompt_and_the_clients_are_one_system_message() {
    let farm = || "You are a farm.".to_owned();
    let messages = in_order(farm(), Vec::new(), vec![system("Be brief."), user("hi")]);
    assert_eq!(messages, [system("You are a farm.\n\nBe brief."), user("hi")]);
    let messages = in_order(farm(), Vec::new(), vec![user("hi")]);
    assert_eq!(messages, [system("You are a farm."), user("hi")]);
}

#[test]
fn without_a_prompt_of_its_own_a_project_changes_nothing() {
    let given = vec![system("Be brief."), user("hi"), system("Briefer."), user("hi?")];
    assert_eq!(in_order(String::new(), Vec::new(), given.clone()), given);
}

#[test]
fn system_messages_come_before_the_projects_other_prompts() {
    let given = || vec![system("Be brief."), system("Be kind."), user("hi"), system("Now.")];
    let messages = in_order(String::new(), vec![user("an example")], given());
    let wanted = [system("Be brief."), system("Be kind."), user("an example"), user("hi"), system("Now.")];
    assert_eq!(messages, wanted);
    let messages = in_order("Farm.".to_owned(), vec![user("an example")], given());
    assert_eq!(messages[0], system("Farm.\n\nBe brief."));
    assert_eq!(messages[1..], wanted[1..]);
}

#[test]
fn a_forced_tool_must_exist() {
    let inline = InlineTool {
        name: "cli.up".to_owned(),
        description: String::new(),
        parameters: lf_core::tool_set::empty_schema(),
    };
    let set = ToolSet::new(&Catalogue::default(), &[inline], &[]);
    let choice = tool_choice(Some(ToolChoice::Tool("cli.up".to_owned())), &set).expect("it is there");
    assert_eq!(choice, Some(ToolChoice::Tool("cli_up".to_owned())));
    let refused = tool_choice(Some(ToolChoice::Tool("nope".to_owned())), &set).expect_err("it is not there");
    assert!(refused.to_string().contains("`nope`") && refused.to_string().contains("cli.up"), "{refused}");
    assert!(tool_choice(Some(ToolChoice::Required), &ToolSet::default()).is_err());
}

#[test]
fn the_request_goes_before_the_defaults_and_the_file_before_the_request() {
    let object = |value: Value| match value {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    let model = Model {
        parameters: object(json!({"temperature": 0.1, "top_p": 0.5})),
        extra_body: object(json!({"n_ctx": 4096})),
        ..Model::new("m", Provider::Demo, "m", "")
    };
    let request = object(json!({"temperature": 0.9, "n_ctx": 1, "seed": 7}));
    let wanted = object(json!({"temperature": 0.9, "top_p": 0.5, "n_ctx": 4096, "seed": 7}));
    assert_eq!(parameters(&model, request), wanted);
}
