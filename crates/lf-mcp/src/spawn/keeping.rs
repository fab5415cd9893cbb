//! A child behind its keepers: what they are told, and what they say.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use lf_core::project::{Sandbox, SandboxNetwork, SandboxProfile};
use lf_keeper::{Confinement, Doing, Missing, Network, Order, Report};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio_util::either::Either;

use super::{Launch, Stdin, spawn_failure};
use crate::failure::{Cause, Failure};
use crate::record::Record;

/// Keepers that were started and wait.
pub(super) struct Keeping {
    control: UnixStream,
    order: Order,
    command: String,
    program: PathBuf,
    is_strict: bool,
}

pub(super) fn is_kept(launch: &Launch) -> bool {
    launch.keeps && launch.sandbox.profile != SandboxProfile::Off
}

/// What starts the keepers of a child, and what they are then told. Needs a runtime.
pub(super) fn prepare(
    launch: &Launch,
    program: &Path,
    missing: &[Missing],
) -> io::Result<(Command, Keeping)> {
    let (ours, theirs) = Pair::pair()?;
    ours.set_nonblocking(true)?;
    let home = launch.environment.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.into());
    let mut command = lf_keeper::command(&launch.own_program.clone().into(), home.as_ref());
    // where the child is to be may not be there for long
    command.current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs)));
    let keeping = Keeping {
        control: UnixStream::from_std(ours)?,
        order: order(launch, program, missing)?,
        command: launch.command.clone(),
        program: program.to_owned(),
        is_strict: launch.sandbox.profile == SandboxProfile::Strict,
    };
    Ok((command.into(), keeping))
}

fn order(launch: &Launch, program: &Path, missing: &[Missing]) -> io::Result<Order> {
    let sandbox = &launch.sandbox;
    Ok(Order {
        parent: i32::try_from(std::process::id()).map_err(io::Error::other)?,
        word: uuid::Uuid::new_v4().simple().to_string(),
        program: program.into(),
        name: launch.command.clone().into(),
        args: launch.args.clone(),
        environment: launch.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        directory: launch.cwd.clone().into(),
        namespaces: !sandbox.shares_processes && missing.is_empty(),
        missing: missing.to_vec(),
        confinement: (sandbox.profile == SandboxProfile::Strict).then(|| confinement(sandbox)),
        require: sandbox.require,
    })
}

fn confinement(sandbox: &Sandbox) -> Confinement {
    let paths = |paths: &[PathBuf]| paths.iter().map(OsString::from).collect();
    Confinement {
        read: paths(&sandbox.read),
        write: paths(&sandbox.write),
        network: match &sandbox.network {
            SandboxNetwork::All => Network::All,
            SandboxNetwork::Ports(ports) => Network::Ports(ports.clone()),
            SandboxNetwork::None => Network::None,
        },
    }
}

impl Keeping {
    /// Has the child started. From then on what is written is for the child. Nothing where the keepers have to be started
    /// anew, without namespaces. Dropping the future starts nothing, or leaves what was started to who drops the process.
    pub(super) async fn hand_over(
        mut self,
        server: String,
        record: Arc<Record>,
    ) -> Result<Option<Stdin>, Failure> {
        let report = match self.ask().await {
            Ok(report) => report,
            Err(error) => {
                let reason = format!("`{}` could not be started: what keeps it ended: {error}", self.command);
                return Err(Failure::new(reason).of(Cause::CannotStart));
            }
        };
        match report {
            Report::Started { missing } => self.tell(&missing, &server, &record),
            Report::Again => return Ok(None),
            Report::Refused { missing } => return Err(refused(&missing)),
            Report::Failed { doing, errno } => {
                return Err(self.failed(doing, &io::Error::from_raw_os_error(errno)));
            }
        }
        let (_, stdin) = self.control.into_split();
        Ok(Some(Either::Right(stdin)))
    }

    async fn ask(&mut self) -> io::Result<Report> {
        let written = self.control.write_all(&self.order.to_bytes()?).await;
        // who refuses does not read all of it, and says why
        report(&mut self.control, &self.order.word).await.map_err(|error| written.err().unwrap_or(error))
    }

    fn failed(&self, doing: Doing, error: &io::Error) -> Failure {
        let Self { command, program, .. } = self;
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        match doing {
            Doing::Starting if self.is_strict && is_denied => Failure::hinted(
                format!("Permission denied: `{command}` may not be run with `sandbox: strict`"),
                format!(
                    "name in `sandbox.read` its working directory, the directory of {}, and what it needs",
                    program.display()
                ),
            )
            .of(Cause::CannotStart),
            Doing::Starting | Doing::Keeping => spawn_failure(error, command, program),
            Doing::Confining => {
                let reason = format!("`{command}` was not started, as it could not be confined: {error}");
                Failure::new(reason).of(Cause::CannotStart)
            }
        }
    }

    /// What a person is to know of a sandbox that is less, or more, than they think.
    fn tell(&self, missing: &[Missing], server: &str, record: &Record) {
        let absent = self.order.confinement.iter().flat_map(|it| it.read.iter().chain(&it.write));
        for path in absent.filter(|path| !Path::new(path).exists()) {
            let path = path.display();
            tracing::warn!(server, %path, "a path of `sandbox` is not there, and the MCP server cannot make it");
        }
        let without = list(missing);
        if !record.lacks(&without) || missing.is_empty() {
            return;
        }
        if self.is_strict {
            tracing::warn!(server, without, "an MCP server is confined less than its sandbox says");
        } else {
            tracing::info!(server, without, "an MCP server is not apart from other processes");
        }
    }
}

/// One line, and nothing after it is read.
async fn report(control: &mut UnixStream, word: &str) -> io::Result<Report> {
    let mut line = Vec::new();
    let mut limited = control.take(Report::LONGEST);
    loop {
        match limited.read_u8().await? {
            b'\n' => return Report::parse(&line, word),
            byte => line.push(byte),
        }
    }
}

fn refused(missing: &[Missing]) -> Failure {
    Failure::hinted(
        format!(
            "not started: this system cannot confine it as `sandbox` requires, without {}",
            list(missing)
        ),
        "use another kernel or container, or accept less with `sandbox: {require: false}`",
    )
    .of(Cause::CannotStart)
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(|missing| missing.described()).collect::<Vec<_>>().join(", ")
}
