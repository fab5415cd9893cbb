//! The steps before the protocol begins: the program that is to be run, or the way to the host.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lf_core::project::Transport;
use lf_core::{McpServer, Secret, secret};
use lf_mcp::SessionPool;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use super::report::Step;

/// For each of the steps; the session itself has limits of its own.
const LIMIT: Duration = Duration::from_secs(10);
/// Variables that send requests through a proxy, so that the way to the host is not ours.
const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// What can be said before anything is asked of the server; ends with the first step that fails.
pub(super) async fn steps(pool: &SessionPool, server: &McpServer) -> Vec<Step> {
    match &server.transport {
        Transport::Stdio(stdio) => vec![match pool.program_of(stdio) {
            Some(program) => Step::done("program", Duration::ZERO, program.display().to_string()),
            None => Step::wrong("program", Duration::ZERO, format!("Command not found: `{}`", stdio.command))
                .hint("check `command`, and the `PATH` that this program runs with"),
        }],
        Transport::Http(http) | Transport::Sse(http) => match place(&http.base_url) {
            Some((host, port)) if !PROXIES.iter().any(|name| std::env::var_os(name).is_some()) => {
                way(&host, port, &http.in_url).await
            }
            // What is wrong with the URL, the session says.
            _ => Vec::new(),
        },
    }
}

/// `in_url`: what variables hold of the URL, which is not shown.
async fn way(host: &str, port: u16, in_url: &[Secret]) -> Vec<Step> {
    let started = Instant::now();
    let found = timeout(LIMIT, lookup_host((host.trim_matches(['[', ']']), port))).await;
    let host = &secret::without(host, &in_url.iter().map(Secret::expose).collect::<Vec<_>>());
    let elapsed = started.elapsed();
    let addresses: Vec<SocketAddr> = match found {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => {
            let step = Step::wrong("resolve", elapsed, format!("the host `{host}` was not found: {error}"));
            return vec![step.hint("check the host name and the network")];
        }
        Err(_) => {
            let reason = format!("nobody said within {LIMIT:?} where `{host}` is");
            return vec![
                Step::wrong("resolve", elapsed, reason).hint("check the network and its name servers"),
            ];
        }
    };
    let shown: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let resolved = Step::done("resolve", elapsed, format!("{host} is {}", shown.join(", ")));
    let started = Instant::now();
    let connected = timeout(LIMIT, TcpStream::connect(&addresses[..])).await;
    let elapsed = started.elapsed();
    let connected = match connected {
        Ok(Ok(stream)) => {
            let peer = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
            Step::done("connect", elapsed, peer)
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Step::wrong("connect", elapsed, format!("Connection refused: nothing listens at {host}:{port}"))
                .hint("start the server, or correct the URL")
        }
        Ok(Err(error)) => Step::wrong("connect", elapsed, format!("no connection to {host}:{port}: {error}")),
        Err(_) => Step::wrong("connect", elapsed, format!("no connection to {host}:{port} within {LIMIT:?}"))
            .hint("check the host, the network and any firewall on the way"),
    };
    vec![resolved, connected]
}

/// Host and port of a URL.
fn place(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    let default = if scheme == "https" { 443 } else { 80 };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host.to_owned(), port.parse().ok()?)),
        _ => Some((authority.to_owned(), default)),
    }
}

#[cfg(test)]
mod tests;
