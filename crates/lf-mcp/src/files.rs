//! The built-in MCP server behind `lf files DIR`: reads a directory, and nothing but that directory.
//!
//! Every path is resolved below an open directory handle, so that neither `..` nor a symbolic link leads out of it.

mod shelf;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{QuitReason, RequestContext, ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::stdio::MAX_LINE;
use shelf::Shelf;

/// Why the file server did not run to its end.
#[derive(Debug, Error)]
pub enum FilesError {
    #[error("`{}` cannot be opened as a directory", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the client did not start an MCP session: {reason}")]
    Handshake { reason: String },
    #[error("the session broke off: {reason}")]
    Session { reason: String },
}

/// Serves `root` read-only over stdin and stdout until stdin ends. Fails before serving if `root` is no directory.
pub async fn serve_files(root: &Path) -> Result<(), FilesError> {
    serve_files_on(root, tokio::io::stdin(), tokio::io::stdout()).await
}

pub(crate) async fn serve_files_on(
    root: &Path,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), FilesError> {
    let shelf =
        Shelf::open(root).map_err(|source| FilesError::Directory { path: root.to_owned(), source })?;
    let transport = AsyncRwTransport::new_server(reader, writer).with_max_line_length(MAX_LINE);
    let running = match serve_server(Files { shelf: Arc::new(shelf) }, transport).await {
        Ok(running) => running,
        // A client that looks and leaves is no failure.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(FilesError::Handshake { reason: error.to_string() }),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => {
            Err(FilesError::Session { reason: error.to_string() })
        }
        Ok(_) => Ok(()),
    }
}

struct Files {
    shelf: Arc<Shelf>,
}

#[derive(Deserialize)]
struct ListArguments {
    #[serde(default)]
    path: Option<String>,
}

#[derive(Deserialize)]
struct ReadArguments {
    path: String,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    lines: Option<usize>,
}

#[derive(Deserialize)]
struct SearchArguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

impl ServerHandler for Files {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lf-files", env!("CARGO_PKG_VERSION")))
            .with_instructions("Reads the files of one directory. Paths are relative to that directory.")
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let shelf = self.shelf.clone();
        let name = request.name.into_owned();
        let Some(work) = work(&name, arguments) else {
            return Err(ErrorData::invalid_params(format!("unknown tool `{name}`"), None));
        };
        let done = tokio::task::spawn_blocking(move || work(&shelf)).await;
        let result = match done.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
        };
        Ok(result.into())
    }
}

type Work = Box<dyn FnOnce(&Shelf) -> Result<String, String> + Send>;

/// What a call will do, once its arguments are read; `None` for a tool that does not exist.
fn work(name: &str, arguments: Value) -> Option<Work> {
    match name {
        "list" => Some(parsed(arguments, |shelf, ListArguments { path }| {
            shelf.list(path.as_deref().unwrap_or("."))
        })),
        "read" => Some(parsed(arguments, |shelf, arguments: ReadArguments| {
            shelf.read(
                &arguments.path,
                arguments.offset.unwrap_or(1),
                arguments.lines.map(|lines| lines.max(1)),
            )
        })),
        "search" => Some(parsed(arguments, |shelf, SearchArguments { pattern, path }| {
            shelf.search(&pattern, path.as_deref().unwrap_or("."))
        })),
        _ => None,
    }
}

fn parsed<T: for<'de> Deserialize<'de> + Send + 'static>(
    arguments: Value,
    run: fn(&Shelf, T) -> Result<String, String>,
) -> Work {
    let arguments = serde_json::from_value(arguments);
    Box::new(move |shelf| run(shelf, arguments.map_err(|error| format!("wrong arguments: {error}"))?))
}

fn tools() -> Vec<Tool> {
    let path = json!({
        "type": "string",
        "description": "A directory, relative to the shared directory; the shared directory itself by default.",
    });
    vec![
        tool(
            "list",
            "Lists what a directory contains: subdirectories with a trailing slash, files with their size in bytes.",
            &json!({"type": "object", "properties": {"path": path}, "additionalProperties": false}),
        ),
        tool(
            "read",
            "Reads a text file. Large files come in parts: `offset` is the first line wanted, counted from 1, and \
             `lines` how many.",
            &json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "A file, relative to the shared directory."},
                    "offset": {"type": "integer", "minimum": 1, "description": "First line; 1 by default."},
                    "lines": {"type": "integer", "minimum": 1, "description": "At most this many lines."},
                },
                "required": ["path"],
                "additionalProperties": false,
            }),
        ),
        tool(
            "search",
            "Finds a text in all text files below a directory, whatever its case, and gives the matching lines as \
             `path:line: text`. The text is taken literally. `.git` and `node_modules` are left out.",
            &json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "minLength": 1, "description": "The text to find."},
                    "path": path,
                },
                "required": ["pattern"],
                "additionalProperties": false,
            }),
        ),
    ]
}

fn tool(name: &'static str, description: &'static str, schema: &Value) -> Tool {
    let schema = schema.as_object().cloned().unwrap_or_default();
    let annotations =
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    Tool::new(name, description, Arc::new(schema)).with_annotations(annotations)
}

#[cfg(test)]
mod tests;
