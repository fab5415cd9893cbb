use serde_json::Map;

use super::*;
use crate::message::Prose;
use crate::model::ModelRequest;
use crate::tool_set::ToolSet;
use crate::turn::{Setup, StandIn, start};

const PIXEL: &str = "data:image/png;base64,iVBORw0KGgo=";

fn asked(url: &str) -> Vec<Message> {
    let parts = vec![Part::Text("look".to_owned()), Part::Image { url: url.to_owned(), detail: None }];
    vec![Message::User(Prose { content: Content::Parts(parts), rest: Map::new() })]
}

fn setup(images: bool, url: &str) -> Setup {
    let request = ModelRequest { messages: asked(url), ..ModelRequest::default() };
    Setup { images, ..Setup::new("0123456789abcdef0123456789abcdef", "m", request, ToolSet::default()) }
}

fn shown(images: bool, url: &str) -> (Vec<Message>, usize) {
    let mut events = Vec::new();
    let ask = start(setup(images, url), &mut events);
    let notices = events.iter().filter(|event| matches!(event, ChatEvent::Notice(_))).count();
    (ask.request().messages.clone(), notices)
}

fn note_of(messages: &[Message]) -> String {
    let [Message::User(prose)] = messages else { panic!("{messages:?}") };
    prose.content.text()
}

#[test]
fn a_model_that_takes_images_is_shown_them_and_another_is_told_of_them() {
    assert_eq!(shown(true, PIXEL), (asked(PIXEL), 0));
    let (messages, notices) = shown(false, PIXEL);
    assert_eq!(note_of(&messages), "look[an image (image/png, 8 bytes), which this model cannot be shown]");
    assert_eq!(notices, 1, "whoever asked is told");
    let (messages, _) = shown(false, &format!("https://a.example/{}", "x".repeat(10_000)));
    assert!(note_of(&messages).len() < 300);
}

#[test]
fn a_stand_in_is_shown_what_it_takes_itself() {
    let stand_in = |images| StandIn {
        model: "other".to_owned(),
        tools: ToolSet::default(),
        parameters: Map::new(),
        strategy: crate::project::ToolCallStrategy::NativeApi,
        price: None,
        images,
        text_formats: crate::text_calls::DEFAULT,
        sealed: Vec::new(),
    };
    let mut events = Vec::new();
    let mut ask = start(setup(true, PIXEL), &mut events);
    assert!(ask.stand_in(stand_in(false), &mut events));
    assert!(note_of(&ask.request().messages).contains("cannot be shown"));
    assert!(ask.stand_in(stand_in(true), &mut events));
    assert_eq!(ask.request().messages, asked(PIXEL), "nothing of the conversation was lost");
}
