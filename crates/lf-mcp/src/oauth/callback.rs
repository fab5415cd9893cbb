//! The place on this machine that a browser is sent to in the end: it takes one answer and is gone.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use url::{Host, Url};

use crate::failure::Failure;

/// Where a browser is sent when the file does not say.
const PATH: &str = "/callback";
/// For a browser to send its request.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// Connections that are read at the same time.
const MAX_READING: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Of a request, in bytes: a code and a state in the first line, and the headers of a browser.
const MAX_REQUEST: usize = 32 * 1024;

/// What the redirect URI of a program on somebody's machine may be: http, this machine, no query.
///
/// # Errors
/// What is wrong with it.
fn parse_redirect(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "it is not a URL")?;
    if url.scheme() != "http" {
        return Err("it must be an `http` URL of this machine");
    }
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match is_here {
        false => Err("its host must be `127.0.0.1` or `localhost`"),
        true if url.query().is_some() || url.fragment().is_some() => Err("it must end with the path"),
        true => Ok(url),
    }
}

/// Listens where a redirect leads.
pub(super) struct Callback {
    listeners: Vec<TcpListener>,
    pub(super) redirect_uri: String,
    path: String,
}

impl Callback {
    /// Listens at the URI that the file names; or else at a port of 127.0.0.1: that of `before`, where it is free.
    pub(super) async fn bind(configured: Option<&str>, before: Option<&str>) -> Result<Self, Failure> {
        if let Some(text) = configured {
            return Self::at(text).await;
        }
        if let Some(text) = before
            && let Ok(callback) = Self::at(text).await
        {
            return Ok(callback);
        }
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| unbound("127.0.0.1", &error))?;
        let port = listener.local_addr().map_err(|error| unbound("127.0.0.1", &error))?.port();
        let redirect_uri = format!("http://127.0.0.1:{port}{PATH}");
        Ok(Self { listeners: vec![listener], redirect_uri, path: PATH.to_owned() })
    }

    async fn at(text: &str) -> Result<Self, Failure> {
        let url = parse_redirect(text)
            .map_err(|why| Failure::new(format!("`{text}` cannot be redirected to: {why}")))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let mut listeners = Vec::new();
        let hosts = match url.host() {
            // a browser may take either
            Some(Host::Domain(_)) => vec!["127.0.0.1".to_owned(), "::1".to_owned()],
            Some(Host::Ipv6(address)) => vec![address.to_string()],
            _ => vec![url.host_str().unwrap_or("127.0.0.1").to_owned()],
        };
        let mut last = None;
        for host in hosts {
            match TcpListener::bind((host.as_str(), port)).await {
                Ok(listener) => listeners.push(listener),
                Err(error) => last = Some(unbound(&format!("{host}:{port}"), &error)),
            }
        }
        match last {
            Some(failure) if listeners.is_empty() => Err(failure),
            _ => Ok(Self { listeners, redirect_uri: text.to_owned(), path: url.path().to_owned() }),
        }
    }

    /// The query of the first request that `accepts` takes; others are told that they are wrong, and waiting goes on.
    pub(super) async fn answer(&self, accepts: impl Fn(&str) -> bool) -> String {
        // browsers open connections that they never use
        let mut reading = FuturesUnordered::new();
        loop {
            let (mut stream, query) = tokio::select! {
                accepted = self.accept(), if reading.len() < MAX_READING => {
                    reading.push(timeout(READ_LIMIT, self.request(accepted)));
                    continue;
                }
                Some(read) = reading.next(), if !reading.is_empty() => match read {
                    Ok(Some(request)) => request,
                    _ => continue,
                },
            };
            match query.filter(|query| accepts(query)) {
                Some(query) => {
                    let page = "The answer has reached lf. This page can be closed.";
                    reply(&mut stream, "200 OK", page).await;
                    return query;
                }
                None => reply(&mut stream, "404 Not Found", "This is not what lf is waiting for.").await,
            }
        }
    }

    async fn accept(&self) -> TcpStream {
        loop {
            let accepting = self.listeners.iter().map(|listener| Box::pin(listener.accept()));
            match futures_util::future::select_all(accepting).await.0 {
                Ok((stream, _)) => return stream,
                // out of files, or the like
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// A whole request, and its query where it is for our path.
    async fn request(&self, mut stream: TcpStream) -> Option<(TcpStream, Option<String>)> {
        let line = first_line(&mut stream).await?;
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = (path == self.path).then(|| query.to_owned());
        Some((stream, query))
    }
}

fn unbound(place: &str, error: &std::io::Error) -> Failure {
    Failure::hinted(
        format!("cannot listen at {place} for the browser to come back: {error}"),
        "free the port, or name another in `redirect_port`",
    )
}

/// Reads the whole head: a browser that is cut off while it sends shows an error instead of the page.
async fn first_line(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&buffer[..read]);
        if head.len() > MAX_REQUEST {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    head.lines().next().map(str::to_owned)
}

async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>lf</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n\
         connection: close\r\n\r\n",
        page.len()
    );
    let writing = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(page.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = timeout(READ_LIMIT, writing).await;
}
