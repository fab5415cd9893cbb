//! `lf serve`.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lf_core::Project;
use lf_core::project::Storage;
use lf_mcp::Consent;
use lf_server::access::announce;
use lf_server::{App, BindError, Recording, Serve, bind, serve};
use lf_store::{Store, StoreError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Kept;
use crate::args;
use crate::exit::{Exit, Trouble, tell};
use crate::mcp;
use crate::project;
use crate::signals::{self, Signals, Told};

pub(crate) async fn run(common: &args::Common, options: &args::Serve) -> Result<Exit, Trouble> {
    let mut signals = Signals::new()?;
    signals::let_be()?;
    // the port first: a second daemon fails at once, before it has started anything
    let listener = bind(&options.host, options.port).await.map_err(|error| port_trouble(&error))?;
    let address = listener
        .local_addr()
        .map_err(|error| Trouble::failure(format!("the listening socket has no address: {error}")))?;
    let data_dir = project::data_dir(common);
    let project = project::load_if_any(common)?;
    if project.is_none() {
        let stored = data_dir.join("projects");
        tell(format_args!("no llamafarm.yaml here; serving the projects of {}", stored.display()));
    }
    let recordings = options.record.as_deref().map(recordings).transpose()?;
    let kept_in = storage(common, options, project.as_ref().map(|loaded| &loaded.project))?;
    let kept = Kept { store: store(common, kept_in).await?, recordings };
    let app = crate::app_with(common, project, Consent::Absent, kept)?;
    if common.locked
        && let Some(project) = app.project()
    {
        let verified = tokio::select! {
            verified = mcp::pins::verify(&app, &project, None) => verified,
            _ = signals.next() => Err(Trouble::failure("stopped before the servers were held against the lock".to_owned())),
        };
        if let Err(trouble) = verified {
            app.pool().shutdown().await;
            return Err(trouble);
        }
    }
    admit(&app, &data_dir, address)?;
    let announced = announce(&data_dir, address);
    if let Err(error) = &announced {
        tell(format_args!(
            "warning: commands on this machine cannot tell that this daemon is yours: {error}"
        ));
    }
    tell(format_args!("listening on http://{address}"));
    let (stop, now) = (CancellationToken::new(), CancellationToken::new());
    let reload = Arc::new(Notify::new());
    let serving = serve(
        app,
        listener,
        Serve {
            host: options.host.clone(),
            cors: options.cors_origins.clone(),
            grace: options.grace,
            stop: stop.clone(),
            now: now.clone(),
            reload: reload.clone(),
        },
    );
    tokio::pin!(serving);
    loop {
        let told = tokio::select! {
            () = &mut serving => return Ok(Exit::Success),
            told = signals.told() => told,
        };
        match told {
            Told::Reload => reload.notify_one(),
            Told::End if !stop.is_cancelled() => stop.cancel(),
            Told::End => break,
        }
    }
    // the turns end before their servers are killed, or they would take that for an answer
    now.cancel();
    serving.await;
    Ok(Exit::Success)
}

/// Makes sure that there is somebody who may use the daemon, and nobody else.
fn admit(app: &App, data_dir: &Path, address: SocketAddr) -> Result<(), Trouble> {
    let access = app.access();
    // without it there is nobody who may do what an owner may
    if let Err(error) = access.take_owner(data_dir) {
        tell(format_args!("warning: the owner of this daemon has no token: {error}"));
    }
    if address.ip().is_loopback() || access.has_keys()? {
        return Ok(());
    }
    let what = format!("{} can be reached from other machines, and there is no API key", address.ip());
    Err(Trouble::usage(what).hint("make one first: `lf keys create NAME`; or leave out `--host`"))
}

/// The directory of the recordings, for its owner alone where it is made here. That something can be written there is seen
/// now and not with the first turn.
fn recordings(path: &Path) -> Result<PathBuf, Trouble> {
    let unusable = |error: io::Error| {
        Trouble::failure(format!("turns cannot be recorded in {}: {error}", path.display()))
            .hint("`--record DIR` (LF_RECORD) names a directory that can be written to")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let path = path.canonicalize().map_err(unusable)?;
    // dropped without an entry, it leaves nothing
    Recording::create(&path.join(format!(".{}", std::process::id()))).map_err(unusable)?;
    Ok(path)
}

/// Where conversations are kept, as the command line, the environment or the file says.
fn storage(
    common: &args::Common,
    options: &args::Serve,
    project: Option<&Project>,
) -> Result<Result<Storage, String>, Trouble> {
    if let Some(given) = &options.storage {
        // not repeated: there may be a password in it
        let wrong =
            "`--storage` (LF_STORAGE) is neither `sqlite` nor the URL of a Postgres database".to_owned();
        return Storage::parse(given).map(Ok).ok_or_else(|| {
            Trouble::usage(wrong).hint("a URL looks like postgres://user:password@host:5432/database")
        });
    }
    let Some(project) = project else { return Ok(Ok(Storage::default())) };
    let data_dir = project::data_dir(common);
    let storage = lf_server::storage_of(project, &data_dir, &project::operator(&data_dir)?);
    Ok(storage.map_err(|disabled| disabled.reason))
}

/// The memory of the daemon. A second daemon would change a file behind the first one's back; anything else that is wrong
/// with it leaves the daemon without conversations for so long, and is said.
async fn store(
    common: &args::Common,
    storage: Result<Storage, String>,
) -> Result<Result<Store, String>, Trouble> {
    let opened = match storage {
        Err(reason) => Err(reason),
        Ok(Storage::Postgres(url)) => {
            let roots = crate::roots::roots(&crate::environment());
            Store::shared(&url, &roots).map_err(|error| error.to_string())
        }
        Ok(Storage::Sqlite) => {
            let store = Store::at(&project::data_dir(common));
            Ok(store.map_err(|error| Trouble::failure(error.to_string()))?)
        }
    };
    let (reason, hint) = match &opened {
        Err(reason) => (reason.clone(), ""),
        Ok(store) => {
            let Err(error) = store.ready().await else { return Ok(opened) };
            let hint = error.hint().unwrap_or_default();
            if matches!(error, StoreError::InUse { .. }) {
                return Err(Trouble::failure(error.to_string()).hint(hint));
            }
            (error.to_string(), hint)
        }
    };
    tell(format_args!("warning: conversations are not kept: {reason}"));
    if !hint.is_empty() {
        tell(format_args!("hint: {hint}"));
    }
    Ok(opened)
}

fn port_trouble(error: &BindError) -> Trouble {
    let trouble = Trouble::failure(error.to_string());
    match error {
        BindError::InUse { .. } => trouble
            .hint("another lf may be running; `lf serve --port N` takes another port, `--port 0` a free one"),
        BindError::Other { .. } => trouble.hint("`--host` names an address of this machine"),
    }
}
