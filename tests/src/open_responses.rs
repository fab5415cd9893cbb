//! What the Open Responses specification of 2026-04-24 asks of responses and of events, as far as this program tells any:
//! required members, their types, and the words that are allowed.

use serde_json::{Map, Value};

/// What a value may be.
enum Shape {
    Text,
    Flag,
    Whole,
    Number,
    Null,
    Anything,
    Object,
    Word(&'static [&'static str]),
    Either(&'static [Shape]),
    List(&'static Shape),
    /// Required members; one whose name ends with `?` may be absent.
    Members(&'static [(&'static str, Shape)]),
    /// Members by the `type` of the value.
    ByType(&'static [(&'static str, Members)]),
}

type Members = &'static [(&'static str, Shape)];

use Shape::{Anything, ByType, Either, Flag, List, Null, Number, Object, Text, Whole, Word};

const TEXT_OR_NULL: Shape = Either(&[Text, Null]);
const WHOLE_OR_NULL: Shape = Either(&[Whole, Null]);
const STATUS: Shape = Word(&["in_progress", "completed", "incomplete"]);

const PART: Shape = ByType(&[
    ("output_text", &[("text", Text), ("annotations", List(&Object)), ("logprobs?", List(&Object))]),
    ("input_text", &[("text", Text)]),
    ("summary_text", &[("text", Text)]),
    ("reasoning_text", &[("text", Text)]),
    ("refusal", &[("refusal", Text)]),
    ("input_image", &[("image_url", TEXT_OR_NULL), ("detail", Word(&["low", "high", "auto"]))]),
]);

const ITEM: Shape = ByType(&[
    (
        "message",
        &[
            ("id", Text),
            ("status", STATUS),
            ("role", Word(&["user", "assistant", "system", "developer"])),
            ("content", List(&PART)),
            ("phase?", Word(&["commentary", "final_answer"])),
        ],
    ),
    (
        "function_call",
        &[("id", Text), ("call_id", Text), ("name", Text), ("arguments", Text), ("status", STATUS)],
    ),
    (
        "reasoning",
        &[("id", Text), ("summary", List(&PART)), ("content?", List(&PART)), ("encrypted_content?", Text)],
    ),
    ("compaction", &[("id", Text), ("encrypted_content", Text)]),
]);

const USAGE: Shape = Shape::Members(&[
    ("input_tokens", Whole),
    ("output_tokens", Whole),
    ("total_tokens", Whole),
    ("input_tokens_details", Shape::Members(&[("cached_tokens", Whole)])),
    ("output_tokens_details", Shape::Members(&[("reasoning_tokens", Whole)])),
]);

const TOOL: Shape = ByType(&[(
    "function",
    &[
        ("name", Text),
        ("description", TEXT_OR_NULL),
        ("parameters", Either(&[Object, Null])),
        ("strict", Either(&[Flag, Null])),
    ],
)]);

const CHOICE: Shape = Word(&["none", "auto", "required"]);

const FORMAT: Shape = ByType(&[
    ("text", &[]),
    ("json_object", &[]),
    ("json_schema", &[("name", Text), ("description", TEXT_OR_NULL), ("schema", Anything), ("strict", Flag)]),
]);

const RESPONSE: Shape = Shape::Members(&[
    ("id", Text),
    ("object", Word(&["response"])),
    ("created_at", Whole),
    ("completed_at", WHOLE_OR_NULL),
    ("status", Word(&["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"])),
    ("incomplete_details", Either(&[Shape::Members(&[("reason", Text)]), Null])),
    ("model", Text),
    ("previous_response_id", TEXT_OR_NULL),
    ("instructions", TEXT_OR_NULL),
    ("output", List(&ITEM)),
    ("error", Either(&[Shape::Members(&[("code", Text), ("message", Text)]), Null])),
    ("tools", List(&TOOL)),
    (
        "tool_choice",
        Either(&[
            CHOICE,
            ByType(&[
                ("function", &[("name", Text)]),
                ("allowed_tools", &[("tools", List(&Object)), ("mode", CHOICE)]),
            ]),
        ]),
    ),
    ("truncation", Word(&["auto", "disabled"])),
    ("parallel_tool_calls", Flag),
    ("text", Shape::Members(&[("format", FORMAT), ("verbosity?", Word(&["low", "medium", "high"]))])),
    ("top_p", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("top_logprobs", Whole),
    ("temperature", Number),
    ("reasoning", Either(&[Shape::Members(&[("effort", TEXT_OR_NULL), ("summary", TEXT_OR_NULL)]), Null])),
    ("usage", Either(&[USAGE, Null])),
    ("max_output_tokens", WHOLE_OR_NULL),
    ("max_tool_calls", WHOLE_OR_NULL),
    ("store", Flag),
    ("background", Flag),
    ("service_tier", Text),
    ("metadata", Anything),
    ("safety_identifier", TEXT_OR_NULL),
    ("prompt_cache_key", TEXT_OR_NULL),
]);

const COMPACTED: Shape = Shape::Members(&[
    ("id", Text),
    ("object", Word(&["response.compaction"])),
    ("created_at", Whole),
    ("output", List(&ITEM)),
    ("usage", USAGE),
]);

const OF_A_RESPONSE: Members = &[("sequence_number", Whole), ("response", RESPONSE)];
const OF_AN_ITEM: Members = &[("sequence_number", Whole), ("output_index", Whole), ("item", ITEM)];
/// Members of every event about a piece of an item.
const PLACE: Members = &[("sequence_number", Whole), ("item_id", Text), ("output_index", Whole)];

const EVENTS: &[(&str, &[Members])] = &[
    ("response.created", &[OF_A_RESPONSE]),
    ("response.queued", &[OF_A_RESPONSE]),
    ("response.in_progress", &[OF_A_RESPONSE]),
    ("response.completed", &[OF_A_RESPONSE]),
    ("response.incomplete", &[OF_A_RESPONSE]),
    ("response.failed", &[OF_A_RESPONSE]),
    ("response.output_item.added", &[OF_AN_ITEM]),
    ("response.output_item.done", &[OF_AN_ITEM]),
    ("response.content_part.added", &[PLACE, &[("content_index", Whole), ("part", PART)]]),
    ("response.content_part.done", &[PLACE, &[("content_index", Whole), ("part", PART)]]),
    ("response.output_text.delta", &[PLACE, &[("content_index", Whole), ("delta", Text)]]),
    ("response.output_text.done", &[PLACE, &[("content_index", Whole), ("text", Text)]]),
    ("response.refusal.delta", &[PLACE, &[("content_index", Whole), ("delta", Text)]]),
    ("response.refusal.done", &[PLACE, &[("content_index", Whole), ("refusal", Text)]]),
    ("response.function_call_arguments.delta", &[PLACE, &[("delta", Text)]]),
    ("response.function_call_arguments.done", &[PLACE, &[("arguments", Text)]]),
    ("response.reasoning_summary_part.added", &[PLACE, &[("summary_index", Whole), ("part", PART)]]),
    ("response.reasoning_summary_part.done", &[PLACE, &[("summary_index", Whole), ("part", PART)]]),
    ("response.reasoning_summary_text.delta", &[PLACE, &[("summary_index", Whole), ("delta", Text)]]),
    ("response.reasoning_summary_text.done", &[PLACE, &[("summary_index", Whole), ("text", Text)]]),
];

/// An error without a response, over a connection.
const ENVELOPE: Members = &[
    ("status", Whole),
    (
        "error",
        Shape::Members(&[("code", Text), ("message", Text), ("type?", Text), ("param?", TEXT_OR_NULL)]),
    ),
];

/// What is wrong with a response object, a line each.
pub fn response_problems(response: &Value) -> Vec<String> {
    problems_of(&RESPONSE, response)
}

/// What is wrong with an answer of `…/responses/compact`.
pub fn compaction_problems(compacted: &Value) -> Vec<String> {
    problems_of(&COMPACTED, compacted)
}

/// What is wrong with the events of one response: each by itself, their numbers, and how they begin and end.
pub fn stream_problems(events: &[Value]) -> Vec<String> {
    let mut problems: Vec<String> = events.iter().flat_map(event_problems).collect();
    for (at, event) in events.iter().enumerate() {
        if event["sequence_number"].as_u64() != u64::try_from(at).ok() {
            problems.push(format!("event {at} has the number {}", event["sequence_number"]));
        }
    }
    if events.first().is_none_or(|event| event["type"] != "response.created") {
        problems.push("the first event is not `response.created`".to_owned());
    }
    let ends = events.iter().filter(|event| is_end(event)).count();
    if ends != 1 || !events.last().is_some_and(is_end) {
        problems
            .push(format!("{ends} of {} events are an end, which the last one alone must be", events.len()));
    }
    for at in open_items(events) {
        problems.push(format!("the item at {at} does not begin once and end once"));
    }
    problems
}

/// Whether a response has ended with this event.
pub fn is_end(event: &Value) -> bool {
    matches!(event["type"].as_str(), Some("response.completed" | "response.incomplete" | "response.failed"))
}

/// What is wrong with a frame that says that there will be no response.
pub fn envelope_problems(frame: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(&Word(&["error"]), &frame["type"], "type", &mut problems);
    members(ENVELOPE, frame, "", &mut problems);
    problems
}

fn problems_of(shape: &Shape, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(shape, value, "", &mut problems);
    problems
}

fn event_problems(event: &Value) -> Vec<String> {
    let kind = event["type"].as_str().unwrap_or_default();
    let Some((_, known)) = EVENTS.iter().find(|(name, _)| *name == kind) else {
        return vec![format!("there is no event `{kind}`: {event}")];
    };
    let mut problems = Vec::new();
    known.iter().for_each(|some| members(some, event, kind, &mut problems));
    problems
}

/// The places whose items are not added and done once each, in this order.
fn open_items(events: &[Value]) -> Vec<u64> {
    let places = |kind: &'static str| {
        let found = events.iter().filter(move |event| event["type"] == kind);
        found.filter_map(|event| event["output_index"].as_u64()).collect::<Vec<_>>()
    };
    let (added, done) = (places("response.output_item.added"), places("response.output_item.done"));
    let once = |place: &u64| {
        let count = |list: &[u64]| list.iter().filter(|other| *other == place).count();
        count(&added) == 1 && count(&done) == 1
    };
    added.iter().chain(&done).filter(|place| !once(place)).copied().collect()
}

fn check(shape: &Shape, value: &Value, path: &str, problems: &mut Vec<String>) {
    let wanted = match shape {
        Anything => return,
        Text if value.is_string() => return,
        Flag if value.is_boolean() => return,
        Whole if value.is_u64() => return,
        Number if value.is_number() => return,
        Null if value.is_null() => return,
        Object if value.is_object() => return,
        Word(words) if value.as_str().is_some_and(|word| words.contains(&word)) => return,
        Either(shapes) => {
            let all: Vec<Vec<String>> = shapes.iter().map(|shape| problems_at(shape, value, path)).collect();
            if !all.iter().any(Vec::is_empty) {
                problems.extend(all.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
            return;
        }
        List(of) if value.is_array() => {
            for (at, value) in value.as_array().into_iter().flatten().enumerate() {
                check(of, value, &format!("{path}[{at}]"), problems);
            }
            return;
        }
        Shape::Members(known) if value.is_object() => return members(known, value, path, problems),
        ByType(kinds) => {
            let kind = value["type"].as_str().unwrap_or_default();
            match kinds.iter().find(|(name, _)| *name == kind) {
                Some((_, known)) => members(known, value, path, problems),
                None => problems.push(format!("{path} has the unknown type `{kind}`: {value}")),
            }
            return;
        }
        Text => "a string".to_owned(),
        Flag => "true or false".to_owned(),
        Whole => "a whole number".to_owned(),
        Number => "a number".to_owned(),
        Null => "null".to_owned(),
        Object | Shape::Members(_) => "an object".to_owned(),
        Word(words) => format!("one of {words:?}"),
        List(_) => "a list".to_owned(),
    };
    problems.push(format!("{path} is {value}, not {wanted}"));
}

fn problems_at(shape: &Shape, value: &Value, path: &str) -> Vec<String> {
    let mut problems = Vec::new();
    check(shape, value, path, &mut problems);
    problems
}

fn members(known: Members, value: &Value, path: &str, problems: &mut Vec<String>) {
    let none = Map::new();
    let object = value.as_object().unwrap_or(&none);
    for (name, shape) in known {
        let required = name.strip_suffix('?').is_none();
        let name = name.trim_end_matches('?');
        let path = format!("{path}.{name}");
        match object.get(name) {
            Some(value) => check(shape, value, &path, problems),
            None if required => problems.push(format!("{path} is missing")),
            None => {}
        }
    }
}
