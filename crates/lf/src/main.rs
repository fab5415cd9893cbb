//! The program: arguments, terminal, signals, exit status. Everything else is in the crates below.

mod approvals;
mod args;

mod asking;
mod audit;

mod chat;

mod config;

mod conversations;

mod daemon;

mod exit;

mod explain;
mod keys;

mod log;

mod mcp;

mod project;

mod projects;

mod prompt;

mod remote;

mod replay;

mod roots;

mod serve;

mod signals;

mod transcript;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory as _;
use lf_config::Loaded;
use lf_core::Principal;
use lf_mcp::{Consent, PoolOptions, SessionPool};
use lf_server::{App, Parts};
use lf_store::Store;

use crate::args::{Cli, Command, Common, Config, Init, Mcp, Models};
use crate::chat::{Engine, Person};
use crate::exit::{Exit, Trouble, print, print_line};
use crate::prompt::Prompt;
use crate::signals::Signals;

fn main() -> ExitCode {
    // before anything else: one stands beside each MCP server, and is to stay small
    if let Some(status) = lf_keeper::run() {
        return status;
    }
    let cli = Cli::read();
    // the one TLS provider of the process; a second installation cannot happen here
    let _ = rustls::crypto::ring::default_provider().install_default();
    let default_level = if matches!(cli.command, Command::Serve(_)) { "info" } else { "error" };
    let outcome = log::start(cli.common.log.as_deref().unwrap_or(default_level))
        .map_err(Trouble::usage)
        .and_then(|log| {
            let outcome = run(&cli);
            log.end();
            outcome
        });
    let exit = outcome.unwrap_or_else(|trouble| {
        trouble.print();
        trouble.exit()
    });
    // whatever the sessions could not take down themselves
    lf_mcp::kill_all();
    audit::close();
    exit.into()
}

fn run(cli: &Cli) -> Result<Exit, Trouble> {
    match &cli.command {
        Command::Init(init) | Command::Config(Config::Init(init)) => begin(&cli.common, init),
        Command::Config(command) if !needs_engine(command) => configuration(&cli.common, command),
        Command::Models(Models::List { json }) => models(&cli.common, *json),
        Command::Keys(command) => keys::run(&cli.common, command),
        Command::Audit(command) => audit::run(&project::data_dir(&cli.common), command),
        Command::Completions { shell } => {
            // it would panic where nobody reads on
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "lf", &mut script);
            print(String::from_utf8_lossy(&script))?;
            Ok(Exit::Success)
        }
        Command::Files(_)
        | Command::Chat(_)
        | Command::Replay(_)
        | Command::Serve(_)
        | Command::Mcp(_)
        | Command::Approvals(_)
        | Command::Projects(_)
        | Command::Conversations(_)
        | Command::Config(_) => {
            if !matches!(cli.command, Command::Files(_)) && !opens_browser(&cli.command) {
                lf_mcp::adopt_orphans();
            }
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8)))
                .enable_all()
                .build()
                .map_err(|error| Trouble::failure(format!("the runtime cannot start: {error}")))?;
            let exit = runtime.block_on(run_async(cli));
            // a thread may still wait for the terminal
            runtime.shutdown_background();
            exit
        }
    }
}

/// Whether servers may have to be asked, or files of stored projects, or a daemon.
fn needs_engine(command: &Config) -> bool {
    matches!(command, Config::Approve { .. } | Config::Status { .. } | Config::Why(_) | Config::Plan(_))
}

/// Whether a browser may be started that is to stay when this process ends.
fn opens_browser(command: &Command) -> bool {
    match command {
        Command::Mcp(Mcp::Login(_)) => true,
        Command::Mcp(Mcp::Probe(options)) => options.access.login,
        _ => false,
    }
}

async fn run_async(cli: &Cli) -> Result<Exit, Trouble> {
    let common = &cli.common;
    match &cli.command {
        Command::Files(files) => lf_mcp::serve_files(&files.directory)
            .await
            .map(|()| Exit::Success)
            .map_err(|error| Trouble::usage(error.to_string())),
        Command::Serve(options) => serve::run(common, options).await,
        Command::Mcp(command) => {
            if let Some(outcome) = mcp::in_daemon(common, command).await {
                return outcome;
            }
            let loaded = mcp::needs_project(command).then(|| project::load_telling(common)).transpose()?;
            let app = app_with(common, loaded, mcp::consent(command), Kept::nothing())?;
            let project = app.project();
            let mut signals = Signals::new()?;
            let outcome = tokio::select! {
                outcome = mcp::run_with(&app, project.as_deref(), command, common.locked) => outcome,
                _ = signals.next() => Ok(Exit::Failure),
            };
            close(&app, &mut signals).await;
            outcome
        }
        Command::Chat(options) => chat(common, options).await,
        Command::Approvals(options) => approvals::run(common, options).await,
        Command::Replay(options) => replay::run(common, options).await,
        Command::Projects(command) => {
            let app = app(common, None)?;
            projects::run(&app, command).await
        }
        Command::Conversations(options) => {
            let mut signals = Signals::new()?;
            tokio::select! {
                outcome = conversations::run(common, options) => outcome,
                _ = signals.next() => Ok(Exit::Failure),
            }
        }
        Command::Config(Config::Status { server, json }) => {
            config::status(&cli.common, server.as_deref(), *json).await
        }
        Command::Config(Config::Approve { project, dry_run }) => {
            let app = app(common, project::load_if_there(common)?)?;
            projects::approve(&app, project.as_deref(), *dry_run).await
        }
        Command::Config(Config::Why(options)) => explain::why(common, options).await,
        Command::Config(Config::Plan(options)) => explain::plan(common, options).await,
        _ => Ok(Exit::Success),
    }
}

async fn chat(common: &Common, options: &args::Chat) -> Result<Exit, Trouble> {
    let question = chat::Question::of(options)?;
    chat::check_recording(options, &question)?;
    let mut signals = Signals::new()?;
    // outlives the sessions: the terminal is looked after to the very end
    let mut prompt = question.text.is_none().then(Prompt::new).transpose()?;
    let mut person = Person { prompt: prompt.as_mut(), signals: &mut signals };
    if common.locked && (options.continues || options.conversation.is_some() || options.server.is_some()) {
        return Err(Trouble::usage(
            "`--locked` is for the process that runs the tools, which is the daemon".to_owned(),
        )
        .hint("start it with `lf serve --locked`"));
    }
    if options.continues || options.conversation.is_some() {
        let kept = daemon::Kept::open(common, options, question.project.as_deref()).await?;
        return chat::run(Engine::Kept(kept), options, question, &mut person).await;
    }
    if let Some(server) = &options.server {
        let daemon = daemon::Daemon::new(common, server, question.project.as_deref())?;
        return chat::run(Engine::Daemon(daemon), options, question, &mut person).await;
    }
    let named = question.project.as_deref().and_then(|name| name.split_once('/'));
    let project = match named {
        // another project than this directory's: no file is needed here
        Some(_) => project::load(common).ok(),
        None => Some(project::load_telling(common)?),
    };
    let app = app(common, project)?;
    let scope = match named {
        Some((namespace, name)) => Some(
            app.find_project(&Principal::owner(), namespace, name)
                .await
                .map_err(|refusal| Trouble::usage(refusal.to_string()))?,
        ),
        None => app.project(),
    };
    if common.locked {
        let locked = mcp::pins::verify_for(&app, scope.as_deref(), options.model.as_deref()).await;
        if let Err(trouble) = locked {
            close(&app, &mut signals).await;
            return Err(trouble);
        }
    }
    let outcome = chat::run(Engine::Here { app: &app, scope }, options, question, &mut person).await;
    close(&app, &mut signals).await;
    outcome
}

/// Takes the sessions down; another signal leaves at once.
async fn close(app: &App, signals: &mut Signals) {
    tokio::select! {
        () = app.pool().shutdown() => {}
        _ = signals.next() => {
            lf_mcp::kill_all();
            std::process::exit(Exit::Failure.status());
        }
    }
}

/// The engine for this project. What lasts only as long as a command keeps no conversations.
fn app(common: &Common, project: Option<Loaded>) -> Result<Arc<App>, Trouble> {
    app_with(common, project, Consent::Absent, Kept::nothing())
}

/// What is kept of turns.
struct Kept {
    store: Result<Store, String>,
    recordings: Option<PathBuf>,
}

impl Kept {
    fn nothing() -> Self {
        let store = Err("only a daemon (`lf serve`) keeps conversations".to_owned());
        Self { store, recordings: None }
    }
}

fn app_with(
    common: &Common,
    project: Option<Loaded>,
    consent: Consent,
    kept: Kept,
) -> Result<Arc<App>, Trouble> {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("lf"));
    let data_dir = project::data_dir(common);
    let environment = environment();
    let roots = roots::roots(&environment);
    let mut options = PoolOptions::new(environment, program);
    options.roots.clone_from(&roots);
    options.keeps = true;
    options.tokens = Some(data_dir.join("oauth"));
    options.consent = consent;
    options.generations = Some(data_dir.join("mcp-generations.json"));
    let operator = Arc::new(project::operator(&data_dir)?);
    options.operator = operator.clone();
    let audit = audit::open(&data_dir)?;
    let parts = Parts {
        project: project.map(Into::into),
        data_dir,
        loader: project::loader(common),
        pool: SessionPool::new(options),
        timeouts: lf_server::Timeouts::default(),
        egress: lf_server::Egress::new(operator, roots),
        store: kept.store,
        recordings: kept.recordings,
        audit,
    };
    App::new(parts).map(Arc::new).map_err(|error| Trouble::failure(error.to_string()))
}

fn environment() -> Vec<(String, String)> {
    let variables = std::env::vars_os();
    variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn configuration(common: &Common, command: &Config) -> Result<Exit, Trouble> {
    match command {
        Config::Show { json } => {
            let loaded = project::load_telling(common)?;
            if *json {
                print_line(format_args!("{:#}", lf_config::show_value(&loaded)))?;
            } else {
                print(format_args!("{}", lf_config::show(&loaded)))?;
            }
        }
        Config::Validate { json } => {
            let loaded = project::load_telling(common)?;
            let project = &loaded.project;
            mcp::pins::tell_loose(project);
            let path = loaded.source.path.display();
            if *json {
                let report = serde_json::json!({
                    "valid": true,
                    "file": path.to_string(),
                    "warnings": loaded.diagnostics.len(),
                    "servers": project.servers.len(),
                    "models": project.models.len(),
                });
                print_line(&report)?;
            } else {
                let (servers, models) = (project.servers.len(), project.models.len());
                print_line(format_args!("{path}: valid; {servers} MCP server(s), {models} model(s)"))?;
            }
        }
        Config::Schema => print_line(format_args!("{:#}", lf_config::schema()))?,
        Config::Init(init) => return begin(common, init),
        // need the engine, or a daemon
        Config::Approve { .. } | Config::Status { .. } | Config::Why(_) | Config::Plan(_) => {}
    }
    Ok(Exit::Success)
}

fn begin(common: &Common, init: &Init) -> Result<Exit, Trouble> {
    let directory = project::directory(common)?.join(init.path.clone().unwrap_or_default());
    std::fs::create_dir_all(&directory)
        .map_err(|error| Trouble::failure(format!("cannot make {}: {error}", directory.display())))?;
    if let Some(found) =
        lf_config::FILE_NAMES.iter().map(|name| directory.join(name)).find(|path| path.exists())
    {
        return Err(Trouble::failure(format!("{} exists already", found.display()))
            .hint("edit it, or name another directory: lf init DIR"));
    }
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = lf_config::init(&name, &init.namespace);
    let schema = format!("{:#}\n", lf_config::schema());
    for (name, text) in [(lf_config::SCHEMA_FILE, &schema), (lf_config::FILE_NAMES[0], &text)] {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Trouble::failure(format!("cannot write {}: {error}", path.display())))?;
        print_line(format_args!("wrote {}", path.display()))?;
    }
    anstream::eprintln!("try: lf chat \"list the files\"");
    Ok(Exit::Success)
}

fn models(common: &Common, json: bool) -> Result<Exit, Trouble> {
    let project = project::load_telling(common)?.project;
    if json {
        let models: Vec<serde_json::Value> = project
            .models
            .iter()
            .map(|(name, model)| match model {
                Ok(model) => serde_json::json!({
                    "name": name,
                    "provider": model.provider.name(),
                    "model": model.model,
                    "base_url": lf_core::secret::shown_url_without(&model.base_url, &model.in_url),
                    "mcp_servers": model.servers,
                    "default": project.default_model.as_ref() == Some(name),
                }),
                Err(disabled) => serde_json::json!({"name": name, "error": disabled.reason}),
            })
            .collect();
        print_line(serde_json::json!({"models": models, "total": models.len()}))?;
        return Ok(Exit::Success);
    }
    for (name, model) in &project.models {
        let mark = if project.default_model.as_ref() == Some(name) { "*" } else { " " };
        match model {
            Ok(model) => {
                let servers = if model.servers.is_empty() {
                    "no MCP servers".to_owned()
                } else {
                    model.servers.join(", ")
                };
                print_line(format_args!(
                    "{mark} {name}  {} {}  [{servers}]",
                    model.provider.name(),
                    model.model
                ))?;
            }
            Err(disabled) => print_line(format_args!("{mark} {name}  cannot be used: {}", disabled.reason))?,
        }
    }
    Ok(Exit::Success)
}
