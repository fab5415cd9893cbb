//! OpenAI Responses, both ways.
//!
//! Upstream side: [`crate::upstream`] and [`crate::AnswerDecoder`]. Served side: [`decode_request`], [`EventEncoder`] for
//! a streamed answer, [`Completion`] for a whole one, [`Compaction`] for a conversation made short, [`error_reply`] and
//! its neighbours.
//!
//! Facts are from the types of OpenAI's SDKs; where the Open Responses specification names an event otherwise, what both
//! have is used.

mod answer;
mod answer_items;
mod approvals;
mod compaction;
mod draft;
mod errors;
mod fields;
mod foreign;
mod frames;
mod ids;
mod inputs;
mod items;
mod parts;
mod reply;
mod request;
mod request_input;
mod request_parameters;
mod served;
mod stream;
mod tool_choice;
mod tools;
mod view;

pub(crate) use answer::read_event;
pub(crate) use answer_items::Reading;
pub use compaction::{Compaction, decode_compact_request_with};
pub use errors::{error_reply, internal_error_reply, request_error_reply, unknown_model_reply};
pub(crate) use foreign::check_foreign;
pub use frames::{Create, error_event, error_frame, limit_frame, read_create, too_large_frame};
pub use ids::response_of_item;
pub use inputs::input_items;
pub use reply::Completion;
pub(crate) use request::{encode, tools};
pub use served::{decode_request, decode_request_with};
pub use stream::EventEncoder;
pub use view::ResponsesView;

/// Key of `rest` maps and of the parameters for what only this dialect has.
pub const RESPONSES_ONLY: &str = "$responses";

/// What a body looks like, for those who sent none.
const EXAMPLE: &str = r#"{"input": [...]}"#;

/// Key under [`RESPONSES_ONLY`] of the parameters: the type of a tool that the request is about and no other API has.
const NEEDED: &str = "$needed";

/// Key of a message's `rest`: items of the input that came with it and brought tools. They are tools of all requests that
/// go on from it. Reserved, so that no upstream sees it.
const WITH_TOOLS: &str = "$tools";

/// Key under [`RESPONSES_ONLY`] of what came with a message of the model's: items in their order. Those that the message
/// itself says (`message`, `function_call`) only mark their places: the text and the calls are the message's own.
const ITEMS: &str = "items";

/// Between the texts of two items that become one text.
const PARAGRAPH: &str = "\n\n";

#[cfg(test)]
mod compaction_tests;

#[cfg(test)]
mod frames_tests;

#[cfg(test)]
mod served_tests;

#[cfg(test)]
mod upstream_tests;
