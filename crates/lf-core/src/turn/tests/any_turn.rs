//! What holds for any turn.

use crate::policy::Labels;
use proptest::prelude::*;

use super::*;

fn delta() -> impl Strategy<Value = ModelDelta> {
    let names = prop::sample::select(vec!["sky__weather", "sky__time", "cli_upload", "nope"]);
    let arguments =
        prop::sample::select(vec!["{\"city\":\"A\"}", "{\"city\":\"B\"}", "{}", "[", "", "{\"city\":1}"]);
    let ids = prop::sample::select(vec!["", "a", "b", "c"]);
    prop_oneof![
        ".{0,12}".prop_map(ModelDelta::Text),
        (ids, names, arguments).prop_map(|(id, name, arguments)| call(id, name, arguments)),
        Just(ModelDelta::Text(
            "<tool_call>{\"name\":\"sky__time\",\"arguments\":{\"city\":\"C\"}}</tool_call>".to_owned()
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_call_is_answered_once_and_rounds_are_bounded(
        script in prop::collection::vec(prop::collection::vec(delta(), 0..6), 1..8),
        limit in 1u32..5,
    ) {
        let mut start_from = setup(ToolCallStrategy::NativeApi);
        start_from.limits.rounds = limit;
        let mut events = Vec::new();
        let mut step = Step::AskModel(start(start_from, &mut events));
        let mut script = script.into_iter().cycle();
        let mut asked = 0;
        loop {
            step = match step {
                Step::AskModel(mut ask) => {
                    asked += 1;
                    prop_assert!(asked <= limit + 1, "more asks than rounds and the answer");
                    check_history(&ask.request());
                    for delta in script.next().unwrap_or_default() {
                        ask.push(delta, &mut events);
                    }
                    ask.push(end(FinishReason::Stop), &mut events);
                    ask.finish(&mut events)
                }
                Step::RunTools(mut run) => {
                    run.answered(&mut events);
                    for at in 0..run.calls().len() {
                        if matches!(run.calls()[at].plan, Planned::Run(_)) {
                            run.settle(at, (Ok(output("ok")), Labels::default()), Duration::ZERO, &mut events);
                        }
                    }
                    run.finish(&mut events)
                }
                Step::Judge(_) | Step::AskPerson(_) => panic!("no tool of these tests asks"),
                Step::Done(_) => break,
            };
        }
        let ends = events.iter().filter(|event| matches!(event, ChatEvent::Finished { .. })).count();
        prop_assert_eq!(ends, 1);
        let last_is_the_end = matches!(events.last(), Some(ChatEvent::Finished { .. }));
        prop_assert!(last_is_the_end);
    }
}
