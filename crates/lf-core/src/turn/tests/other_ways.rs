//! Calls in text, tools in the prompt, and asking again.

use super::*;

#[test]
fn a_call_in_a_models_own_dialect_is_run_and_not_shown() {
    let setup = Setup {
        text_formats: crate::text_calls::named("kimi_k2").expect("a dialect"),
        ..setup(ToolCallStrategy::NativeApi)
    };
    let written = "Looking.<|tool_calls_section_begin|><|tool_call_begin|>functions.sky__weather:0\
                   <|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_calls_section_end|>";
    let first = written.as_bytes().chunks(5).map(|part| text(&String::from_utf8_lossy(part)));
    let (told, requests, _) = play(
        setup,
        vec![first.chain([end(FinishReason::Stop)]).collect(), vec![text("Sunny."), end(FinishReason::Stop)]],
    );
    assert!(!told.contains("<|"), "no mark is shown: {told}");
    let result = requests[1].messages.iter().find_map(|message| match message {
        Message::Tool(result) => Some(result),
        _ => None,
    });
    assert!(format!("{result:?}").contains("ok sky__weather"), "{result:?}");
}

#[test]
fn the_prompt_strategy_tells_tools_in_the_system_prompt_and_results_as_text() {
    let rounds = vec![
        vec![
            text("Looking.\n<tool_call>\n{\"name\": \"sky__weather\", \"argu"),
            text("ments\": {\"city\": \"Rome\"}}\n</tool_"),
            text("call>"),
            end(FinishReason::Stop),
        ],
        vec![text("Sunny."), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(setup(ToolCallStrategy::PromptBased), rounds);
    assert!(told.starts_with("text \"Looking.\"\nstart call_"), "{told}");
    assert!(!told.contains("tool_call>"), "no tag is shown: {told}");
    let Message::System(system) = &requests[0].messages[0] else { panic!("a system prompt was added") };
    assert!(system.content.text().contains("<tool>{\"type\":\"function\""));
    assert!(requests[0].tools.is_empty());
    let [_, _, Message::Assistant(said), Message::User(answer)] = &requests[1].messages[..] else {
        panic!("calls and results are text: {:?}", requests[1].messages)
    };
    assert!(
        said.calls.is_empty() && said.content.text().contains("<tool_call>\n{\"name\": \"sky__weather\"")
    );
    assert!(answer.content.text().starts_with("<tool_response>\n[sky__weather]\nok sky__weather"));
}

#[test]
fn a_malformed_text_call_is_reported_and_not_swallowed() {
    let rounds = vec![
        vec![
            text("<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": }}</tool_call>"),
            end(FinishReason::Stop),
        ],
        vec![text("Sorry."), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(setup(ToolCallStrategy::PromptBased), rounds);
    assert_eq!(told, "text \"Sorry.\"\nfinished stop 2\n");
    let Some(Message::User(report)) = requests[1].messages.last() else { panic!("the report is last") };
    assert!(report.content.text().contains("could not be read"));
}

#[test]
fn auto_switches_to_the_prompt_when_the_upstream_has_no_tools() {
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::Auto), &mut events);
    let refusal = |message: &str| ModelError::Rejected {
        url: "u".to_owned(),
        status: 400,
        message: message.to_owned(),
        body: None,
    };
    assert!(!ask.switch_to_prompt(&refusal("context too long")));
    assert!(ask.switch_to_prompt(&refusal("registry.example/llama2 does not support tools")));
    assert!(ask.request().tools.is_empty());
    assert!(!ask.switch_to_prompt(&refusal("does not support tools")), "only once");
    let mut native = start(setup(ToolCallStrategy::NativeApi), &mut events);
    assert!(!native.switch_to_prompt(&refusal("does not support tools")));
}

fn failed_generation(text: &str) -> ModelError {
    ModelError::Rejected {
        url: "u".to_owned(),
        status: 400,
        message: "Failed to call a function. Please adjust your prompt.".to_owned(),
        body: Some(Box::new(json!({"code": "tool_use_failed", "failed_generation": text}))),
    }
}

#[test]
fn calls_that_the_upstream_could_not_read_are_read_from_its_error() {
    for written in [
        "<function=sky__weather>{\"city\": \"Rome\"}</function>",
        "<function=sky__weather{\"city\": \"Rome\"}</function>",
        "<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
        "{\"name\": \"sky__weather\", \"parameters\": {\"city\": \"Rome\"}}",
    ] {
        let mut events = Vec::new();
        let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
        assert_eq!(ask.rescue(&failed_generation(written), &mut events), Rescue::Answered, "{written}");
        let Step::RunTools(run) = ask.finish(&mut events) else { panic!("{written}") };
        assert_eq!(run.calls()[0].call.arguments.raw().replace(' ', ""), "{\"city\":\"Rome\"}");
    }
}

#[test]
fn what_cannot_be_read_from_an_error_is_asked_again_once() {
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
    assert_eq!(ask.rescue(&failed_generation("I would call the weather."), &mut events), Rescue::AskAgain);
    assert_eq!(ask.rescue(&failed_generation("I would call the weather."), &mut events), Rescue::Nothing);
    let mut begun = start(setup(ToolCallStrategy::NativeApi), &mut events);
    begun.push(text("Hel"), &mut events);
    assert_eq!(
        begun.rescue(&failed_generation("<function=sky__time>{}</function>"), &mut events),
        Rescue::Nothing
    );
}

#[test]
fn another_model_takes_over_with_its_own_ways_and_only_its_own_tools() {
    let catalogue = Catalogue { tools: vec![tool("sky", "time")], ..Catalogue::default() };
    let other = |tools: ToolSet| StandIn {
        price: None,
        images: true,
        model: "spare".to_owned(),
        tools,
        parameters: [("temperature".to_owned(), json!(0))].into_iter().collect(),
        strategy: ToolCallStrategy::PromptBased,
        text_formats: crate::text_calls::DEFAULT,
        sealed: Vec::new(),
    };
    let fewer = ToolSet::new(&catalogue, &[], &[]);
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
    assert!(ask.stand_in(other(fewer.clone()), &mut events));
    assert_eq!(told(&events), "answering spare\n");
    assert!(ask.request().tools.is_empty(), "it is told its tools in the prompt");
    assert_eq!(ask.request().parameters["temperature"], json!(0));
    ask.push(
        text("<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>"),
        &mut events,
    );
    let Step::RunTools(run) = ask.finish(&mut events) else { panic!("the call is answered") };
    assert!(matches!(run.calls()[0].plan, Planned::Answered(_)), "it may not use the other's tools");

    let mut forced = setup(ToolCallStrategy::NativeApi);
    forced.request.tool_choice = Some(ToolChoice::Tool("sky__weather".to_owned()));
    let mut ask = start(forced, &mut events);
    assert!(!ask.stand_in(other(fewer.clone()), &mut events), "it has not the tool that is forced");
    let mut begun = start(setup(ToolCallStrategy::NativeApi), &mut events);
    begun.push(text("Hel"), &mut events);
    assert!(!begun.stand_in(other(fewer), &mut events), "somebody has seen the beginning");
}

#[test]
fn a_message_has_a_thousand_calls_as_text_and_no_more() {
    let one = "<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>\n";
    for (count, expected) in [(1024, 1024), (1025, 1024), (10_240, 1024)] {
        let mut events = Vec::new();
        let mut ask = start(setup(ToolCallStrategy::PromptBased), &mut events);
        ask.push(text(&one.repeat(count)), &mut events);
        let Step::RunTools(run) = ask.finish(&mut events) else { panic!("{count}") };
        assert_eq!(run.calls().len(), expected, "{count}");
        assert_eq!(run.turn.unread.len(), usize::from(count > expected), "told once");
    }
}
