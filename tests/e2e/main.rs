//! The built `lf` against scripted models and real MCP servers: what a person gets, not what a module does.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests: a broken expectation is a failure, and the peers are started here"
)]

mod access;
mod approvals;
mod assistants;
mod audit;
mod bounds;
mod cancelling;
mod cassettes;
mod children;
mod config_plan;
mod configuration;
mod conformance;
mod connections;
mod conversation_document;
mod conversation_load;
mod conversation_messages;
mod conversations;
mod crashes;
mod disconnects;
mod every_dialect;
mod failover;
mod found_tools;
mod http_surface;
mod interactive;
mod kept_chats;
mod kept_responses;
mod large_results;
mod lifecycle;
mod limits;
mod mcp_clients;
mod mcp_gateway;
mod mcp_generations;
mod mcp_load;
mod mcp_oauth;
mod misbehaving_servers;
mod open_responses;
mod pins;
mod policy;
mod postgres;
mod power_cuts;
mod projects;
mod prompted;
mod queueing;
mod quick_start;
mod real_servers;
mod reload;
mod remote_faults;
mod responses;
mod retries;
mod sandbox;
mod sdk;
mod secrets;
mod shared_responses;
mod storage_faults;
mod supervision;
mod system_faults;
mod tidy;
mod tool_names;
mod turns;
mod upstream_trouble;
mod watching;
