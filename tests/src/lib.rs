//! The test kit: scripted peers that check what they are sent, the built `lf` program in a project of its own,
//! and what is needed to wait without sleeping.
//!
//! Tests are plain functions; the peers live on one runtime of the kit's own ([`runtime`]).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test kit: a broken expectation is a failed test, and it starts the programs under test"
)]

pub mod runtime;

pub mod wait;

pub mod scripted_model;

pub mod scripted_mcp;

pub mod scripted_access;

pub mod program;

pub mod project;

pub mod processes;

pub mod keys;

pub mod disk;

pub mod keeping;

pub mod client;

pub mod caller;

pub mod approvals;

pub mod conversation;

pub mod socket;

pub mod open_responses;

pub mod tls_front;

pub mod peers;

pub use lf_test_postgres as postgres;

pub mod conformance;

pub mod corpus;

pub mod advisories;
