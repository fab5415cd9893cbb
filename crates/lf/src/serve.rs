//! `lf serve`.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use lf_mcp::Consent;
use lf_server::access::announce;
use lf_server::{App, BindError, Recording, Serve, bind, serve};
use lf_store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Kept;
use crate::args;
use crate::exit::{Exit, Trouble};
use crate::project;
use crate::signals::Signals;

pub(crate) async fn run(common: &args::Common, options: &args::Serve) -> Result<Exit, Trouble> {
    let mut signals = Signals::new()?;
    // the port first: a second daemon fails at once, before it has started anything
    let listener = bind(&options.host, options.port).await.map_err(|error| port_trouble(&error))?;
    let address = listener
        .local_addr()
        .map_err(|error| Trouble::failure(format!("the listening socket has no address: {error}")))?;
    let data_dir = project::data_dir(common);
    let project = project::load_if_any(common)?;
    if project.is_none() {
        let stored = project::data_dir(common).join("projects");
        anstream::eprintln!("no llamafarm.yaml here; serving the projects of {}", stored.display());
    }
    let recordings = options.record.as_deref().map(recordings).transpose()?;
    let kept = Kept { store: Ok(store(common).await?), recordings };
    let app = crate::app_with(common, project.map(|loaded| loaded.project), Consent::Absent, kept)?;
    admit(&app, &data_dir, address)?;
    let announced = announce(&data_dir, address);
    if let Err(error) = &announced {
        anstream::eprintln!(
            "warning: commands on this machine cannot tell that this daemon is yours: {error}"
        );
    }
    anstream::eprintln!("listening on http://{address}");
    let (stop, now) = (CancellationToken::new(), CancellationToken::new());
    let serving = serve(
        app,
        listener,
        Serve {
            host: options.host.clone(),
            cors: options.cors_origins.clone(),
            grace: options.grace,
            stop: stop.clone(),
            now: now.clone(),
        },
    );
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        _ = signals.next() => stop.cancel(),
    }
    tokio::select! {
        () = &mut serving => {}
        _ = signals.next() => {
            // the turns end before their servers are killed, or they would take that for an answer
            now.cancel();
            serving.await;
        }
    }
    Ok(Exit::Success)
}

/// Makes sure that there is somebody who may use the daemon, and nobody else.
fn admit(app: &App, data_dir: &Path, address: SocketAddr) -> Result<(), Trouble> {
    let access = app.access();
    // without it there is nobody who may do what an owner may
    if let Err(error) = access.take_owner(data_dir) {
        anstream::eprintln!("warning: the owner of this daemon has no token: {error}");
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

/// The memory of the daemon. A second daemon would change it behind the first one's back; anything else that is wrong
/// with it leaves the daemon without conversations for so long, and is said.
async fn store(common: &args::Common) -> Result<Store, Trouble> {
    let store = Store::at(&project::data_dir(common)).map_err(|error| Trouble::failure(error.to_string()))?;
    let Err(error) = store.ready().await else { return Ok(store) };
    let hint = error.hint().unwrap_or_default();
    if matches!(error, StoreError::InUse { .. }) {
        return Err(Trouble::failure(error.to_string()).hint(hint));
    }
    anstream::eprintln!("warning: conversations are not kept: {error}");
    if !hint.is_empty() {
        anstream::eprintln!("hint: {hint}");
    }
    Ok(store)
}

fn port_trouble(error: &BindError) -> Trouble {
    let trouble = Trouble::failure(error.to_string());
    match error {
        BindError::InUse { .. } => trouble
            .hint("another lf may be running; `lf serve --port N` takes another port, `--port 0` a free one"),
        BindError::Other { .. } => trouble.hint("`--host` names an address of this machine"),
    }
}
