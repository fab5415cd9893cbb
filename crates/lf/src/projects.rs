//! `lf projects …` and `lf config approve`: what is stored in the data directory.

use std::path::{Path, PathBuf};

use lf_core::Principal;
use lf_core::project::{Carried, Destination, ProcessLimits, Sandbox, SandboxNetwork, SandboxProfile};
use lf_server::{App, Command, EditRefusal, StoredProject};
use serde_json::{Value, json};

use crate::args::Projects;
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;

pub(crate) async fn run(app: &App, command: &Projects) -> Result<Exit, Trouble> {
    let owner = Principal::owner();
    match command {
        Projects::List { namespace, json } => list(app, namespace.clone(), *json).await?,
        Projects::Create { project } => {
            let (namespace, name) = parts(project)?;
            app.create_project(&owner, namespace, name, None).await?;
            let path = app.data_dir().join("projects").join(project);
            print_line(format_args!("created {project} in {}", path.display()))?;
        }
        Projects::Show { project, json } => {
            let (namespace, name) = parts(project)?;
            let project = app.show_project(&owner, namespace, name).await?;
            if *json {
                print_line(format_args!("{:#}", shown(&project)))?;
            } else {
                let text = lf_config::write(&project.config).unwrap_or_default();
                print_line(text.trim_end())?;
            }
            if let Some(error) = project.validation_error {
                return Err(Trouble::usage(error));
            }
        }
        Projects::Delete { project } => {
            let (namespace, name) = parts(project)?;
            app.remove_project(&owner, namespace, name).await?;
            let trash = app.data_dir().join("trash");
            print_line(format_args!("moved {project} to {}", trash.display()))?;
        }
    }
    Ok(Exit::Success)
}

async fn list(app: &App, namespace: Option<String>, json: bool) -> Result<(), Trouble> {
    let projects = app.list_projects(&Principal::owner(), namespace).await?;
    if json {
        let listed: Vec<Value> = projects.iter().map(shown).collect();
        return print_line(json!({"projects": listed, "total": listed.len()}));
    }
    for project in &projects {
        let error = project.validation_error.as_ref().map(|error| format!("  {}", printable(error)));
        print_line(format_args!("{}/{}{}", project.namespace, project.name, error.unwrap_or_default()))?;
    }
    Ok(())
}

fn shown(project: &StoredProject) -> Value {
    json!({
        "namespace": project.namespace,
        "name": project.name,
        "config": project.config,
        "validation_error": project.validation_error,
        "revision": project.revision,
    })
}

/// Shows everything that waits, and approves it as it was shown.
pub(crate) async fn approve(app: &App, project: Option<&str>, dry_run: bool) -> Result<Exit, Trouble> {
    let names = match project {
        Some(project) => vec![parts(project)?],
        None => {
            // the file that is edited here was trusted when the daemon started: it is asked about by its name only
            let stored = app.data_dir().join("projects").canonicalize().ok();
            let is_stored = |root: &Path| stored.as_ref().is_some_and(|stored| root.starts_with(stored));
            let own = app.project().filter(|own| !is_stored(&own.root));
            let own = own.map(|own| (own.namespace.clone(), own.name.clone()));
            let all = app.list_projects(&Principal::owner(), None).await?.into_iter();
            let all = all.map(|project| (project.namespace, project.name));
            all.filter(|name| own.as_ref() != Some(name)).collect()
        }
    };
    let mut waiting = 0;
    for (namespace, name) in names {
        let pending = match app.pending(namespace.clone(), name.clone()).await {
            Ok(pending) => pending,
            Err(refusal) if project.is_some() => return Err(refusal.into()),
            Err(refusal) => {
                anstream::eprintln!("{namespace}/{name}: {}", printable(&refusal.to_string()));
                continue;
            }
        };
        waiting += pending.len();
        for command in &pending.commands {
            show(&namespace, &name, command)?;
        }
        for carried in &pending.secrets {
            print_line(format_args!("{namespace}/{name}: {}", printable(&asked(carried))))?;
        }
        if !dry_run && !pending.is_empty() {
            app.approve(namespace, name, pending).await?;
        }
    }
    match (waiting, dry_run) {
        (0, _) => anstream::eprintln!("nothing waits for an approval"),
        (waiting, true) => anstream::eprintln!("{waiting} wait; nothing was approved"),
        (waiting, false) => anstream::eprintln!("{waiting} approved"),
    }
    Ok(Exit::Success)
}

/// What a person says yes to.
fn asked(carried: &Carried) -> String {
    match (&carried.variable, &carried.to) {
        (Some(variable), Destination::Texts) => {
            format!("variable {variable} is shown to models and clients")
        }
        (Some(variable), to) => format!("variable {variable} goes to {to}"),
        (None, to) => format!("connections to {to}"),
    }
}

/// Everything that decides what runs, and what bounds it. Arguments are shown whole: a mask could hide what they do.
fn show(namespace: &str, name: &str, command: &Command) -> Result<(), Trouble> {
    let stdio = &command.stdio;
    let arguments: Vec<String> =
        stdio.args.iter().map(|argument| format!("{:?}", argument.expose())).collect();
    let program = match (&command.program, &command.program_hash) {
        (Some(program), Some(hash)) => format!("{} (sha256 {hash})", program.display()),
        (Some(program), None) => format!("{} (this program)", program.display()),
        (None, _) => "not found".to_owned(),
    };
    let list = |words: &[String]| if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    let environment = command.environment.iter().map(|(name, text)| format!("{}={text:?}", printable(name)));
    let inherited: Vec<String> = stdio.inherit_env.iter().map(|name| printable(name)).collect();
    print_line(format_args!("{namespace}/{name}: {}", printable(&command.server)))?;
    print_line(format_args!("  command      {}", printable(&stdio.command)))?;
    print_line(format_args!("  arguments    [{}]", arguments.join(", ")))?;
    print_line(format_args!("  environment  {}", list(&environment.collect::<Vec<_>>())))?;
    print_line(format_args!("  inherited    {}", list(&inherited)))?;
    print_line(format_args!("  sandbox      {}", sandbox(&stdio.sandbox)))?;
    print_line(format_args!("  limits       {}", limits(stdio.limits)))?;
    print_line(format_args!("  directory    {}", printable(&stdio.cwd.display().to_string())))?;
    print_line(format_args!("  program      {}", printable(&program)))
}

/// With all that makes it less than its name says.
fn sandbox(sandbox: &Sandbox) -> String {
    let Sandbox { profile, read, write, network, require, shares_processes } = sandbox;
    let mut words = vec![profile.name().to_owned()];
    if *profile == SandboxProfile::Strict {
        let paths = |paths: &[PathBuf]| match paths {
            [] => "nothing".to_owned(),
            paths => paths.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(" "),
        };
        words.push(format!("reads {}", paths(read)));
        words.push(format!("writes {}", paths(write)));
        words.push(match network {
            SandboxNetwork::All => "network all".to_owned(),
            SandboxNetwork::Ports(ports) => format!("network {ports:?}"),
            SandboxNetwork::None => "network none".to_owned(),
        });
    }
    if *profile != SandboxProfile::Off {
        words.push(if *require { "required" } else { "not required: it runs with less too" }.to_owned());
        words.extend(shares_processes.then(|| "without namespaces".to_owned()));
    }
    words.join(", ")
}

fn limits(limits: ProcessLimits) -> String {
    let memory = limits.memory.map_or("no limit".to_owned(), |bytes| format!("{bytes} bytes"));
    let processes = limits.processes.map_or("no limit".to_owned(), |most| most.to_string());
    format!("memory {memory}, processes {processes}")
}

fn parts(project: &str) -> Result<(String, String), Trouble> {
    match project.split_once('/') {
        Some((namespace, name)) => Ok((namespace.to_owned(), name.to_owned())),
        None => Err(Trouble::usage(format!("`{project}` is not `namespace/project`"))
            .hint("such as default/my-project; `lf projects list` shows what there is")),
    }
}

impl From<EditRefusal> for Trouble {
    fn from(refusal: EditRefusal) -> Self {
        let message = printable(&refusal.to_string());
        match refusal {
            EditRefusal::Failed(_) => Self::failure(message),
            _ => Self::usage(message),
        }
    }
}
