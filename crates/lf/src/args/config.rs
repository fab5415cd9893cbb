//! Arguments of `lf config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Init;

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// The configuration as it is understood, variables filled in, secrets masked
    Show {
        #[arg(long)]
        json: bool,
    },
    /// Everything that is wrong with the file; starts nothing
    Validate {
        #[arg(long)]
        json: bool,
    },
    /// What becomes of a model's calls of a tool, step by step: access, filter, rules, labels, approval
    Why(Why),
    /// What an edit changes: which model gains or loses which tools, at how many prompt tokens, which may destroy
    Plan(Plan),
    /// The JSON Schema of llamafarm.yaml, for editors
    Schema,
    /// Write a first llamafarm.yaml (the same as `lf init`)
    Init(Init),
    /// Let commands of projects run that were written through the API, and variables go where projects ask, after showing
    /// them
    Approve {
        /// Only of this project
        #[arg(value_name = "NS/PROJECT")]
        project: Option<String>,
        /// Show them only
        #[arg(long)]
        dry_run: bool,
    },
    /// Which generation of the configuration a running daemon answers with, since when, and what is wrong with an edit
    /// that it refused. Exits 1 when there is one
    Status {
        /// The daemon (also LF_SERVER; default: http://127.0.0.1:14345)
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    pub model: String,
    /// As the model is shown it (`server__tool`), or `server/tool`
    pub tool: String,
    /// The arguments of a call, as a JSON object; without them conditions are told and not decided
    #[arg(long, value_name = "JSON")]
    pub args: Option<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// The file as it is to be (default: the file of the project)
    pub file: Option<PathBuf>,
    /// The file that it is compared with (default: the file of the project, or what git has of it when no other file is named)
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    #[arg(long)]
    pub json: bool,
}
