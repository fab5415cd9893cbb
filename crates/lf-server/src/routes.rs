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
mod table;
mod turns;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use lf_core::{Principal, Project, Scope};
use lf_mcp::endpoint::Endpoint;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{self, Admission};
use crate::app::App;
use crate::guard::{self, Hosts};
use crate::reply::Caller;
use table::{Table, any, delete, get, patch, post, put};

pub use table::{Need, Route};

/// Who asks, as [`admission::admit`] found.
pub(crate) struct Who(pub Arc<Principal>);

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let found = parts.extensions.get::<Arc<Principal>>().cloned();
        found
            .map(Self)
            .ok_or_else(|| Caller::of(parts).refuse(StatusCode::FORBIDDEN, "nobody was let in to this route"))
    }
}

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
        let Who(who) = Who::from_request_parts(parts, shared).await?;
        let found = shared.app.find_project(&who, namespace, name).await;
        found.map(|project| Self(Some(project))).map_err(|refusal| Caller::of(parts).refusal(&refusal))
    }
}

/// The project that a route names, or else the one that the daemon was started in.
pub(crate) struct Here(pub Arc<Project>);

impl FromRequestParts<Shared> for Here {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Response> {
        let Scoped(named) = Scoped::from_request_parts(parts, shared).await?;
        let Who(who) = Who::from_request_parts(parts, shared).await?;
        let found = named.map_or_else(|| manage::main_project(&shared.app, &who), Ok);
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
    /// The daemon as an MCP server.
    pub mcp: Endpoint,
}

use responses::reading;
pub(crate) use socket::Sockets;

/// Every route, each with the scope it needs. What is not here is not served.
fn table() -> Table {
    use Need::Open;
    use Scope::{Approve, Chat, ConfigWrite, Read, Tools};
    Table::new()
        .merge(models("/v1"))
        .at("/v1/messages", [post(Chat, answer::ask)])
        .at("/v1/messages/count_tokens", [post(Chat, answer::count_tokens)])
        .at("/v1/models", [get(Read, manage::models)])
        .at("/v1/models/{*model}", [get(Read, manage::model)])
        .at("/v1/config/status", [get(Read, servers::config_status)])
        .at("/v1/projects", [get(Read, projects::all)])
        .at("/v1/projects/{namespace}", [get(Read, projects::list), post(ConfigWrite, projects::create)])
        .at(
            PROJECT,
            [
                get(Read, projects::get),
                put(ConfigWrite, projects::put),
                delete(ConfigWrite, projects::delete),
            ],
        )
        .merge(models(PROJECT))
        .at(&of_project("/chat/sessions"), [delete(Chat, sessions::delete_all)])
        .at(&of_project("/chat/sessions/{session}"), [delete(Chat, sessions::delete)])
        .at(&of_project("/chat/sessions/{session}/history"), [get(Chat, sessions::history)])
        .at(&of_project("/v1/messages"), [post(Chat, answer::ask)])
        .at(&of_project("/v1/messages/count_tokens"), [post(Chat, answer::count_tokens)])
        .at(&of_project("/v1/models"), [get(Read, manage::project_models)])
        .at(&of_project("/models"), [get(Read, manage::project_models)])
        .merge(servers(PROJECT))
        .merge(servers("/v1"))
        .at("/api/mcp/execute", [post(Tools, manage::execute)])
        .merge(conversations(""))
        // beside everything else that this daemon serves
        .merge(conversations("/v1"))
        .at("/v1/turns/{id}", [get(Chat, turns::get)])
        .at("/v1/turns/{id}/events", [get(Chat, turns::events)])
        .at("/v1/turns/{id}/cancel", [post(Chat, turns::cancel)])
        .at("/v1/approvals", [get(Approve, approvals::list)])
        .at("/v1/approvals/{id}", [get(Approve, approvals::get), post(Approve, approvals::decide)])
        // what else a message needs is in [`crate::gateway`]'s table
        .at("/mcp", [any(Read, mcp::own)])
        .at("/mcp/{namespace}/{project}", [any(Read, mcp::project)])
        .at("/mcp/{namespace}/{project}/{server}", [any(Read, mcp::server)])
        .at("/health", [get(Read, servers::health)])
        // whoever starts and stops the daemon asks these, and has no key
        .at("/health/liveness", [get(Open, manage::liveness)])
        .at("/health/readiness", [get(Open, servers::readiness)])
        .at("/info", [get(Read, manage::info)])
        // coding assistants look whether somebody is there before they send anything
        .at("/", [get(Read, manage::hello)])
        .at("/v1", [get(Read, manage::hello)])
        .at("/api/hello", [get(Read, manage::hello)])
}

const PROJECT: &str = "/v1/projects/{namespace}/{project}";

fn of_project(path: &str) -> String {
    format!("{PROJECT}{path}")
}

/// OpenAI's two APIs.
fn models(under: &str) -> Table {
    use Scope::Chat;
    let at = |path: &str| format!("{under}{path}");
    Table::new()
        .at(&at("/chat/completions"), [post(Chat, answer::ask)])
        .at(&at("/responses"), [post(Chat, answer::ask), get(Chat, socket::open)])
        .at(&at("/responses/compact"), [post(Chat, compact::ask)])
        .at(&at("/responses/{id}"), [get(Chat, reading::get), delete(Chat, reading::delete)])
        .at(&at("/responses/{id}/cancel"), [post(Chat, reading::cancel)])
        .at(&at("/responses/{id}/input_items"), [get(Chat, reading::inputs)])
}

fn servers(under: &str) -> Table {
    use Scope::{Admin, Read};
    let at = |path: &str| format!("{under}{path}");
    Table::new()
        .at(&at("/mcp/servers"), [get(Read, servers::list)])
        .at(&at("/mcp/servers/{server}"), [get(Read, servers::get)])
        .at(&at("/mcp/servers/{server}/restart"), [post(Admin, servers::restart)])
        .at(&at("/tools"), [get(Read, manage::tools)])
}

fn conversations(under: &str) -> Table {
    use Scope::Chat;
    let at = |path: &str| format!("{under}/conversations{path}");
    Table::new()
        .at(&at(""), [get(Chat, conversations::list), post(Chat, conversations::create)])
        .at(
            &at("/{id}"),
            [
                get(Chat, conversations::get),
                patch(Chat, conversations::change),
                delete(Chat, conversations::delete),
            ],
        )
        .at(&at("/{id}/messages"), [get(Chat, messages::list), post(Chat, messages::append)])
        .at(&at("/{id}/messages/{message}"), [get(Chat, messages::get), delete(Chat, messages::delete)])
        .at(&at("/{id}/chat"), [post(Chat, conversations::chat)])
        .at(
            &at("/{id}/tools"),
            [
                get(Chat, conversation_tools::tools),
                post(Chat, conversation_tools::switch_on),
                delete(Chat, conversation_tools::switch_off),
            ],
        )
        .at(&at("/{id}/tools/available"), [get(Chat, conversation_tools::available)])
}

/// Every route of the daemon with what it needs, as it is served.
pub fn route_table() -> Vec<Route> {
    table().into_parts().1
}

pub(crate) fn router(shared: Shared, hosts: Hosts) -> Router {
    let (routes, needs) = table().into_parts();
    let access = shared.app.access.clone();
    let admission = Admission::new(access, shared.app.audit.clone(), needs, hosts.loopback);
    routes
        .method_not_allowed_fallback(guard::wrong_method)
        .fallback(guard::not_found)
        .route_layer(from_fn_with_state(admission, admission::admit))
        .layer(from_fn_with_state(Arc::new(hosts), guard::guard))
        .with_state(shared)
}
