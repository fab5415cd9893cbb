//! The built `lf` against scripted models and real MCP servers: what a person gets, not what a module does.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests: a broken expectation is a failure, and the peers are started here"
)]

mod cancelling;
mod configuration;
mod every_dialect;
mod failover;
mod http_surface;
mod lifecycle;
mod misbehaving_servers;
mod prompted;
mod quick_start;
mod real_servers;
mod sdk;
mod tidy;
mod tool_names;
mod turns;
mod upstream_trouble;
