//! The accept loop and the drain.

mod unread;

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use lf_mcp::endpoint::Endpoint;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

use crate::app::App;
use crate::guard::Hosts;
use crate::reload;
use crate::routes::{Shared, Sockets, router};

/// Connections at the same time; more wait to be accepted.
const CONNECTIONS: usize = 4096;
/// The request line and headers of one request, and the pause between two requests of a connection: clients keep idle
/// connections for up to a minute and would lose a race against a shorter limit.
const HEADER_WAIT: Duration = Duration::from_secs(75);
/// For a client to take anything at all of what is written to it: one that has stopped reading, or is gone without a word,
/// would hold its turn for as long as the kernel keeps trying.
const WRITE_STALL: Duration = Duration::from_secs(60);
/// After accepting failed (no more file descriptors): accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For streams to tell their end after they were cut, at the end of the grace and after a second signal.
const CUT_WAIT: Duration = Duration::from_secs(2);
const NOW_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug, Error)]
pub enum BindError {
    #[error("port {port} on {host} is in use")]
    InUse { host: String, port: u16 },
    #[error("cannot listen on {host} port {port}: {source}")]
    Other { host: String, port: u16, source: io::Error },
}

/// Takes the port. Done before anything else starts, so that a second daemon fails at once and alone.
///
/// # Errors
/// [`BindError`]
pub async fn bind(host: &str, port: u16) -> Result<TcpListener, BindError> {
    TcpListener::bind((host, port)).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { host: host.to_owned(), port },
        _ => BindError::Other { host: host.to_owned(), port, source },
    })
}

/// How to serve.
pub struct Serve {
    /// As given on the command line: a Host header may name it.
    pub host: String,
    /// Origins of web pages that may use the daemon, as [`crate::cors_origin`] gives them.
    pub cors: Vec<String>,
    /// How long running answers may go on after `stop`.
    pub grace: Duration,
    /// First signal: stop accepting and drain.
    pub stop: CancellationToken,
    /// Second signal: now.
    pub now: CancellationToken,
    /// SIGHUP: the files of all projects are read again at once.
    pub reload: Arc<Notify>,
}

/// Serves until stopped, then drains: running answers may finish within the grace, then streams end with an error
/// event; at last all MCP sessions close. After `now` they are left to [`lf_mcp::kill_all`].
pub async fn serve(app: Arc<App>, listener: TcpListener, options: Serve) {
    let access = app.access.clone();
    tokio::select! {
        () = Box::pin(serve_all(app, listener, options)) => {}
        // as long as something runs that a key's end ends
        () = access.watch() => {}
    }
}

async fn serve_all(app: Arc<App>, listener: TcpListener, options: Serve) {
    let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let hosts = Hosts { bound: options.host, loopback, cors: options.cors };
    let cut = CancellationToken::new();
    let tasks = TaskTracker::new();
    let shared = Shared {
        app: app.clone(),
        cut: cut.clone(),
        tasks: tasks.clone(),
        stop: options.stop.clone(),
        sockets: Sockets::new(),
        mcp: Endpoint::new(options.stop.clone(), cut.clone()),
    };
    if let Ok(address) = listener.local_addr() {
        let _ = app.address.set(address);
    }
    let service = router(shared, hosts);
    app.projects().reader().begin_record();
    let watching = reload::watch(app.projects().clone(), options.reload);
    // what runs is held against the files as they are, also while it is drained; nobody waits for the watcher to end
    let watched = CancellationToken::new();
    TaskTracker::new().spawn(watched.clone().run_until_cancelled_owned(watching));
    let watched = watched.drop_guard();
    app.recover().await;
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_WAIT);
    loop {
        let accepted = tokio::select! {
            () = options.stop.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else { continue };
        let service = service.clone();
        let handler = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            service.clone().oneshot(unread::read_on(request))
        });
        let connection = builder.serve_connection(TokioIo::new(unstalled(stream)), handler).with_upgrades();
        let stop = options.stop.clone();
        connections.spawn(async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    // what is being answered is finished, and nothing else is read
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                debug!(%peer, %error, "connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    connections.close();
    info!(open = connections.len(), grace = ?options.grace, "draining");
    tasks.close();
    let answered = async || {
        connections.wait().await;
        tasks.wait().await;
    };
    let remembered = async || {
        if let Ok(memory) = &app.memory {
            memory.drain(&cut).await;
        }
    };
    let drained = async {
        answered().await;
        remembered().await;
    };
    tokio::select! {
        () = drained => {}
        () = tokio::time::sleep(options.grace) => warn!("the grace has passed; open answers are cut"),
        () = options.now.cancelled() => {}
    }
    cut.cancel();
    let wait = if options.now.is_cancelled() { NOW_WAIT } else { CUT_WAIT };
    // turns are left before the sessions end under them, and with them those who wait for an answer of theirs
    let ended = async { tokio::join!(answered(), remembered()) };
    let _ = tokio::time::timeout(wait, ended).await;
    drop(watched);
    tokio::select! {
        () = app.pool.shutdown() => {}
        () = options.now.cancelled() => {}
    }
    info!("stopped");
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // a token is a small packet that somebody waits for
            let _ = stream.set_nodelay(true);
            Some((stream, peer, permit))
        }
        Err(error) => {
            warn!(%error, "cannot accept connections");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// The connection, which fails when a write makes no progress: that drops the answer, and so cancels its turn.
fn unstalled<S: AsyncRead + AsyncWrite>(stream: S) -> Pin<Box<TimeoutStream<S>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_STALL));
    Box::pin(stream)
}

#[cfg(test)]
mod tests;
