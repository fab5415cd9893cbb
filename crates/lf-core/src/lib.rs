//! What a chat is: pure values and decisions, without IO, clock or runtime.
//!
//! The outside reaches this crate through three ports, [`ToolSource`], [`ModelProvider`] and [`Journal`]; everything a turn
//! decides is in [`turn`], and everything a client may see of it is a [`ChatEvent`].

pub mod secret;

pub mod place;

pub mod principal;

pub mod project;

pub mod operator;

pub mod policy;

pub mod message;

pub mod json;

pub mod visible;

pub mod audit;

pub mod text_calls;

pub mod tool;

pub mod pins;

pub mod tool_set;

pub mod results;

pub mod model;

pub mod prompting;

pub mod event;

pub mod turn;

pub mod quota;

pub mod journal;

pub use event::ChatEvent;
pub use journal::{Journal, JournalError};
pub use message::{Arguments, AssistantMessage, Content, Message, Part, Prose, ToolCall, ToolResult};
pub use model::{
    DeltaStream, FinishReason, ModelDelta, ModelError, ModelProvider, ModelRequest, ToolChoice, Usage,
};
pub use pins::Pins;
pub use principal::{Principal, Scope};
pub use project::{McpServer, Model, Project};
pub use secret::Secret;
pub use tool::{BoxFuture, Catalogue, Tool, ToolError, ToolOutput, ToolRef, ToolSource};
pub use tool_set::ToolSet;
