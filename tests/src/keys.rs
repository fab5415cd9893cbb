//! Keys of the daemons that tests have started, so that tests that are not about keys need not think of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use reqwest::header::{HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

use crate::runtime;

/// The owner's token, by the daemon's port.
static TOKENS: LazyLock<Mutex<HashMap<u16, String>>> = LazyLock::new(Mutex::default);

/// That a daemon listens on a port; forgotten with this value, as the port may be another one's then.
pub struct Remembered {
    port: u16,
    token: Option<String>,
}

/// A daemon of this data directory listens on this port from now on.
pub fn remember(port: u16, data_dir: &Path) -> Remembered {
    // none where it cannot write there
    let token = std::fs::read_to_string(data_dir.join("owner-token")).ok();
    let token = token.map(|token| token.trim().to_owned());
    let mut tokens = TOKENS.lock().expect("the tokens");
    match &token {
        Some(token) => tokens.insert(port, token.clone()),
        None => tokens.remove(&port),
    };
    Remembered { port, token }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        let Ok(mut tokens) = TOKENS.lock() else { return };
        if tokens.get(&self.port) == self.token.as_ref() {
            tokens.remove(&self.port);
        }
    }
}

/// The token of the owner of the daemon at this URL.
pub fn of(url: &str) -> Option<String> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    let port = authority.rsplit_once(':')?.1.parse().ok()?;
    TOKENS.lock().expect("the tokens").get(&port).cloned()
}

/// What a client sends with every request to be the owner of the daemon at this URL.
pub fn headers(url: &str) -> HeaderMap {
    let token = of(url).map(|token| HeaderValue::from_str(&format!("Bearer {token}")).expect("a token"));
    HeaderMap::from_iter(token.map(|token| (HeaderName::from_static("authorization"), token)))
}

/// The same URL behind somebody who adds the owner's token to every request: for peers that cannot be told of it. It is
/// there for as long as the test program runs. Where there is no such daemon, the URL itself.
pub fn front(url: &str) -> String {
    let Some(token) = of(url) else { return url.to_owned() };
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let behind = Behind {
        root: format!("{scheme}://{authority}"),
        token,
        client: runtime::block_on(async { reqwest::Client::builder().no_proxy().build().expect("a client") }),
    };
    let listener = runtime::block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let app = Router::new().fallback(pass).with_state(behind);
    runtime::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    format!("http://127.0.0.1:{port}{path}")
}

#[derive(Clone)]
struct Behind {
    root: String,
    token: String,
    client: reqwest::Client,
}

async fn pass(State(behind): State<Behind>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers;
    headers.insert("x-api-key", HeaderValue::from_str(&behind.token).expect("a token"));
    headers.remove(TRANSFER_ENCODING);
    // as the client has it: it may be the very thing that is tested
    let host = headers.remove(HOST);
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let request = behind.client.request(parts.method, format!("{}{path}", behind.root)).headers(headers);
    let request = request.header(HOST, host.unwrap_or_else(|| HeaderValue::from_static("127.0.0.1")));
    let answer = match request.body(body).send().await {
        Ok(answer) => answer,
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = axum::http::StatusCode::BAD_GATEWAY;
            return response;
        }
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    response.headers_mut().remove(TRANSFER_ENCODING);
    response.map(|_| Body::from_stream(answer.bytes_stream()))
}
