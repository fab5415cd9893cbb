use serde_json::{Map, json};

use super::*;
use crate::message::{Arguments, Prose, ToolCall};
use crate::model::{FinishReason, ModelDelta, ModelError, ModelRequest};
use crate::policy::Labels;
use crate::project::{Limits, Price, ToolCallStrategy};
use crate::tool::{Catalogue, Tool, ToolContent, ToolOutput, ToolRef};
use crate::tool_set::{ToolSet, empty_schema};
use crate::turn::{Done, Entry, Setup, StandIn};

const PRICE: Price = Price { input: 1000.0, output: 2000.0, cached: 0.0, cache_written: 0.0 };

struct Played {
    course: Course,
    events: Vec<ChatEvent>,
}

fn start(limits: Limits, price: Option<Price>) -> Played {
    let id = ToolRef { server: "disk".into(), name: "read".into() };
    let catalogue = Catalogue { tools: vec![Tool::new(id, None, empty_schema())], ..Catalogue::default() };
    let messages = vec![Message::User(Prose { content: "read it".into(), rest: Map::new() })];
    let request = ModelRequest { messages, ..ModelRequest::default() };
    let setup =
        Setup::new("0123456789abcdef0123456789abcdef", "m", request, ToolSet::new(&catalogue, &[], &[]));
    let mut events = Vec::new();
    Played { course: Course::new(Setup { limits, price, ..setup }, &mut events), events }
}

impl Played {
    fn take(&mut self, entry: Entry) -> Taken {
        self.course.take(entry, &mut self.events).unwrap()
    }

    /// The model makes these calls, at so many tokens.
    fn calls(&mut self, numbers: impl IntoIterator<Item = usize>, usage: Option<(u64, u64)>) {
        for n in numbers {
            let arguments = Arguments::parse(json!({"n": n}).to_string());
            let (id, name) = (format!("call-{n}-{}", self.events.len()), "disk__read".to_owned());
            self.take(Entry::Delta(ModelDelta::Call(ToolCall { id, name, arguments, rest: Map::new() })));
        }
        self.end(usage, FinishReason::ToolCalls);
    }

    fn says(&mut self, text: &str, usage: Option<(u64, u64)>) {
        self.take(Entry::Delta(ModelDelta::Text(text.to_owned())));
        self.end(usage, FinishReason::Stop);
    }

    fn end(&mut self, usage: Option<(u64, u64)>, reason: FinishReason) {
        if let Some((input, output)) = usage {
            self.take(Entry::Delta(ModelDelta::Usage(Usage { input, output, ..Usage::default() })));
        }
        self.take(Entry::Delta(ModelDelta::Finish { reason, raw: None, stop_sequence: None }));
        self.take(Entry::Answered);
    }

    /// How many calls were run.
    fn run_all(&mut self) -> usize {
        let Step::RunTools(run) = self.course.step() else { panic!("tools are to run") };
        let open: Vec<usize> = run.open().map(|(at, ..)| at).collect();
        for call in &open {
            self.take(Entry::Running { call: *call });
            let output =
                ToolOutput { content: vec![ToolContent::Text("ok".to_owned())], ..ToolOutput::default() };
            self.take(Entry::Settled {
                call: *call,
                outcome: Ok(output),
                labels: Labels::default(),
                elapsed: Duration::ZERO,
            });
        }
        self.take(Entry::Ran);
        open.len()
    }

    fn request(&self) -> ModelRequest {
        let Step::AskModel(ask) = self.course.step() else { panic!("the model is asked") };
        ask.request().into_owned()
    }

    /// What the model is told last.
    fn told(&self) -> String {
        match self.request().messages.last() {
            Some(Message::Tool(result)) => result.content.text(),
            Some(Message::User(prose)) => prose.content.text(),
            other => panic!("{other:?}"),
        }
    }

    fn limits(&self) -> Vec<&'static str> {
        let limits = self.events.iter().filter_map(|event| match event {
            ChatEvent::Limited(limit) => Some(limit.name()),
            _ => None,
        });
        limits.collect()
    }

    /// The answer after a limit: asked for without tools and with the reason, and given.
    #[track_caller]
    fn ends_well(mut self, limit: &str, words: &str) -> Done {
        let request = self.request();
        assert!(request.tools.is_empty() && request.tool_choice.is_none());
        let told = self.told();
        assert!(
            told.contains("No more tool calls are possible in this turn") && told.contains(words),
            "{told}"
        );
        assert_eq!(self.limits(), [limit], "told once, before the answer");
        self.says("as far as I got", Some((1, 1)));
        assert!(matches!(self.events.last(), Some(ChatEvent::Finished { reason: FinishReason::Stop, .. })));
        self.course.into_done().unwrap()
    }
}

#[test]
fn rounds_at_the_limit_are_the_last_ones_however_many_the_model_wants() {
    for rounds in [1, 2, 100] {
        let mut turn = start(Limits { rounds, ..Limits::default() }, None);
        for n in 0..rounds {
            assert!(!turn.request().tools.is_empty(), "round {n} of {rounds}");
            turn.calls([n as usize], None);
            assert_eq!(turn.run_all(), 1);
        }
        let words = format!("the limit of {rounds} rounds");
        turn.ends_well("rounds", &words);
    }
}

#[test]
fn tokens_are_counted_over_all_asks_and_nothing_runs_beyond_them() {
    let limits = || Limits { tokens: Some(1000), ..Limits::default() };
    let mut below = start(limits(), None);
    below.calls([1], Some((900, 99)));
    assert_eq!(below.run_all(), 1, "999 are below the limit");
    assert!(below.limits().is_empty());
    below.calls([2], Some((0, 1)));
    assert_eq!(below.run_all(), 0, "1000 are not");
    below.ends_well("tokens", "the limit of 1000 tokens (1000 are used)");
    for used in [1000, 1001, 100_000] {
        let mut turn = start(limits(), None);
        turn.calls([1, 2], Some((used - 1, 1)));
        assert_eq!(turn.run_all(), 0);
        assert_eq!(turn.request().parameters["max_tokens"], 4096, "the last answer has its own bound");
        assert_eq!(turn.ends_well("tokens", "this call was not run").spent.tokens, used + 2);
    }
}

#[test]
fn an_answer_that_takes_more_than_the_limit_is_an_answer() {
    let mut turn = start(Limits { tokens: Some(1000), ..Limits::default() }, None);
    turn.says("all of it", Some((100_000, 100_000)));
    assert!(turn.limits().is_empty() && matches!(turn.course.step(), Step::Done(_)));
}

#[test]
fn tokens_of_an_upstream_that_does_not_count_are_estimated() {
    let mut turn = start(Limits { tokens: Some(1000), ..Limits::default() }, None);
    turn.take(Entry::Delta(ModelDelta::Reasoning("x".repeat(4000))));
    turn.calls([1], None);
    assert_eq!(turn.run_all(), 0);
    turn.ends_well("tokens", "the limit of 1000 tokens");
}

#[test]
fn money_is_counted_by_the_price_of_the_model_that_answered() {
    let limits = || Limits { cost_usd: Some(1.0), ..Limits::default() };
    // 1000 tokens in are a dollar, 500 out another
    for (usage, ends) in
        [((999, 0), false), ((0, 499), false), ((1000, 0), true), ((0, 501), true), ((100_000, 0), true)]
    {
        let mut turn = start(limits(), Some(PRICE));
        turn.calls([1], Some(usage));
        assert_eq!(turn.run_all(), usize::from(!ends), "{usage:?}");
        if ends {
            turn.ends_well("cost", "the limit of $1 ($");
        } else {
            assert!(turn.limits().is_empty());
        }
    }
    let mut unknown = start(limits(), None);
    unknown.calls([1], Some((1_000_000, 0)));
    assert_eq!(unknown.run_all(), 1, "without a price nothing is known to be spent");
}

/// A request of 400 bytes, of which nobody says how many tokens it is.
fn asked() -> Played {
    let mut turn = start(Limits::default(), Some(PRICE));
    turn.take(Entry::Delta(ModelDelta::Notice("slow today".to_owned())));
    let Step::AskModel(ask) = &mut turn.course.step else { panic!("the model is asked") };
    let Some(Message::User(said)) = ask.turn.request.messages.last_mut() else { panic!("a question") };
    said.content = "x".repeat(400).into();
    turn
}

fn timeout() -> ModelError {
    ModelError::Timeout { url: "u".to_owned(), what: "answer".into(), limit: Duration::from_secs(60) }
}

#[test]
fn an_ask_that_is_cut_off_before_its_first_piece_costs_its_request() {
    let failed =
        || ModelError::RateLimited { url: "u".to_owned(), message: "no".to_owned(), retry_after: None };
    for (end, costs) in [
        (Entry::Stopped, true),
        (Entry::Interrupted, true),
        (Entry::Failed(timeout()), true),
        (Entry::Failed(failed()), false),
    ] {
        let mut turn = asked();
        let request = turn.course.pending();
        assert!(request.tokens >= 100 && request.cost > 0.09, "{request:?}");
        turn.take(end.clone());
        assert_eq!(turn.course.spent(), if costs { request } else { Spent::default() }, "{end:?}");
    }
    let mut refused = asked();
    refused.take(Entry::Refused(failed()));
    refused.take(Entry::Failed(failed()));
    assert_eq!(refused.course.spent(), Spent::default());
}

#[test]
fn what_has_come_of_an_answer_that_is_cut_off_is_paid_for() {
    let usage = |input, output| Entry::Delta(ModelDelta::Usage(Usage { input, output, ..Usage::default() }));
    let thought = || Entry::Delta(ModelDelta::Reasoning("x".repeat(4000)));
    for end in [Entry::Stopped, Entry::Interrupted, Entry::Failed(timeout())] {
        let mut turn = asked();
        let request = turn.course.pending().tokens;
        turn.take(thought());
        turn.take(end.clone());
        assert_eq!(turn.course.spent().tokens, request + 1000, "{end:?}");
        // some say at the start what the request was, and at the end what the answer was
        let mut counted = asked();
        counted.take(usage(70, 1));
        counted.take(thought());
        counted.take(end.clone());
        assert_eq!(counted.course.spent().tokens, 70 + 1000, "{end:?}");
    }
}

#[test]
fn an_answer_that_is_asked_for_again_is_paid_for_twice() {
    let mut late = start(Limits::default(), None);
    late.calls([1], Some((10, 10)));
    late.run_all();
    let request = late.course.pending().tokens;
    late.take(Entry::Delta(ModelDelta::Reasoning("x".repeat(400))));
    late.take(Entry::TimeUp { limit: Duration::from_secs(300) });
    assert_eq!(late.course.spent().tokens, 20 + request + 100);
    late.says("as far as I got", Some((1, 1)));
    assert_eq!(late.course.spent().tokens, 20 + request + 100 + 2);
}

#[test]
fn a_model_that_nobody_heard_of_is_paid_for_by_its_own_price() {
    let stand_in = || {
        let text_formats = crate::text_calls::named("default").unwrap();
        let (strategy, parameters) = (ToolCallStrategy::NativeApi, Map::new());
        let (model, tools, sealed) = ("other".to_owned(), ToolSet::default(), Vec::new());
        StandIn { model, tools, parameters, strategy, price: None, images: true, text_formats, sealed }
    };
    let mut turn = asked();
    let request = turn.course.pending();
    assert_eq!(turn.take(Entry::Refused(timeout())), Taken::Nothing);
    assert_eq!(turn.take(Entry::StoodIn(Box::new(stand_in()))), Taken::AsksAgain);
    assert_eq!(turn.course.spent(), request);
    turn.says("well", Some((5, 5)));
    assert_eq!(turn.course.spent(), Spent { tokens: request.tokens + 10, cost: request.cost });
}

#[test]
fn a_model_that_thinks_is_not_cut_short_in_its_last_answer() {
    let bounded = |parameters: serde_json::Value| {
        let mut turn = start(Limits { tokens: Some(1), ..Limits::default() }, None);
        let Step::AskModel(ask) = &mut turn.course.step else { panic!("the model is asked") };
        ask.turn.request.parameters = parameters.as_object().unwrap().clone();
        turn.calls([1], Some((1, 1)));
        turn.run_all();
        serde_json::Value::Object(turn.request().parameters)
    };
    assert_eq!(bounded(json!({"max_tokens": 100})), json!({"max_tokens": 100}));
    assert_eq!(bounded(json!({"max_completion_tokens": 9999})), json!({"max_completion_tokens": 4096}));
    assert_eq!(bounded(json!({"reasoning_effort": "high"})), json!({"reasoning_effort": "high"}));
}

#[test]
fn identical_calls_are_run_until_the_limit_refused_at_it_and_end_the_turn_two_later() {
    for repeat_calls in [3, 5] {
        let mut turn = start(Limits { repeat_calls, rounds: 1000, ..Limits::default() }, None);
        for n in 1..repeat_calls + 2 {
            turn.calls([7], None);
            assert_eq!(turn.run_all(), usize::from(n < repeat_calls), "call {n} of {repeat_calls}");
        }
        turn.calls([7], None);
        turn.run_all();
        let words = format!("the limit of {repeat_calls} identical calls");
        turn.ends_well("repeated_calls", &words);
    }
    let mut turn = start(Limits { rounds: 1000, ..Limits::default() }, None);
    turn.calls([7; 300], None);
    assert_eq!(turn.run_all(), 2, "of three hundred in one round");
    turn.ends_well("repeated_calls", "the limit of 3 identical calls");
    let mut turn = start(Limits { rounds: 1000, ..Limits::default() }, None);
    turn.calls([1, 7, 7, 7, 7, 2, 7, 3, 4], None);
    assert_eq!(turn.run_all(), 4, "those before the limit was reached, and none behind it");
    turn.ends_well(
        "repeated_calls",
        "this call was not run: the turn has reached the limit of 3 identical calls",
    );
}

#[test]
fn when_time_is_up_running_calls_are_answered_and_the_model_is_asked_for_the_end() {
    let mut turn = start(Limits::default(), None);
    turn.calls([1, 2, 3], None);
    turn.take(Entry::Running { call: 0 });
    turn.take(Entry::Running { call: 1 });
    let output = ToolOutput { content: vec![ToolContent::Text("ok".to_owned())], ..ToolOutput::default() };
    turn.take(Entry::Settled {
        call: 1,
        outcome: Ok(output),
        labels: Labels::default(),
        elapsed: Duration::ZERO,
    });
    assert_eq!(turn.course.ending(), None);
    turn.take(Entry::TimeUp { limit: Duration::from_secs(300) });
    assert_eq!(turn.course.ending(), Some(Duration::from_secs(60)));
    let results: Vec<String> = turn
        .request()
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::Tool(result) => Some(result.content.text()),
            _ => None,
        })
        .collect();
    assert!(results[0].contains("while this call was running; its outcome is unknown"), "{results:?}");
    assert_eq!(results[1], "ok");
    assert!(results[2].starts_with("the turn's time was over before this call was run"), "{results:?}");
    turn.ends_well("time", "the time limit of 300s");
}

#[test]
fn when_time_is_up_an_answer_under_way_ends_and_one_that_has_not_begun_is_asked_for_again() {
    let waiting = || {
        let mut turn = start(Limits::default(), None);
        turn.calls([1], None);
        turn.run_all();
        turn
    };
    let up = || Entry::TimeUp { limit: Duration::from_secs(300) };
    let mut silent = waiting();
    silent.take(Entry::Delta(ModelDelta::Reasoning("hm".to_owned())));
    assert_eq!(silent.take(up()), Taken::AsksAgain);
    assert_eq!(silent.take(up()), Taken::Nothing, "its own bound is the last");
    silent.ends_well("time", "the time limit of 300s");
    let mut talking = waiting();
    talking.take(Entry::Delta(ModelDelta::Text("It is".to_owned())));
    assert_eq!(talking.take(up()), Taken::GoesOn);
    assert_eq!(talking.limits(), ["time"]);
    talking.says(" so.", None);
    let done = talking.course.into_done().unwrap();
    let Some(Message::Assistant(said)) = done.said.last() else { panic!("an answer") };
    assert_eq!(said.content.text(), "It is so.");
    let mut fresh = start(Limits::default(), None);
    assert_eq!(fresh.take(up()), Taken::Nothing, "there is nothing to answer from");
}

#[test]
fn a_turn_that_was_limited_is_read_back_from_its_entries() {
    let up = Entry::TimeUp { limit: Duration::from_millis(1500) };
    let text = serde_json::to_string(&up).unwrap();
    assert_eq!(text, r#"{"time_up":{"limit":1.5}}"#);
    assert!(
        matches!(serde_json::from_str(&text).unwrap(), Entry::TimeUp { limit } if limit.as_millis() == 1500)
    );
}
