//! The stdio transport: one message a line.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, mpsc};

use super::script::{Generation, Script};
use super::{Outgoing, Server, modern};

/// Runs the server on this process's stdin and stdout until stdin ends.
pub async fn serve_stdio(script: Script) -> anyhow::Result<()> {
    let server = Server::new(script);
    misbehave_at_first(&server.script)?;
    if let Some(status) = server.script.exit {
        std::process::exit(status);
    }
    watch_sigterm(server.clone())?;
    let (outbox, inbox) = mpsc::unbounded_channel();
    tokio::spawn(write_out(inbox));
    tokio::spawn(relay(server.clone(), server.announcements.subscribe(), outbox.clone()));
    tokio::time::sleep(Duration::from_millis(server.script.slow)).await;

    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if message["method"].is_string() {
            server.settled.get_or_init(|| modern::is_modern(&message["params"]));
        }
        let id = message["id"].to_string();
        let (worker, outbox) = (server.clone(), outbox.clone());
        let task = tokio::spawn(async move {
            let id = message["id"].to_string();
            if let Some(answer) = worker.answer(message, &outbox).await {
                worker.running.lock().unwrap().remove(&id);
                let _ = outbox.send(Outgoing::Message(answer));
            }
        });
        server.running.lock().unwrap().insert(id, task.abort_handle());
    }
    server.note("eof");
    if server.script.ignore_eof {
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn misbehave_at_first(script: &Script) -> anyhow::Result<()> {
    let mut stderr = std::io::stderr().lock();
    if let Some(line) = &script.stderr {
        writeln!(stderr, "{line}")?;
    }
    let block = [b'e'; 8192];
    let mut left = script.stderr_flood;
    while left > 0 {
        let size = left.min(block.len());
        stderr.write_all(&block[..size])?;
        left -= size;
    }
    let mut stdout = std::io::stdout().lock();
    for _ in 0..script.garbage {
        writeln!(stdout, "Server starting, please wait …")?;
    }
    stdout.flush()?;
    Ok(())
}

fn watch_sigterm(server: Arc<Server>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        while terminate.recv().await.is_some() {
            server.note("sigterm");
            if !server.script.ignore_sigterm {
                std::process::exit(0);
            }
        }
    });
    Ok(())
}

async fn write_out(mut inbox: mpsc::UnboundedReceiver<Outgoing>) {
    let mut stdout = tokio::io::stdout();
    while let Some(message) = inbox.recv().await {
        let bytes = match message {
            Outgoing::Message(message) => format!("{message}\n").into_bytes(),
            Outgoing::Raw(bytes) => bytes,
        };
        if stdout.write_all(&bytes).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}

/// A modern server tells changes only to those who listen.
async fn relay(
    server: Arc<Server>,
    mut announcements: broadcast::Receiver<Value>,
    outbox: mpsc::UnboundedSender<Outgoing>,
) {
    while let Ok(message) = announcements.recv().await {
        if server.settled.get() == Some(&true) && server.script.generation != Generation::Legacy {
            continue;
        }
        if outbox.send(Outgoing::Message(message)).is_err() {
            return;
        }
    }
}
