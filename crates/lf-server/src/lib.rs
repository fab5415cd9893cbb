//! The daemon: [`App`], the turn driver, and the HTTP routes. `lf chat` runs the same [`App`] without HTTP.

mod app;

pub mod access;

mod approvals;

pub mod audit;

mod template;

mod timestamp;

mod chat;

mod rules;

mod driver;

mod recording;

mod results;

mod quotas;

mod failover;

mod responses;

mod memory;

mod gateway;

mod guard;

mod admission;

mod authority;

mod reply;

mod routes;

mod serve;

mod reload;

pub mod view;

pub mod explain;

pub use app::{
    App, Broken, Command, ConfigStatus, EditRefusal, Generation, Loader, Opened, Parts, Pending, Refusal,
    RefusedEdit, StoredProject, Wanted, storage_of,
};
pub use chat::{Calls, With};
pub use gateway::{Gateway, Offering};
pub use guard::cors_origin;
pub use lf_models::{Egress, Timeouts};
pub use recording::Recording;
pub use routes::{Need, Route, route_table};
pub use serve::{BindError, Serve, bind, serve};
