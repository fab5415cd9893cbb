//! `lf serve`.

use lf_mcp::Consent;
use lf_server::{BindError, Serve, bind, serve};
use lf_store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

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
    let project = project::load_if_any(common)?;
    if project.is_none() {
        let stored = project::data_dir(common).join("projects");
        anstream::eprintln!("no llamafarm.yaml here; serving the projects of {}", stored.display());
    }
    let store = store(common).await?;
    let app = crate::app_with(common, project.map(|loaded| loaded.project), Consent::Absent, Ok(store))?;
    anstream::eprintln!("listening on http://{address}");
    let (stop, now) = (CancellationToken::new(), CancellationToken::new());
    let serving = serve(
        app,
        listener,
        Serve { host: options.host.clone(), grace: options.grace, stop: stop.clone(), now: now.clone() },
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
