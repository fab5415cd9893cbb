//! The acceptance cases of Open Responses (specification of 2026-04-24), written anew: what the public suite asks of a
//! server, and for each case that the model was asked what it should be.

use lf_tests::client::{get, post, stream};
use lf_tests::open_responses::{compaction_problems, envelope_problems, response_problems, stream_problems};
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_model::{Received, Reply, Said, ScriptedModel};
use lf_tests::socket::Socket;
use serde_json::{Value, json};

/// A daemon over this model; the project goes with it.
struct Farm {
    model: ScriptedModel,
    daemon: Daemon,
    _project: TestProject,
}

impl Farm {
    fn answering(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::over(ScriptedModel::start(replies))
    }

    fn over(model: ScriptedModel) -> Self {
        let project = TestProject::with_model(&model.base_url(), &[]);
        Self { daemon: project.serve(), model, _project: project }
    }

    fn url(&self) -> String {
        self.daemon.url("/v1/responses")
    }

    /// A completed response to a request that is not streamed.
    #[track_caller]
    fn completed(&self, body: &Value) -> Value {
        let response = post(&self.url(), body).ok();
        assert_eq!(response_problems(&response), [""; 0]);
        assert_eq!(response["status"], "completed");
        response
    }

    fn socket(&self) -> Socket {
        Socket::open(&self.url())
    }

    fn history(&self, request: usize) -> Vec<Said> {
        self.model.request(request).asked.history
    }
}

fn person(text: &str) -> Said {
    Said::User(text.to_owned())
}

fn assistant(text: &str) -> Said {
    Said::Assistant { text: text.to_owned(), calls: Vec::new() }
}

#[expect(clippy::needless_pass_by_value, reason = "tests write `json!` here")]
fn ask(input: Value) -> Value {
    json!({"model": "assistant", "input": input})
}

fn message(role: &str, content: &str) -> Value {
    json!({"type": "message", "role": role, "content": content})
}

fn text_of(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_default()
}

/// A frame that wants a response which is not stored.
#[expect(clippy::needless_pass_by_value, reason = "tests write `json!` here")]
fn create(input: Value, previous: Option<&Value>) -> Value {
    let mut frame = json!({"type": "response.create", "model": "assistant", "store": false, "input": input});
    if let Some(response) = previous {
        frame["previous_response_id"] = response["id"].clone();
    }
    frame
}

/// The response that a request over a connection ends in.
#[track_caller]
fn responded(socket: &mut Socket, frame: &Value) -> Value {
    socket.send(frame);
    let frames = socket.answer();
    assert_eq!(stream_problems(&frames), [""; 0]);
    let response = frames.last().unwrap()["response"].clone();
    assert_eq!(response["status"], "completed", "{response}");
    response
}

/// The error that a request over a connection ends in.
#[track_caller]
fn refused(socket: &mut Socket, frame: &Value) -> Value {
    socket.send(frame);
    let mut frames = socket.answer();
    let last = frames.pop().unwrap();
    assert_eq!((frames.len(), envelope_problems(&last)), (0, Vec::new()), "{last}");
    last
}

const NOT_FOUND: &str = "previous_response_not_found";

// over HTTP

#[test]
fn a_text_is_answered() {
    let farm = Farm::answering([Reply::text("Hello dear llama").usage(9, 3)]);
    let response = farm.completed(&ask(json!([message("user", "Greet in three words.")])));
    assert_eq!(text_of(&response), "Hello dear llama");
    assert_eq!(response["usage"]["total_tokens"], 12);
    farm.model.finish();
}

#[test]
fn phases_of_earlier_answers_are_taken() {
    let farm = Farm::answering([Reply::text("4")]);
    let said = |phase: &str, content: &str| json!({"type": "message", "role": "assistant", "phase": phase, "content": content});
    let input = json!([
        said("commentary", "Looking up the saved number."),
        said("final_answer", "It is four."),
        message("user", "Only the number, please."),
    ]);
    farm.completed(&ask(input));
    let said = [assistant("Looking up the saved number.\n\nIt is four."), person("Only the number, please.")];
    assert_eq!(farm.history(0), said);
    farm.model.finish();
}

#[test]
fn phases_of_answers_fit_the_specification() {
    let mut response = Farm::answering([Reply::text("Four.")]).completed(&ask(json!("How many?")));
    let part = json!([{"type": "output_text", "text": "Counting.", "annotations": []}]);
    let message = |id: &str, phase: &str| json!({"id": id, "type": "message", "status": "completed", "role": "assistant", "phase": phase, "content": part});
    response["output"] = json!([message("msg_a", "commentary"), message("msg_b", "final_answer")]);
    assert_eq!(response_problems(&response), [""; 0]);
    response["output"][0]["phase"] = json!("musing");
    let problems = response_problems(&response);
    assert!(problems.len() == 1 && problems[0].starts_with(".output[0].phase is \"musing\""), "{problems:?}");
}

#[test]
fn an_answer_is_streamed() {
    let farm = Farm::answering([Reply::text("1 2 3 4 5").pieces(2)]);
    let body = json!({"model": "assistant", "input": [message("user", "Count to five.")], "stream": true});
    let events: Vec<Value> =
        stream(&farm.url(), &body).rest().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(stream_problems(&events), [""; 0]);
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), "1 2 3 4 5");
    assert_eq!(events.last().unwrap()["response"]["status"], "completed");
    farm.model.finish();
}

#[test]
fn a_system_message_is_obeyed() {
    let farm = Farm::answering([Reply::text("Arr!")]);
    farm.completed(&ask(json!([message("system", "Talk like a pirate."), message("user", "Greet me.")])));
    assert_eq!(farm.model.request(0).asked.system, "Talk like a pirate.");
    farm.model.finish();
}

#[test]
fn a_tool_is_called_by_the_client() {
    let farm = Farm::answering([Reply::call("call_1", "weather", json!({"place": "Cusco"}))]);
    let parameters =
        json!({"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]});
    let mut body = ask(json!([message("user", "How is the weather in Cusco?")]));
    body["tools"] = json!([{"type": "function", "name": "weather", "description": "The weather.", "parameters": parameters}]);
    let response = farm.completed(&body);
    let call = &response["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("weather")));
    assert_eq!(
        serde_json::from_str::<Value>(call["arguments"].as_str().unwrap()).unwrap(),
        json!({"place": "Cusco"})
    );
    farm.model.finish();
}

#[test]
fn an_image_reaches_the_model() {
    let farm = Farm::answering([Reply::text("A red dot.")]);
    let url = "data:image/png;base64,iVBORw0KGgo=";
    let content =
        json!([{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url}]);
    farm.completed(&ask(json!([{"type": "message", "role": "user", "content": content}])));
    let sent = farm.model.request(0).body;
    assert_eq!(sent["messages"][0]["content"][1]["image_url"]["url"], url, "{sent}");
    farm.model.finish();
}

#[test]
fn a_conversation_is_sent_along() {
    let farm = Farm::answering([Reply::text("Alma.")]);
    farm.completed(&ask(json!([
        message("user", "I am Alma."),
        message("assistant", "Good to meet you, Alma."),
        message("user", "Who am I?"),
    ])));
    assert_eq!(
        farm.history(0),
        [person("I am Alma."), assistant("Good to meet you, Alma."), person("Who am I?")]
    );
    farm.model.finish();
}

#[test]
fn a_conversation_is_compacted() {
    let farm = Farm::answering([Reply::text("Shearing is on Tuesday; tell the vet first.").usage(40, 9)]);
    let compacted = post(
        &farm.daemon.url("/v1/responses/compact"),
        &json!({"model": "assistant", "prompt_cache_key": "farm", "input": [
            message("user", "Shearing is on Tuesday, and the vet is told first."),
            message("assistant", "Noted: the vet first, then shearing on Tuesday."),
        ]}),
    )
    .ok();
    assert_eq!(compaction_problems(&compacted), [""; 0]);
    let kinds: Vec<&Value> =
        compacted["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "compaction"]);
    let sealed = compacted["output"][1]["encrypted_content"].as_str().unwrap();
    assert!(!sealed.contains("Tuesday"), "{sealed}");
    assert_eq!(compacted["usage"]["total_tokens"], 49);
    let Received { asked, body, .. } = farm.model.request(0);
    assert!(asked.last_user_text().contains("the vet first, then shearing on Tuesday"), "{body}");
    assert!(asked.tools.is_empty() && body["prompt_cache_key"] == "farm", "{body}");
    farm.model.finish();
}

#[test]
fn a_compaction_needs_a_model() {
    let farm = Farm::answering([]);
    let refusal =
        post(&farm.daemon.url("/v1/responses/compact"), &json!({"input": [message("user", "Hi.")]}));
    assert_eq!((refusal.status, &refusal.json()["error"]["param"]), (400, &json!("model")));
}

// over a connection

#[test]
fn a_request_over_a_connection_is_answered_with_the_same_events() {
    let farm = Farm::answering([Reply::text("1 2 3").pieces(2)]);
    let mut socket = farm.socket();
    let frame = json!({"type": "response.create", "model": "assistant", "input": [message("user", "Count to three.")]});
    let response = responded(&mut socket, &frame);
    assert_eq!(text_of(&response), "1 2 3");
    // stored, as over HTTP
    assert_eq!(get(&format!("{}/{}", farm.url(), response["id"].as_str().unwrap())).ok(), response);
    socket.close();
    farm.model.finish();
}

#[test]
fn a_connection_takes_one_request_after_another() {
    let farm = Farm::answering([Reply::text("first"), Reply::text("second")]);
    let mut socket = farm.socket();
    // both at once: the second waits
    socket.send(&create(json!("Say first."), None));
    socket.send(&create(json!("Say second."), None));
    for wanted in ["first", "second"] {
        let frames = socket.answer();
        assert_eq!(stream_problems(&frames), [""; 0]);
        assert_eq!(text_of(&frames.last().unwrap()["response"]), wanted);
    }
    assert_eq!(farm.history(1), [person("Say second.")], "nothing is carried over");
    farm.model.finish();
}

#[test]
fn a_connection_goes_on_from_what_is_not_stored() {
    let farm = Farm::answering([Reply::text("OK."), Reply::text("cobalt")]);
    let mut socket = farm.socket();
    let first = responded(&mut socket, &create(json!("The word is cobalt."), None));
    let second = responded(&mut socket, &create(json!("Which word?"), Some(&first)));
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(farm.history(1), [person("The word is cobalt."), assistant("OK."), person("Which word?")]);
    assert_eq!(get(&format!("{}/{}", farm.url(), first["id"].as_str().unwrap())).status, 404, "not stored");
    farm.model.finish();
}

#[test]
fn what_is_not_stored_is_lost_with_its_connection() {
    let farm = Farm::answering([Reply::text("OK."), Reply::text("recovered")]);
    let mut socket = farm.socket();
    let first = responded(&mut socket, &create(json!("The word is copper."), None));
    let mut other = farm.socket();
    assert_eq!(refused(&mut other, &create(json!("Go on."), Some(&first)))["error"]["code"], NOT_FOUND);
    socket.close();
    let mut again = farm.socket();
    assert_eq!(refused(&mut again, &create(json!("Go on."), Some(&first)))["error"]["code"], NOT_FOUND);
    let recovered = responded(&mut again, &create(json!([message("user", "Begin anew.")]), None));
    assert_eq!(text_of(&recovered), "recovered");
    farm.model.finish();
}

#[test]
fn a_missing_response_is_told_with_its_code() {
    let farm = Farm::answering([]);
    let refusal =
        refused(&mut farm.socket(), &create(json!("Go on."), Some(&json!({"id": "resp_of_nobody"}))));
    assert_eq!((&refusal["status"], &refusal["error"]["code"]), (&json!(400), &json!(NOT_FOUND)));
    assert_eq!(refusal["error"]["param"], "previous_response_id");
}

#[test]
fn a_continuation_that_fails_takes_along_what_it_went_on_from() {
    let stray = json!([{"type": "function_call_output", "call_id": "call_of_nobody", "output": "nothing"}]);
    let wrong = json!([{"type": "message", "role": "nobody", "content": "?"}]);
    let farm = Farm::over(ScriptedModel::start_by(|received| {
        Some(match received.asked.last_user_text() {
            "Break." => Reply::error(400, "no such thing"),
            _ => Reply::text("OK."),
        })
    }));
    let mut socket = farm.socket();
    // refused before it is a turn, refused while it is read, failed at the model
    for input in [stray, wrong, json!("Break.")] {
        let first = responded(&mut socket, &create(json!("The word is ember."), None));
        let refusal = refused(&mut socket, &create(input, Some(&first)));
        assert_eq!(refusal["status"], 400, "{refusal}");
        let retry = refused(&mut socket, &create(json!("Go on."), Some(&first)));
        assert_eq!(retry["error"]["code"], NOT_FOUND);
    }
}

#[test]
fn a_compacted_conversation_begins_a_new_chain() {
    let farm = Farm::answering([Reply::text("The code word is slate."), Reply::text("compacted")]);
    let compacted = post(
        &farm.daemon.url("/v1/responses/compact"),
        &ask(json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "The word is slate."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "OK."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Make it short."}]},
        ])),
    )
    .ok();
    let mut input = compacted["output"].clone();
    input.as_array_mut().unwrap().push(message("user", "Go on from here."));
    let mut frame = create(input, None);
    frame["tools"] = json!([]);
    assert_eq!(text_of(&responded(&mut farm.socket(), &frame)), "compacted");
    assert_eq!(
        farm.history(1),
        [
            person("The word is slate."),
            person("Make it short."),
            person("Summary of the conversation so far:\n\nThe code word is slate."),
            person("Go on from here."),
        ]
    );
    farm.model.finish();
}
