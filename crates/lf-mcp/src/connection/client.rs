//! Our side of the protocol: what we declare, and what we answer when a server asks.

use std::sync::Arc;

use lf_core::project::Elicitation;
use lf_core::tool::{Question, Reply};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, CustomResult, ElicitationCapability, ErrorCode,
    FormElicitationCapability, Implementation, ProtocolVersion, RequestId, ServerNotification, ServerRequest,
    UrlElicitationCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleClient};
use serde_json::Value;

use super::Lane;
use super::asking::by_policy;
use crate::failure::excerpt;
use crate::tap::Signals;

/// It declares elicitation and nothing else, so that servers ask for nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(super) lane: Lane,
    pub(super) server: Arc<str>,
    pub(super) policy: Elicitation,
    pub(super) signals: Arc<Signals>,
}

/// What is declared to every server. Roots are not: there is nothing to tell, and some servers do not end any more where
/// they are. Sampling is not: no model of a chat is asked on behalf of a server.
pub(super) fn config(lane: Lane) -> ClientConfig {
    let mut capabilities = ClientCapabilities::default();
    if let Some(abilities) = lane.relays {
        return named(abilities.declared());
    }
    let elicitation = ElicitationCapability::new()
        .with_form(FormElicitationCapability::default())
        .with_url(UrlElicitationCapability::default());
    capabilities.elicitation = Some(elicitation);
    named(capabilities)
}

fn named(capabilities: ClientCapabilities) -> ClientConfig {
    ClientConfig::new(capabilities, Implementation::new("lf", env!("CARGO_PKG_VERSION")))
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

impl Client {
    /// A question of a server that serves several clients at once must reach the right one of them, or none.
    fn nobody(&self, method: &str) -> Reply {
        tracing::warn!(
            server = &*self.server,
            method = excerpt(method, 64),
            "an MCP server asks, and it is not known which client"
        );
        let message = "several requests are running: it cannot be told whose client is asked".to_owned();
        Reply::Refused { code: -32_603, message }
    }

    async fn reply(&self, origin: Option<&RequestId>, method: &str, params: &Value) -> Reply {
        match self.signals.questions.ask(origin, method, params).await {
            Some(reply) if reply != Reply::Nobody => reply,
            _ if self.lane.relays.is_some() => self.nobody(method),
            Some(_) => by_policy(self.policy, method, params),
            // whoever might be asked did not ask for anything
            None => {
                let method_shown = excerpt(method, 64);
                tracing::debug!(
                    server = &*self.server,
                    method = method_shown,
                    "an MCP server asks although no call runs"
                );
                by_policy(Elicitation::Decline, method, params)
            }
        }
    }
}

impl Service<RoleClient> for Client {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let (method, params) = match request {
            ServerRequest::PingRequest(_) => return Ok(ClientResult::empty(())),
            ServerRequest::ElicitRequest(request) => {
                (Question::ELICITATION.to_owned(), serde_json::to_value(request.params))
            }
            ServerRequest::CreateMessageRequest(request) => {
                ("sampling/createMessage".to_owned(), serde_json::to_value(request.params))
            }
            ServerRequest::ListRootsRequest(_) => ("roots/list".to_owned(), Ok(Value::Null)),
            // also one that the library cannot read, such as a form with fields that it does not know
            ServerRequest::CustomRequest(request) => (request.method, Ok(request.params.unwrap_or_default())),
            _ => return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "not offered", None)),
        };
        let params = params.unwrap_or_default();
        let origin = match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            Some(InboundStreamOrigin::Unassociated) | None => None,
        };
        let reply = tokio::select! {
            reply = self.reply(origin, &method, &params) => reply,
            // nobody reads this: it withdrew the question
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        match reply {
            Reply::Result(result) => Ok(ClientResult::CustomResult(CustomResult::new(result))),
            Reply::Refused { code, message } => {
                let code = i32::try_from(code).map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
                Err(ErrorData::new(code, message, None))
            }
            Reply::Nobody => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)),
        }
    }

    /// Everything that matters is taken off by the tap.
    async fn handle_notification(
        &self,
        _notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        config(self.lane)
    }
}
