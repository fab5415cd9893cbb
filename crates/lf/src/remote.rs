//! A running daemon, over HTTP.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::daemon::{base_url, root};
use crate::exit::Trouble;

const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// A restart is answered when the server is up again, which may take its whole startup timeout.
const ANSWER_WAIT: Duration = Duration::from_secs(600);
/// Bytes of an answer.
const LONGEST: usize = 16 * 1024 * 1024;

/// A turn that is told as it goes: no longer than any turn may take, with all that people are asked in it.
const TOLD: Duration = Duration::from_secs(24 * 3600);

/// Where `lf serve` listens when it is not told where.
pub(crate) const HERE: &str = "http://127.0.0.1:14345";

#[derive(Clone)]
pub(crate) struct Remote {
    base_url: String,
    client: reqwest::Client,
}

impl Remote {
    /// What concerns a project. `project` is `namespace/project`; without one, the project the daemon was started in.
    pub(crate) fn new(server: &str, project: Option<&str>) -> Result<Self, Trouble> {
        Self::at(base_url(server, project)?)
    }

    /// The whole daemon.
    pub(crate) fn whole(server: &str) -> Result<Self, Trouble> {
        Self::at(root(server)?.to_owned())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a person names the daemon, and what it answers leads nowhere"
    )]
    fn at(base_url: String) -> Result<Self, Trouble> {
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

    /// # Errors
    /// What the daemon says is wrong, or that it cannot be reached.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Trouble> {
        let mut response = self.send(method, path, body, ANSWER_WAIT).await?;
        let status = response.status();
        let answer: Value = serde_json::from_slice(&self.whole_of(&mut response).await?).unwrap_or_default();
        if status.is_success() && answer.is_object() {
            Ok(answer)
        } else {
            Err(self.refused(status, path, &answer))
        }
    }

    /// The answer to a POST as it comes.
    ///
    /// # Errors
    /// As [`Remote::ask`].
    pub(crate) async fn tell(&self, path: &str, body: &Value) -> Result<Response, Trouble> {
        let mut response = self.send(Method::POST, path, Some(body), TOLD).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let answer = serde_json::from_slice(&self.whole_of(&mut response).await?).unwrap_or_default();
        Err(self.refused(status, path, &answer))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Response, Trouble> {
        let mut request = self.client.request(method, format!("{}{path}", self.base_url)).timeout(limit);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        request.send().await.map_err(|error| self.broken(&error))
    }

    async fn whole_of(&self, response: &mut Response) -> Result<Vec<u8>, Trouble> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if body.len() + chunk.len() > LONGEST {
                let what = format!("{} answered with more than {LONGEST} bytes", self.base_url);
                return Err(Trouble::failure(what));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn broken(&self, error: &reqwest::Error) -> Trouble {
        let what = if error.is_connect() { "cannot be reached" } else { "broke off" };
        Trouble::failure(format!("the daemon at {} {what}", self.base_url))
            .hint("is `lf serve` running there?")
    }

    fn refused(&self, status: StatusCode, path: &str, answer: &Value) -> Trouble {
        match answer["message"].as_str().or(answer["error"]["message"].as_str()) {
            Some(message) => Trouble::failure(message.to_owned()),
            None => {
                let what = format!("{}{path} answered with status {status} and no JSON", self.base_url);
                Trouble::failure(what).hint("is it an `lf serve` of this version?")
            }
        }
    }
}
