//! Our side of the protocol: what we declare, and what we answer when a server asks.

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, FormElicitationCapability, Implementation, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;

use super::elicitation::{self, Reply};

/// It declares forms of elicitation, which a policy answers, and nothing else, so that servers ask for nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(super) server: String,
}

/// What is declared to every server.
pub(super) fn config() -> ClientConfig {
    let mut capabilities = ClientCapabilities::default();
    let form = FormElicitationCapability::default();
    capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
    ClientConfig::new(capabilities, Implementation::new("lf", env!("CARGO_PKG_VERSION")))
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

impl Client {
    fn answer(&self, question: &Value) -> Reply {
        let reply = elicitation::answer(question);
        tracing::info!(
            server = self.server,
            action = reply.action(),
            "MCP server asked a person; nobody is asked"
        );
        reply
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        config()
    }

    fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<ElicitResult, ErrorData>> + Send + '_ {
        let question = serde_json::to_value(&request).unwrap_or_default();
        let result = match self.answer(&question) {
            Reply::Accept(content) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
            }
            Reply::Decline => ElicitResult::new(ElicitationAction::Decline),
        };
        std::future::ready(Ok(result))
    }

    /// A question whose schema the library cannot read is answered all the same.
    fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<CustomResult, ErrorData>> + Send + '_ {
        let answer = match request.method.as_str() {
            "elicitation/create" => {
                Ok(CustomResult::new(self.answer(&request.params.unwrap_or_default()).to_json()))
            }
            _ => Err(ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, request.method, None)),
        };
        std::future::ready(answer)
    }

    #[expect(
        deprecated,
        reason = "the library would answer with an empty list: a capability we do not declare"
    )]
    fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<rmcp::model::ListRootsResult, ErrorData>> + Send + '_ {
        std::future::ready(Err(ErrorData::method_not_found::<rmcp::model::ListRootsRequestMethod>()))
    }
}
