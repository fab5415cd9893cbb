//! The servers of a running daemon, over HTTP.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::daemon::base_url;
use crate::exit::Trouble;

const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// A restart is answered when the server is up again, which may take its whole startup timeout.
const ANSWER_WAIT: Duration = Duration::from_secs(600);
/// Bytes of an answer.
const LONGEST: usize = 16 * 1024 * 1024;

#[derive(Clone)]
pub(crate) struct Remote {
    base_url: String,
    client: reqwest::Client,
}

impl Remote {
    /// `project` is `namespace/project`; without one, the project the daemon was started in.
    pub(crate) fn new(server: &str, project: Option<&str>) -> Result<Self, Trouble> {
        let base_url = base_url(server, project)?;
        let builder = reqwest::Client::builder().connect_timeout(CONNECT_WAIT).timeout(ANSWER_WAIT);
        let client = builder.redirect(reqwest::redirect::Policy::none()).build();
        let client =
            client.map_err(|error| Trouble::failure(format!("the HTTP client cannot be set up: {error}")))?;
        Ok(Self { base_url, client })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Trouble> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str) -> Result<Value, Trouble> {
        self.ask(Method::POST, path, None).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Trouble> {
        let url = format!("{}{path}", self.base_url);
        let broken = |error: &reqwest::Error| {
            let what = if error.is_connect() { "cannot be reached" } else { "broke off" };
            Trouble::failure(format!("the daemon at {url} {what}")).hint("is `lf serve` running there?")
        };
        let mut request = self.client.request(method, &url);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let mut response = request.send().await.map_err(|error| broken(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
            if body.len() + chunk.len() > LONGEST {
                return Err(Trouble::failure(format!("{url} answered with more than {LONGEST} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status == StatusCode::OK && answer.is_object() {
            return Ok(answer);
        }
        let message = answer["message"].as_str().or(answer["error"]["message"].as_str());
        Err(match message {
            Some(message) => Trouble::failure(message.to_owned()),
            None => Trouble::failure(format!("{url} answered with status {status} and no JSON"))
                .hint("is it an `lf serve` of this version?"),
        })
    }
}
