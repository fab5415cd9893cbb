//! What can be typed.

mod config;
mod keys;
mod mcp;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lf_core::Secret;
use lf_core::audit::{Chain, Event};

pub(crate) use config::{Config, Plan, Why};
pub(crate) use keys::{Keys, NewKey};
pub(crate) use mcp::{At, Login, Logout, Mcp, Probe, ProbeAccess, RemoteTransport};

/// Puts tools into the hands of language models: connects MCP servers, runs the whole tool loop, and serves it.
#[derive(Debug, Parser)]
#[command(name = "lf", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Where to look for llamafarm.yaml, upward to the repository root (default: the working directory)
    #[arg(long, global = true, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The project file itself (also LF_CONFIG)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What is logged to stderr: error, warn, info, debug, trace, or a filter such as `lf_mcp=debug` (also LF_LOG)
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Where sessions, stored projects and credentials live (also LF_DATA_DIR; default: ~/.llamafarm)
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Run tools only where llamafarm.lock is there and the MCP servers are as in it: for CI (also LF_LOCKED=1)
    #[arg(long, global = true)]
    pub locked: bool,
    /// What a daemon is asked with, from LF_API_KEY: on the command line everybody could read it.
    #[arg(skip)]
    pub api_key: Option<Secret>,
}

impl Cli {
    /// Parses the command line and fills in the environment; a variable that is set to nothing counts as not set.
    pub(crate) fn read() -> Self {
        let mut cli = Self::parse();
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let common = &mut cli.common;
        common.config = common.config.take().or_else(|| variable("LF_CONFIG").map(PathBuf::from));
        common.data_dir = common.data_dir.take().or_else(|| variable("LF_DATA_DIR").map(PathBuf::from));
        common.locked |= text("LF_LOCKED").is_some_and(|locked| locked == "1" || locked == "true");
        common.log = common.log.take().or_else(|| text("LF_LOG"));
        common.api_key = text("LF_API_KEY").map(Secret::from);
        if let Command::Serve(serve) = &mut cli.command {
            serve.storage = serve.storage.take().or_else(|| text("LF_STORAGE"));
        }
        if let Command::Chat(chat) = &mut cli.command {
            chat.server = chat.server.take().or_else(|| text("LF_SERVER"));
        }
        if let Command::Approvals(approvals) = &mut cli.command {
            approvals.server = approvals.server.take().or_else(|| text("LF_SERVER"));
        }
        if let Command::Serve(serve) = &mut cli.command {
            serve.record = serve.record.take().or_else(|| variable("LF_RECORD").map(PathBuf::from));
        }
        if let Command::Mcp(Mcp::List { at, .. } | Mcp::Health { at, .. } | Mcp::Restart { at, .. }) =
            &mut cli.command
        {
            at.server = at.server.take().or_else(|| text("LF_SERVER"));
        }
        if let Command::Config(Config::Status { server, .. }) = &mut cli.command {
            *server = server.take().or_else(|| text("LF_SERVER"));
        }
        if let Command::Conversations(conversations) = &mut cli.command {
            let at = &mut conversations.at;
            at.server = at.server.take().or_else(|| text("LF_SERVER"));
        }
        cli
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask a model, with its tools (without a message: interactive)
    Chat(Chat),
    /// Serve the project to any client: OpenAI SDKs at /v1
    Serve(Serve),
    /// Show a recorded turn again, without network, or put its request to another model
    Replay(Replay),
    /// Write a first llamafarm.yaml
    Init(Init),
    /// Show, check and begin configurations
    #[command(subcommand)]
    Config(Config),
    /// The projects in the data directory
    #[command(subcommand)]
    Projects(Projects),
    /// The conversations that a running daemon keeps
    Conversations(Conversations),
    /// The models of the project
    #[command(subcommand)]
    Models(Models),
    /// The MCP servers of the project
    #[command(subcommand)]
    Mcp(Mcp),
    /// API keys of the daemon: who may use it, and for what
    #[command(subcommand)]
    Keys(Keys),
    /// Calls in a running daemon that wait for a person: list them, approve or deny
    Approvals(Approvals),
    /// What was run, refused, decided and changed on this machine
    #[command(subcommand)]
    Audit(Audit),
    /// Serve a directory's files read-only, as an MCP server on stdin and stdout
    Files(Files),
    /// Write completions for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Show the last records
    Show {
        /// Only those of one kind: call, denied, approval, configuration, authentication or lost
        #[arg(long, value_name = "KIND", value_parser = event)]
        event: Option<Event>,
        /// Only those of this tool, as its server names it
        #[arg(long)]
        tool: Option<String>,
        /// How many at most, the latest
        #[arg(long, default_value_t = 50, value_name = "NUMBER")]
        last: usize,
        /// The lines as they are kept
        #[arg(long)]
        json: bool,
    },
    /// See whether the record is whole: exit 1 where a line was changed, left out or put in
    Verify {
        /// A number and hash that an earlier `verify` has shown: whether the record still holds that line
        #[arg(long, value_name = "NUMBER:HASH", value_parser = known)]
        known: Option<Chain>,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

fn event(name: &str) -> Result<Event, String> {
    let known = || Event::ALL.map(Event::name).join(", ");
    Event::ALL
        .into_iter()
        .find(|event| event.name() == name)
        .ok_or_else(|| format!("the kinds are: {}", known()))
}

fn known(text: &str) -> Result<Chain, String> {
    let wrong = || "a line's number, `:` and its hash of 64 hexadecimal digits".to_owned();
    let (number, hash) = text.split_once(':').ok_or_else(wrong)?;
    let number = number.parse().map_err(|_| wrong())?;
    let right = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    right.then(|| Chain { number, hash: hash.to_ascii_lowercase() }).ok_or_else(wrong)
}

#[derive(Debug, Args)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
    /// The daemon (also LF_SERVER; default: http://127.0.0.1:14345)
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// What waits (default)
    List,
    /// Let a call run
    Approve {
        id: String,
        /// And every later call of this tool in its conversation
        #[arg(long)]
        always: bool,
    },
    /// Do not let it run
    Deny {
        id: String,
        /// Told to the model
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// The message, after `namespace/project` when another project than this directory's is meant; `-` reads stdin
    #[arg(value_name = "[NS/PROJECT] MESSAGE", num_args = 0..=2)]
    pub words: Vec<String>,
    /// A model of the project (default: its default model)
    #[arg(long, short)]
    pub model: Option<String>,
    /// Read the message from a file (`-`: stdin)
    #[arg(long, short = 'f', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// One JSON document instead of text
    #[arg(long, conflicts_with = "events")]
    pub json: bool,
    /// Every event of the turn as a line of JSON
    #[arg(long)]
    pub events: bool,
    /// A value for `{{NAME}}` in prompts; may be repeated
    #[arg(long = "var", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// Ask a running daemon instead of running the engine in this process (also LF_SERVER)
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Go on with a conversation that a daemon keeps; `new` begins one. `lf conversations list` tells their ids
    #[arg(long, value_name = "ID", conflicts_with = "variables")]
    pub conversation: Option<String>,
    /// Go on with the conversation that was last used
    #[arg(long = "continue", conflicts_with_all = ["conversation", "variables"])]
    pub continues: bool,
    /// Write the turn to this new file, for `lf replay` and `provider: replay`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["conversation", "continues"])]
    pub record: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// What `lf chat --record` or `lf serve --record` wrote
    pub file: PathBuf,
    /// Put the recorded request to this model of the project, tell the first difference, and exit 1 if there is one
    #[arg(long, short)]
    pub model: Option<String>,
    /// Run the tools of the project's servers, instead of answering with the recorded results
    #[arg(long, requires = "model")]
    pub run_tools: bool,
    /// One JSON document instead of text
    #[arg(long, conflicts_with = "events")]
    pub json: bool,
    /// Every event of the turn as a line of JSON
    #[arg(long)]
    pub events: bool,
    /// Write the turn to this new file again
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Conversations {
    #[command(subcommand)]
    pub command: ConversationCommand,
    #[command(flatten)]
    pub at: At,
    /// One JSON document instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConversationCommand {
    /// Those of the project, the last used first
    List {
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// What was said in one
    Show { id: String },
    /// Those in which all these words were said, or that are called so
    Search {
        #[arg(required = true)]
        words: Vec<String>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Give one another title
    Rename { id: String, title: String },
    /// Forget one, with everything that was said in it
    #[command(visible_alias = "rm")]
    Delete { id: String },
    /// Everything of one as JSON: itself, its messages, its tools
    Export { id: String },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The address to listen on; a name other than localhost is also accepted as Host
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// The port; 0 takes a free one
    #[arg(long, short, default_value_t = 14345)]
    pub port: u16,
    /// How long running answers may go on after the first signal, such as 30s
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub grace: Duration,
    /// Let web pages of this origin, such as `https://app.example`, use the daemon; may be repeated
    #[arg(long = "cors-origin", value_name = "ORIGIN", value_parser = lf_server::cors_origin)]
    pub cors_origins: Vec<String>,
    /// Where conversations are kept: `sqlite`, or a Postgres database that several daemons share, such as
    /// `postgres://user@host:5432/database`. Comes before `storage` in the file (also LF_STORAGE, which hides a password
    /// from those who list processes)
    #[arg(long, value_name = "WHERE")]
    pub storage: Option<String>,
    /// Write every turn to a file of its own in this directory, named after it (also LF_RECORD)
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The directory (default: the working directory)
    pub path: Option<PathBuf>,
    #[arg(long, default_value = "default")]
    pub namespace: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Projects {
    /// Every project, or those of a namespace
    List {
        #[arg(long)]
        namespace: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Make a project: the one that `lf init` writes
    Create {
        #[arg(value_name = "NS/PROJECT")]
        project: String,
    },
    /// Its configuration, secrets masked
    Show {
        #[arg(value_name = "NS/PROJECT")]
        project: String,
        #[arg(long)]
        json: bool,
    },
    /// Move a project to the trash of the data directory
    Delete {
        #[arg(value_name = "NS/PROJECT")]
        project: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    List {
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Files {
    /// The directory; nothing outside it can be read
    pub directory: PathBuf,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: f64 =
        digits.parse().map_err(|_| format!("`{text}` is not a duration such as 30s, 5m or 500ms"))?;
    let seconds = match &text[digits.len()..] {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        unit => return Err(format!("`{unit}` is not a unit of time: ms, s, m or h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
