//! Routes: HTTP in, the app's answers out.

mod answer;
mod approvals;
mod compact;
mod conversation_tools;
mod conversations;
mod faces;
mod manage;
mod mcp;
mod messages;
pub(crate) mod projects;
mod responses;
mod servers;
mod sessions;
mod socket;
mod turns;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use lf_core::Project;
use lf_mcp::endpoint::Endpoint;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::guard::{self, Hosts};
use crate::reply::Caller;

/// The project that a route names; `None` where it names none.
pub(crate) struct Scoped(pub Option<Arc<Project>>);

impl FromRequestParts<Shared> for Scoped {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Response> {
        let path = RawPathParams::from_request_parts(parts, shared).await;
        let path = path.map_err(IntoResponse::into_response)?;
        let part = |name| path.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        let (Some(namespace), Some(name)) = (part("namespace"), part("project")) else {
            return Ok(Self(None));
        };
        let found = shared.app.find_project(namespace, name).await;
        found.map(|project| Self(Some(project))).map_err(|refusal| Caller::of(parts).refusal(&refusal))
    }
}

/// The project that a route names, or else the one that the daemon was started in.
pub(crate) struct Here(pub Arc<Project>);

impl FromRequestParts<Shared> for Here {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Response> {
        let Scoped(named) = Scoped::from_request_parts(parts, shared).await?;
        let found = named.map_or_else(|| manage::main_project(&shared.app), Ok);
        found.map(Self).map_err(|refusal| Caller::of(parts).refusal(&refusal))
    }
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub app: Arc<App>,
    /// Cancelled when the grace of a drain has passed: streams end with an error event.
    pub cut: CancellationToken,
    /// Turns that go on without their client, and WebSocket connections.
    pub tasks: TaskTracker,
    /// Cancelled when the drain begins: what has begun is finished, and nothing else is begun.
    pub stop: CancellationToken,
    pub sockets: Sockets,
    /// Whether only this machine can reach the daemon: projects are changed then only, as nobody says who he is.
    pub loopback: bool,
    /// The daemon as an MCP server.
    pub mcp: Endpoint,
}

use responses::reading;
pub(crate) use socket::Sockets;

pub(crate) fn router(shared: Shared, hosts: Hosts) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(answer::ask))
        .route("/v1/responses", post(answer::ask).get(socket::open))
        .route("/v1/responses/compact", post(compact::ask))
        .route("/v1/responses/{id}", get(reading::get).delete(reading::delete))
        .route("/v1/responses/{id}/cancel", post(reading::cancel))
        .route("/v1/responses/{id}/input_items", get(reading::inputs))
        .route("/v1/messages", post(answer::ask))
        .route("/v1/messages/count_tokens", post(answer::count_tokens))
        .route("/v1/models", get(manage::models))
        .route("/v1/models/{*model}", get(manage::model))
        .route("/v1/config/status", get(servers::config_status))
        .route("/v1/projects", get(projects::all))
        .route("/v1/projects/{namespace}", get(projects::list).post(projects::create))
        .route(
            "/v1/projects/{namespace}/{project}",
            get(projects::get).put(projects::put).delete(projects::delete),
        )
        .route("/v1/projects/{namespace}/{project}/chat/completions", post(answer::ask))
        .route("/v1/projects/{namespace}/{project}/chat/sessions", delete(sessions::delete_all))
        .route("/v1/projects/{namespace}/{project}/chat/sessions/{session}", delete(sessions::delete))
        .route("/v1/projects/{namespace}/{project}/chat/sessions/{session}/history", get(sessions::history))
        .route("/v1/projects/{namespace}/{project}/responses", post(answer::ask).get(socket::open))
        .route("/v1/projects/{namespace}/{project}/responses/compact", post(compact::ask))
        .route("/v1/projects/{namespace}/{project}/responses/{id}", get(reading::get).delete(reading::delete))
        .route("/v1/projects/{namespace}/{project}/responses/{id}/cancel", post(reading::cancel))
        .route("/v1/projects/{namespace}/{project}/responses/{id}/input_items", get(reading::inputs))
        .route("/v1/projects/{namespace}/{project}/v1/messages", post(answer::ask))
        .route("/v1/projects/{namespace}/{project}/v1/messages/count_tokens", post(answer::count_tokens))
        .route("/v1/projects/{namespace}/{project}/v1/models", get(manage::project_models))
        .route("/v1/projects/{namespace}/{project}/models", get(manage::project_models))
        .route("/v1/projects/{namespace}/{project}/mcp/servers", get(servers::list))
        .route("/v1/projects/{namespace}/{project}/mcp/servers/{server}", get(servers::get))
        .route("/v1/projects/{namespace}/{project}/mcp/servers/{server}/restart", post(servers::restart))
        .route("/v1/projects/{namespace}/{project}/tools", get(manage::tools))
        .route("/v1/mcp/servers", get(servers::list))
        .route("/v1/mcp/servers/{server}", get(servers::get))
        .route("/v1/mcp/servers/{server}/restart", post(servers::restart))
        .route("/v1/tools", get(manage::tools))
        .route("/api/mcp/execute", post(manage::execute))
        .merge(conversations(""))
        // beside everything else that this daemon serves
        .merge(conversations("/v1"))
        .route("/v1/turns/{id}", get(turns::get))
        .route("/v1/turns/{id}/events", get(turns::events))
        .route("/v1/turns/{id}/cancel", post(turns::cancel))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{id}", get(approvals::get).post(approvals::decide))
        .route("/mcp", any(mcp::own))
        .route("/mcp/{namespace}/{project}", any(mcp::project))
        .route("/mcp/{namespace}/{project}/{server}", any(mcp::server))
        .route("/health", get(servers::health))
        .route("/health/liveness", get(manage::liveness))
        .route("/health/readiness", get(servers::readiness))
        .route("/info", get(manage::info))
        // coding assistants look whether somebody is there before they send anything
        .route("/", get(manage::hello))
        .route("/v1", get(manage::hello))
        .route("/api/hello", get(manage::hello))
        .method_not_allowed_fallback(guard::wrong_method)
        .fallback(guard::not_found)
        .layer(from_fn_with_state(hosts, guard::guard))
        .with_state(shared)
}

fn conversations(under: &str) -> Router<Shared> {
    let at = |path: &str| format!("{under}/conversations{path}");
    Router::new()
        .route(&at(""), get(conversations::list).post(conversations::create))
        .route(
            &at("/{id}"),
            get(conversations::get).patch(conversations::change).delete(conversations::delete),
        )
        .route(&at("/{id}/messages"), get(messages::list).post(messages::append))
        .route(&at("/{id}/messages/{message}"), get(messages::get).delete(messages::delete))
        .route(&at("/{id}/chat"), post(conversations::chat))
        .route(
            &at("/{id}/tools"),
            get(conversation_tools::tools)
                .post(conversation_tools::switch_on)
                .delete(conversation_tools::switch_off),
        )
        .route(&at("/{id}/tools/available"), get(conversation_tools::available))
}
