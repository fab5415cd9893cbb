//! Remembers: conversations, the journal of their turns, and what clients may come back for.
//!
//! [`Store`] is the database of one data directory, or one that several daemons share; only this crate knows SQL.
//! Everything that it says was done is on the disk: SQLite in WAL mode with `synchronous=FULL`, where many callers share one
//! commit, or Postgres.

mod error;

mod batch;

mod sqlite;

mod postgres;

mod dialect;

mod schema;

mod store;

pub use error::StoreError;
pub use postgres::LEASE;
#[doc(hidden)]
pub use sqlite::Durability;
pub use store::{
    Begin, Change, Conversation, End, Kept, Kind, Known, LeftWaiting, Page, Response, Store, TurnJournal,
    TurnRecord, TurnState,
};
