//! `lf config`.

use clap::Subcommand;

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
    /// The JSON Schema of llamafarm.yaml, for editors
    Schema,
    /// Write a first llamafarm.yaml (the same as `lf init`)
    Init(Init),
    /// Let commands run that were written through the API, after showing them
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
