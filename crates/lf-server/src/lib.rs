//! The daemon: [`App`], the turn driver, and the HTTP routes. `lf chat` runs the same [`App`] without HTTP.

mod app;

mod approvals;

pub mod audit;

mod template;

mod timestamp;

mod chat;

mod driver;

mod recording;

mod failover;

mod responses;

mod memory;

mod gateway;

mod guard;

mod reply;

mod routes;

mod serve;

pub mod view;

pub use app::{App, Command, EditRefusal, Loader, Parts, Refusal, StoredProject, Wanted};
pub use chat::{Calls, With};
pub use gateway::{Gateway, Offering};
pub use lf_models::Timeouts;
pub use recording::Recording;
pub use serve::{BindError, Serve, bind, serve};
