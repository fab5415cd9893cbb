//! What a scripted MCP server is told.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The behaviour of one server, as JSON: the first argument after the transport, or a file as `@FILE`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    pub tools: Vec<ScriptedTool>,
    /// Further tools, named `tool_000`, `tool_001`, …
    pub count: usize,
    /// A line for each thing that happens: `start PID`, `initialize`, `list`, `call NAME ARGUMENTS`, `done NAME`,
    /// `cancelled NAME`, `eof`, `sigterm`, `grandchild PID`; of a modern server also `discover`, `listen` and
    /// `header NAME …` for one that is wrong.
    pub log: Option<PathBuf>,
    /// Ends each line of the log with ` @MICROSECONDS` since 1970, and has the arguments of a call also at its end.
    pub timed: bool,
    /// Never answers anything.
    pub silent: bool,
    /// Exits with this status at once.
    pub exit: Option<i32>,
    /// Exits on a method it does not know, as some servers do when they are probed.
    pub exit_on_unknown: bool,
    /// Does not answer a method it does not know.
    pub mute_on_unknown: bool,
    pub generation: Generation,
    /// Milliseconds that it sleeps before it reads anything, as a program that is slow to load.
    pub slow: u64,
    /// What a modern server says of how long its lists may be kept, in milliseconds.
    pub ttl: u64,
    /// Lines of nonsense on stdout before anything else.
    pub garbage: usize,
    /// Bytes on stderr, without a newline, before anything else.
    pub stderr_flood: usize,
    /// A line on stderr.
    pub stderr: Option<String>,
    /// Stays when stdin ends.
    pub ignore_eof: bool,
    pub ignore_sigterm: bool,
    /// Processes it starts and leaves behind.
    pub grandchildren: usize,
    /// Puts them into a session, and so a process group, of their own.
    pub grandchild_setsid: bool,
    /// Tools per page; 0: one page.
    pub page_size: usize,
    /// Every page names a next one.
    pub endless_pages: bool,
    /// The same cursor each time.
    pub same_cursor: bool,
    /// Lists only when this file exists.
    pub list_gate: Option<PathBuf>,
    /// 401 for requests without this header.
    pub require_header: Option<(String, String)>,
    /// A file with what it says of itself and its tools, looked into each time: `serverInfo`, `instructions` and `tools`,
    /// each in the place of what it would say otherwise. Tools that are only there echo.
    pub says: Option<PathBuf>,
    pub session: Session,
    /// Of `http`: that many calls are answered with 503, each a line `unavailable` in the log.
    pub unavailable: usize,
    /// Of `http` and `sse`; otherwise any that is free.
    pub port: Option<u16>,
}

/// Which revisions of the protocol a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// Up to 2025-11-25.
    #[default]
    Legacy,
    /// 2026-07-28 alone.
    Modern,
    /// Both; over `stdio` the first message decides for good.
    Dual,
}

/// How an `http` server treats sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// The session is forgotten after that many calls, once.
    pub expires_after: Option<usize>,
    /// Answers an unknown session with 400 and an error without an id, instead of 404.
    pub expired_is_400: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedTool {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub schema: Option<Value>,
    /// Its hints, such as `readOnlyHint`.
    #[serde(default)]
    pub annotations: Option<Value>,
    /// The `_meta` that it is listed with.
    #[serde(default)]
    pub meta: Option<Value>,
    #[serde(default)]
    pub act: Act,
}

/// What a call does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Its arguments as text.
    #[default]
    Echo,
    Text(String),
    /// A result that is an error.
    Fail(String),
    /// A result that is an error, so many times; then its arguments as text. All calls of the server count.
    FailFirst(usize),
    /// An error of the protocol.
    Refuse(i64, String),
    /// Never ends.
    Hang,
    /// Waits until this file exists.
    Gate(PathBuf),
    /// Waits until this directory has a file of the name that is the argument `n`.
    GateOf(PathBuf),
    /// Waits until that many such calls are running at the same time.
    Together(usize),
    /// Reports its arguments as progress, waits until that many such calls are running at the same time (once), and
    /// answers with its arguments.
    EchoTogether(usize),
    /// Reports progress this many times, then answers.
    Progress(usize),
    /// Exits in the middle of the call.
    Exit(i32),
    /// Exits in the middle of the call unless this file exists, and makes it.
    ExitOnce(PathBuf),
    /// A text of that many bytes.
    Big(usize),
    /// That many lines, `line 0`, `line 1`, …
    Lines(usize),
    /// One line of that many bytes that is no message, then the answer.
    HugeLine(usize),
    /// That many lines of nonsense on stdout, then the answer.
    Garbage(usize),
    /// Its environment, as a JSON object.
    Environment,
    /// Says that the list of tools has changed; it then has one more, `late`.
    Change,
    /// That many times in a row.
    ChangeOften(usize),
    /// Puts this into the file of `says`, and tells that the list of tools has changed.
    Say(Value),
    /// These content items.
    Content(Vec<Value>),
    /// Asks a person to fill in a form of this schema, and answers with what came back.
    Ask(Value),
    /// The `_meta` of the request, as JSON.
    Meta,
}

impl ScriptedTool {
    pub fn new(name: &str, act: Act) -> Self {
        Self { name: name.to_owned(), description: None, schema: None, annotations: None, meta: None, act }
    }

    /// With this JSON Schema of its arguments.
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// With these hints of what a call of it does.
    pub fn annotated(mut self, annotations: Value) -> Self {
        self.annotations = Some(annotations);
        self
    }

    pub(super) fn declaration(&self) -> Value {
        let description = self.description.clone().unwrap_or_else(|| format!("Scripted tool {}", self.name));
        let schema = self.schema.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        let mut declaration = json!({"name": self.name, "description": description, "inputSchema": schema});
        if let Some(annotations) = &self.annotations {
            declaration["annotations"] = annotations.clone();
        }
        if let Some(meta) = &self.meta {
            declaration["_meta"] = meta.clone();
        }
        declaration
    }
}

impl Script {
    /// Tools that echo.
    pub fn echoing(names: &[&str]) -> Self {
        Self::with(names.iter().map(|name| ScriptedTool::new(name, Act::Echo)))
    }

    /// A tool for each thing that an answer can be: `echo`, `fail`, `refuse`, `image`, `count`, and `hang`, which gives
    /// none.
    pub fn of_every_kind() -> Self {
        let image = json!({"type": "image", "data": "aGF5", "mimeType": "image/png"});
        Self::with([
            ScriptedTool::new("echo", Act::Echo),
            ScriptedTool::new("fail", Act::Fail("no hay".to_owned())),
            ScriptedTool::new("refuse", Act::Refuse(-32_050, "not today".to_owned())),
            ScriptedTool::new("image", Act::Content(vec![image])),
            ScriptedTool::new("count", Act::Progress(3)),
            ScriptedTool::new("hang", Act::Hang),
        ])
    }

    pub fn with(tools: impl IntoIterator<Item = ScriptedTool>) -> Self {
        Self { tools: tools.into_iter().collect(), ..Self::default() }
    }

    /// As the program reads it.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("a script is JSON")
    }
}
