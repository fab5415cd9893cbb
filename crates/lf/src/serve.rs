//! `lf serve`.

use lf_server::{BindError, Serve, bind, serve};
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
    let app = crate::app(common, project.map(|loaded| loaded.project))?;
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

fn port_trouble(error: &BindError) -> Trouble {
    let trouble = Trouble::failure(error.to_string());
    match error {
        BindError::InUse { .. } => trouble
            .hint("another lf may be running; `lf serve --port N` takes another port, `--port 0` a free one"),
        BindError::Other { .. } => trouble.hint("`--host` names an address of this machine"),
    }
}
