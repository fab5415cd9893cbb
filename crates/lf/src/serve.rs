//! `lf serve`.

use lf_core::Project;
use lf_core::project::Storage;
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
    let project = project.map(|loaded| loaded.project);
    let store = store(common, storage(options, project.as_ref())?).await?;
    let app = crate::app_with(common, project, Consent::Absent, store)?;
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

/// Where conversations are kept, as the command line, the environment or the file says.
fn storage(options: &args::Serve, project: Option<&Project>) -> Result<Result<Storage, String>, Trouble> {
    if let Some(given) = &options.storage {
        // not repeated: there may be a password in it
        let wrong =
            "`--storage` (LF_STORAGE) is neither `sqlite` nor the URL of a Postgres database".to_owned();
        return Storage::parse(given).map(Ok).ok_or_else(|| {
            Trouble::usage(wrong).hint("a URL looks like postgres://user:password@host:5432/database")
        });
    }
    let storage = project.map_or(Ok(Storage::default()), |project| project.storage.clone());
    Ok(storage.map_err(|disabled| disabled.reason))
}

/// The memory of the daemon. A second daemon would change it behind the first one's back; anything else that is wrong
/// with it leaves the daemon without conversations, and says so.
async fn store(
    common: &args::Common,
    storage: Result<Storage, String>,
) -> Result<Result<Store, String>, Trouble> {
    let opened = match storage {
        Err(reason) => Err(reason),
        Ok(Storage::Postgres(url)) => {
            let store = Store::shared(&url, &crate::roots::roots(&crate::environment()))
                .map_err(|error| error.to_string());
            if let Ok(store) = &store
                && let Err(error) = store.check().await
            {
                anstream::eprintln!("warning: conversations are not kept until this is over: {error}");
            }
            store
        }
        Ok(Storage::Sqlite) => match Store::open(project::data_dir(common)).await {
            Ok(store) => Ok(store),
            Err(error @ StoreError::InUse { .. }) => {
                return Err(Trouble::failure(error.to_string()).hint(
                    "one daemon serves all projects; `--data-dir DIR` (LF_DATA_DIR) gives a second one its own memory",
                ));
            }
            Err(error) => Err(error.to_string()),
        },
    };
    if let Err(reason) = &opened {
        anstream::eprintln!("warning: conversations are not kept: {reason}");
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
