//! The stdio transport: one JSON message per line, over the pipes of a child.
//!
//! The client library's own drops a line that is too long and lets its call run into the timeout; this one answers
//! the call. It also counts what is not a message and gives up on a server that sends nothing else.

mod line;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;

use crate::failure::{Cause, Failure};
use crate::tap::Signals;
use line::{Line, LineReader};

/// One message, in bytes.
pub(crate) const MAX_LINE: usize = 4 * 1024 * 1024;
/// For the child to take one message off its stdin.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines in a row that are no messages before the server counts as broken.
const MAX_GARBAGE: usize = 100;
/// Bytes shown of such a line.
const SHOWN_GARBAGE: usize = 1_000;
/// The code of an answer that was made up here for a line that was too long.
pub(crate) const OVERSIZED: ErrorCode = ErrorCode(-32_099);

pub(crate) struct StdioTransport<R, W> {
    lines: LineReader<BufReader<R>>,
    writer: Arc<Mutex<Option<W>>>,
    garbage: usize,
    signals: Arc<Signals>,
}

impl<R: AsyncRead + Unpin, W> StdioTransport<R, W> {
    pub(crate) fn new(reader: R, writer: W, signals: Arc<Signals>) -> Self {
        Self {
            lines: LineReader::new(BufReader::new(reader), MAX_LINE),
            writer: Arc::new(Mutex::new(Some(writer))),
            garbage: 0,
            signals,
        }
    }

    /// Whether the server may go on after another line that is no message.
    fn tolerates_garbage(&mut self, line: &[u8]) -> bool {
        self.garbage += 1;
        let shown = line.get(..SHOWN_GARBAGE).unwrap_or(line);
        self.signals.record.garbage(&self.signals.secrets.message(&String::from_utf8_lossy(shown)));
        if self.garbage == 1 {
            tracing::debug!("a line on stdout is not a JSON-RPC message");
        }
        if self.garbage < MAX_GARBAGE {
            return true;
        }
        let failure = Failure::hinted(
            format!("sent {MAX_GARBAGE} lines in a row on stdout that are not JSON-RPC messages"),
            "check that `command` and `args` start an MCP server over stdio; it must log to stderr",
        );
        self.signals.note(&failure.of(Cause::ProtocolError));
        false
    }
}

impl<R, W> Transport<RoleClient> for StdioTransport<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (writer, signals) = (self.writer.clone(), self.signals.clone());
        async move {
            let mut bytes = serde_json::to_vec(&item)?;
            bytes.push(b'\n');
            let mut writer = writer.lock().await;
            let Some(pipe) = writer.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            let written = tokio::time::timeout(WRITE_TIMEOUT, async {
                pipe.write_all(&bytes).await?;
                pipe.flush().await
            });
            let result = written.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = &result {
                // Half a line may have been written: nothing can follow it.
                writer.take();
                if error.kind() == io::ErrorKind::TimedOut {
                    signals.note(&unread());
                }
                signals.stuck.cancel();
            }
            result
        }
    }

    /// Cancel-safe: what was read of a line stays in the reader.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            match self.lines.next().await {
                Ok(Line::Whole(bytes)) if bytes.trim_ascii().is_empty() => {}
                Ok(Line::Whole(bytes)) => {
                    if let Ok(message) = serde_json::from_slice(&bytes) {
                        self.garbage = 0;
                        return Some(message);
                    }
                    if !self.tolerates_garbage(&bytes) {
                        return None;
                    }
                }
                Ok(Line::TooLong { id }) => {
                    tracing::warn!(limit = MAX_LINE, "a message is longer than the limit and was skipped");
                    if let Some(id) = id {
                        let error = ErrorData::new(OVERSIZED, "the message is too long", None);
                        return Some(JsonRpcMessage::Error(JsonRpcError::new(Some(id), error)));
                    }
                }
                Ok(Line::End) => return None,
                Err(error) => {
                    self.signals.note(&Failure::new(format!("its stdout could not be read: {error}")));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.lock().await.take();
        Ok(())
    }
}

fn unread() -> Failure {
    Failure::hinted(
        format!("did not take a message off its stdin within {WRITE_TIMEOUT:?}"),
        "it does not read while it works, or hangs; another is started for the next use",
    )
    .of(Cause::Unresponsive)
}

#[cfg(test)]
mod tests;
