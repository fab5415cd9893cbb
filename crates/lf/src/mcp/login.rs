//! `lf mcp login` and `lf mcp logout`: a person's access to a remote server.

use std::io::{BufRead as _, IsTerminal as _};
use std::sync::Arc;

use lf_core::tool::BoxFuture;
use lf_core::{McpServer, Project};
use lf_mcp::{Consent, Failure, LoggedOut, Person, ServerState};
use lf_server::App;
use serde_json::json;
use tokio::sync::{Mutex, mpsc};

use super::{known, printable_lines};
use crate::args::{Login, Logout};
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;

/// Lines that were typed and not looked at.
const TYPED: usize = 4;

pub(crate) async fn login(app: &App, project: &Project, options: &Login) -> Result<Exit, Trouble> {
    let server = server(project, &options.server)?;
    let consent = match options.follow_authorization {
        true => Consent::Follow,
        false => Consent::Person(Arc::new(Terminal::new(options.no_browser))),
    };
    let logged_in = app.pool().login(&server, &consent, &options.scopes).await.map_err(|failure| {
        let message = format!("server `{}` {}", options.server, printable_lines(&failure.reason));
        hinted(Trouble::failure(message), &failure)
    })?;
    let scopes = printable(&logged_in.scopes.join(" "));
    if options.json {
        print_line(json!({
            "server": options.server,
            "issuer": logged_in.issuer,
            "scopes": logged_in.scopes,
            "expires_in": logged_in.expires_in,
            "renewable": logged_in.is_renewable,
        }))?;
    } else {
        let mut line = format!("{}: logged in at {}", options.server, printable(&logged_in.issuer));
        if !scopes.is_empty() {
            line.push_str(&format!(", for {scopes}"));
        }
        match (logged_in.expires_in, logged_in.is_renewable) {
            (_, true) => line.push_str("; the token is renewed by itself"),
            (Some(seconds), false) => line.push_str(&format!("; the token expires in {} min", seconds / 60)),
            (None, false) => {}
        }
        print_line(line)?;
    }
    answers(app, &options.server, server).await
}

/// Whether the server takes the token.
async fn answers(app: &App, name: &str, server: Arc<McpServer>) -> Result<Exit, Trouble> {
    let reports = app.pool().tools([(name.to_owned(), Ok(server))]).probe().await;
    for report in &reports {
        match &report.state {
            ServerState::Ready { tools, .. } => anstream::eprintln!("{name} answers: {tools} tools"),
            _ => {
                let error = report.last_error().unwrap_or("no answer");
                anstream::eprintln!("but it cannot be used: {}", printable_lines(error));
                return Ok(Exit::Failure);
            }
        }
    }
    Ok(Exit::Success)
}

pub(crate) async fn logout(app: &App, project: &Project, options: &Logout) -> Result<Exit, Trouble> {
    let server = server(project, &options.server)?;
    let name = &options.server;
    let logged_out = app.pool().logout(&server).await.map_err(|failure| {
        let message = format!("server `{name}` {}", printable_lines(&failure.reason));
        hinted(Trouble::failure(message), &failure)
    })?;
    match logged_out {
        LoggedOut::Nothing => print_line(format_args!("{name}: nobody was logged in"))?,
        LoggedOut::Revoked => print_line(format_args!("{name}: logged out, and the token is revoked"))?,
        LoggedOut::Forgotten => {
            print_line(format_args!("{name}: logged out"))?;
            anstream::eprintln!(
                "its authorization server revokes no tokens: a copy would hold until it expires"
            );
        }
        LoggedOut::NotRevoked(reason) => {
            print_line(format_args!("{name}: logged out here"))?;
            anstream::eprintln!(
                "the token is not revoked, and holds until it expires: {}",
                printable_lines(&reason)
            );
            return Ok(Exit::Failure);
        }
    }
    Ok(Exit::Success)
}

fn server(project: &Project, name: &str) -> Result<Arc<McpServer>, Trouble> {
    known(project, name)?;
    match &project.servers[name] {
        Ok(server) => Ok(server.clone()),
        Err(disabled) => Err(Trouble::usage(format!("server `{name}` cannot be used: {}", disabled.reason))),
    }
}

fn hinted(trouble: Trouble, failure: &Failure) -> Trouble {
    match &failure.hint {
        Some(hint) => trouble.hint(printable_lines(hint)),
        None => trouble,
    }
}

/// The person at the terminal.
pub(super) struct Terminal {
    no_browser: bool,
    /// Lines that are typed; none where nothing can be.
    typed: Mutex<Option<mpsc::Receiver<String>>>,
}

impl Terminal {
    pub(super) fn new(no_browser: bool) -> Self {
        let typed = std::io::stdin().is_terminal().then(|| {
            let (sender, receiver) = mpsc::channel(TYPED);
            // blocks until somebody types; the program does not wait for it in the end
            std::thread::spawn(move || {
                let lines = std::io::stdin().lock().lines().map_while(Result::ok);
                lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
            });
            receiver
        });
        Self { no_browser, typed: Mutex::new(typed) }
    }
}

impl Person for Terminal {
    fn visit(&self, url: &str) {
        if self.no_browser {
            // for whoever reads it to open it elsewhere
            let _ = print_line(url);
        } else {
            let environment: Vec<(String, String)> = crate::environment();
            let done = if lf_mcp::open_in_browser(url, &environment) {
                "if no browser opened, visit"
            } else {
                "visit"
            };
            anstream::eprintln!("to agree, {done}:\n\n  {url}\n");
        }
        if std::io::stdin().is_terminal() {
            anstream::eprintln!(
                "a browser on another machine ends at an address that it cannot open: paste that here"
            );
        }
    }

    fn tell(&self, text: &str) {
        anstream::eprintln!("{text}");
    }

    fn pasted(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let mut typed = self.typed.lock().await;
            match typed.as_mut() {
                Some(lines) => match lines.recv().await {
                    Some(line) => line,
                    None => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        })
    }
}
