//! One client's requests, of either generation.

use std::sync::Arc;

use lf_core::tool::{ToolContent, ToolOutput, ToolProgress};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, Implementation, ListToolsResult,
    MetaObject, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Offer, Refused};

/// Progress reports that wait for a slow client; more are dropped, because only the latest matters.
const PROGRESS_BUFFER: usize = 64;

pub(super) struct Handler {
    offer: Arc<dyn Offer>,
}

impl Handler {
    pub(super) fn new(offer: Arc<dyn Offer>) -> Self {
        Self { offer }
    }

    /// Runs a tool and tells its progress, in order, before its result.
    async fn run(
        &self,
        request: CallToolRequestParams,
        told: Option<(ProgressToken, Peer<RoleServer>)>,
    ) -> Result<ToolOutput, Refused> {
        let (reports, mut waiting) = mpsc::channel(PROGRESS_BUFFER);
        let wanted = told.is_some();
        let report = move |progress: ToolProgress| {
            if wanted {
                let _ = reports.try_send(progress);
            }
        };
        let arguments = request.arguments.unwrap_or_default();
        let mut call = self.offer.call(&request.name, &arguments, &report);
        let tell = |progress: ToolProgress| {
            let told = told.clone();
            async move {
                let Some((token, peer)) = told else { return };
                let mut params = ProgressNotificationParam::new(token, progress.progress);
                params.total = progress.total;
                params.message = progress.message;
                // a client that is gone is told by the end of the request
                let _ = peer.notify_progress(params).await;
            }
        };
        let outcome = loop {
            tokio::select! {
                biased;
                Some(progress) = waiting.recv() => tell(progress).await,
                outcome = &mut call => break outcome,
            }
        };
        while let Ok(progress) = waiting.try_recv() {
            tell(progress).await;
        }
        outcome
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lf", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.offer.instructions())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let offered = tokio::select! {
            offered = self.offer.list() => offered.map_err(error)?,
            () = context.ct.cancelled() => return Err(cancelled()),
        };
        let tools = offered.tools.into_iter().filter_map(definition).collect();
        let mut result = ListToolsResult::with_all_items(tools);
        if !offered.meta.is_empty() {
            result.meta = Some(MetaObject(offered.meta));
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let told = context.meta.get_progress_token().map(|token| (token, context.peer.clone()));
        let output = tokio::select! {
            output = self.run(request, told) => output.map_err(error)?,
            // nobody reads this: the call is dropped, and that cancels it
            () = context.ct.cancelled() => return Err(cancelled()),
        };
        Ok(result(output).into())
    }
}

fn definition(tool: Value) -> Option<Tool> {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    match serde_json::from_value(tool) {
        Ok(tool) => Some(tool),
        Err(error) => {
            tracing::warn!(tool = name, %error, "a tool cannot be offered over MCP and is left out");
            None
        }
    }
}

fn result(output: ToolOutput) -> CallToolResult {
    let content: Vec<_> = output.content.iter().map(block).collect();
    let mut result = match output.is_error {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    };
    result.structured_content = output.structured;
    result
}

/// A block that this revision of the library does not know comes as the text of its JSON: better than nothing.
fn block(content: &ToolContent) -> rmcp::model::ContentBlock {
    let value = content.to_json();
    let text = || rmcp::model::ContentBlock::text(value.to_string());
    serde_json::from_value(value.clone()).unwrap_or_else(|_| text())
}

fn error(refused: Refused) -> ErrorData {
    let message = refused.to_string();
    match refused {
        Refused::UnknownTool(name) => ErrorData::invalid_params(message, Some(json!({"tool": name}))),
        Refused::Upstream { code, .. } => {
            let code = i32::try_from(code).map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
            ErrorData::new(code, message, None)
        }
        Refused::Unavailable(_) => ErrorData::internal_error(message, None),
    }
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}
