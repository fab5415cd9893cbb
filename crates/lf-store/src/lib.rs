//! Remembers: conversations, the journal of their turns, and what clients may come back for.
//!
//! [`Store`] is the database of one data directory; only this crate knows SQL. Everything that it says was done is on
//! the disk: SQLite in WAL mode with `synchronous=FULL`, and many callers share one commit.

mod error;

mod sqlite;

mod schema;

mod store;

pub use error::StoreError;
#[doc(hidden)]
pub use sqlite::Durability;
pub use store::{
    Begin, Conversation, Kept, Kind, LeftWaiting, Page, Response, Store, TurnJournal, TurnRecord, TurnState,
};
