//! `provider: replay`: a cassette in the place of a model, and of the tools that it had. No network, no process.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_stream::stream;
use lf_core::tool::{Attendant, BoxFuture, Catalogue, Tool};
use lf_core::turn::cassette::{AskEnd, Cassette, CassetteError, RecordedCall};
use lf_core::{DeltaStream, ModelError, ModelProvider, ModelRequest};
use lf_core::{ToolError, ToolOutput, ToolRef, ToolSource};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::OnceCell;

/// Bytes of a cassette that are read, and written: more is no turn that somebody wants to look at.
pub const CASSETTE_LIMIT: u64 = 64 * 1024 * 1024;

/// Why a file is no cassette that can be played.
#[derive(Debug, Clone, Error)]
pub enum ReadError {
    #[error("cannot read {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("cannot play {}: {source}", path.display())]
    Cassette { path: PathBuf, source: CassetteError },
}

/// Reads a cassette. A file that is being written is read as far as it goes.
///
/// # Errors
/// [`ReadError`] also for a file of more than 64 MiB.
pub async fn read(path: &Path) -> Result<Cassette, ReadError> {
    let path = path.to_owned();
    let asked = path.clone();
    let read = tokio::task::spawn_blocking(move || read_now(&path)).await;
    read.unwrap_or_else(|error| Err(ReadError::File { path: asked, reason: error.to_string() }))
}

fn read_now(path: &Path) -> Result<Cassette, ReadError> {
    let unreadable = |error: io::Error| ReadError::File { path: path.to_owned(), reason: error.to_string() };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // a pipe may never end, and a directory opens like a file
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is no file")));
    }
    let mut bytes = Vec::new();
    file.take(CASSETTE_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > CASSETTE_LIMIT {
        return Err(unreadable(io::Error::other(format!("it has more than {CASSETTE_LIMIT} bytes"))));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable(io::Error::other("it is no text")))?;
    Cassette::parse(&text).map_err(|source| ReadError::Cassette { path: path.to_owned(), source })
}

/// A cassette that is read when it is needed first.
struct Tape {
    path: PathBuf,
    /// As the file calls it.
    name: String,
    cassette: OnceCell<Arc<Cassette>>,
}

impl Tape {
    fn new(path: PathBuf, name: String) -> Self {
        Self { path, name, cassette: OnceCell::new() }
    }

    /// Clients are told of the cassette as the file calls it: where it is concerns nobody else.
    async fn cassette(&self) -> Result<&Arc<Cassette>, ModelError> {
        let read = self.cassette.get_or_try_init(|| async { read(&self.path).await.map(Arc::new) }).await;
        read.map_err(|error| {
            tracing::warn!(%error, "a cassette cannot be played");
            let url = format!("the cassette `{}`", self.name);
            match error {
                ReadError::File { reason, .. } => ModelError::Unreachable { url, reason },
                ReadError::Cassette { source, .. } => {
                    ModelError::Garbled { url, expected: "cassette".into(), found: source.to_string() }
                }
            }
        })
    }
}

/// Answers each ask of one turn with what was recorded of the ask at the same place.
pub(crate) struct Replay {
    tape: Arc<Tape>,
    asked: AtomicUsize,
}

impl Replay {
    pub(crate) fn new(path: PathBuf, name: &str) -> Self {
        Self { tape: Arc::new(Tape::new(path, name.to_owned())), asked: AtomicUsize::new(0) }
    }
}

impl ModelProvider for Replay {
    fn stream(&self, request: &ModelRequest) -> DeltaStream {
        let position = self.asked.fetch_add(1, Ordering::Relaxed);
        let (tape, request) = (self.tape.clone(), request.clone());
        Box::pin(stream! {
            let cassette = match tape.cassette().await {
                Ok(cassette) => cassette.clone(),
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let name = &tape.name;
            match cassette.ask(position, &request) {
                Ok(ask) => {
                    for delta in &ask.answer {
                        yield Ok(delta.clone());
                    }
                    match &ask.end {
                        AskEnd::Whole => {}
                        AskEnd::Failed(error) => yield Err(error.clone()),
                        AskEnd::Cut => {
                            let what = format!("the cassette `{name}` ends in the middle of this answer");
                            yield Err(ModelError::Unsupported(what));
                        }
                    }
                }
                Err(what) => yield Err(ModelError::Unsupported(format!("the cassette `{name}` does not fit: {what}"))),
            }
        })
    }
}

/// The tools of a recorded turn. A call is answered with what was recorded for the same call, in the order of the
/// recording; nothing is run.
pub struct RecordedTools {
    tape: Arc<Tape>,
    /// Calls of the recording that were made again.
    used: Mutex<Vec<usize>>,
}

impl RecordedTools {
    /// The tools of the cassette in this file, which is read when they are listed or called first; `name` is what its model is
    /// called.
    pub fn new(path: PathBuf, name: &str) -> Self {
        Self { tape: Arc::new(Tape::new(path, name.to_owned())), used: Mutex::default() }
    }

    /// The tools of a cassette that was read already.
    pub fn of(cassette: Arc<Cassette>) -> Self {
        let name = cassette.setup.model.clone();
        let tape = Tape { path: PathBuf::new(), name, cassette: OnceCell::new_with(Some(cassette)) };
        Self { tape: Arc::new(tape), used: Mutex::default() }
    }

    fn find<'c>(
        &self,
        calls: &'c [RecordedCall],
        tool: &ToolRef,
        arguments: &Map<String, Value>,
    ) -> Option<&'c RecordedCall> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let same = || {
            let same = |call: &RecordedCall| call.tool == *tool && call.arguments == *arguments;
            calls.iter().enumerate().filter(move |(_, call)| same(call))
        };
        let unused = same().find(|(at, _)| !used.contains(at));
        // one that is made more often than it was recorded has the last result again
        let (at, call) = unused.or_else(|| same().next_back())?;
        used.push(at);
        Some(call)
    }
}

impl ToolSource for RecordedTools {
    fn list<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, Catalogue> {
        Box::pin(async move {
            // what is wrong with the cassette is told when it is asked
            let Ok(cassette) = self.tape.cassette().await else { return Catalogue::default() };
            let tools = cassette.tools().cloned().map(Tool::as_recorded);
            Catalogue { tools: tools.collect(), ..Catalogue::default() }
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        arguments: &'a Map<String, Value>,
        _: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let down = |reason: String| ToolError::Down { server: tool.server.to_string(), reason };
            let cassette = self.tape.cassette().await.map_err(|error| down(error.to_string()))?;
            match self.find(&cassette.calls, tool, arguments) {
                Some(call) => call.outcome.clone(),
                None => Err(down(format!("the cassette `{}` has no such call", self.tape.name))),
            }
        })
    }
}

#[cfg(test)]
mod tests;
