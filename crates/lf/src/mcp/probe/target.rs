//! The server that is meant: of the project, or any at a URL.

use std::sync::Arc;

use lf_core::project::{Auth, HttpServer, OAuthClient, Transport};
use lf_core::secret::shown_url;
use lf_core::{McpServer, Project, Secret};
use lf_mcp::Consent;

use crate::args::{Probe, ProbeAccess, RemoteTransport};
use crate::exit::Trouble;
use crate::mcp::known;
use crate::mcp::login::Terminal;

pub(super) fn server(project: Option<&Project>, options: &Probe) -> Result<McpServer, Trouble> {
    let mut server = match (is_url(&options.target), project) {
        (true, _) => at_url(options),
        (false, Some(project)) => of_project(project, &options.target)?,
        (false, None) => return Err(Trouble::usage(format!("`{}` is no URL", options.target))),
    };
    if let Some(protocol) = options.protocol {
        server.protocol = protocol;
    }
    if let Some(timeout) = options.timeout {
        server.timeout = timeout;
        server.max_timeout = timeout * McpServer::TOTAL;
        server.startup_timeout = timeout;
    }
    let auth = auth(&options.access)?;
    let headers =
        options.headers.iter().map(|header| header_of(header.expose())).collect::<Result<Vec<_>, _>>()?;
    match &mut server.transport {
        Transport::Http(http) | Transport::Sse(http) => {
            http.headers
                .retain(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
            http.headers.extend(headers);
            http.auth = auth.or(http.auth.take());
        }
        Transport::Stdio(_) if headers.is_empty() => {}
        Transport::Stdio(_) => {
            return Err(Trouble::usage("`--header` has no effect with transport `stdio`".to_owned()));
        }
    }
    Ok(server)
}

/// Whether a project is needed to know what is meant.
pub(crate) fn is_url(target: &str) -> bool {
    target.starts_with("http://") || target.starts_with("https://")
}

fn at_url(options: &Probe) -> McpServer {
    let http = HttpServer::new(&options.target);
    let transport = match options.transport {
        RemoteTransport::Http => Transport::Http(http),
        RemoteTransport::Sse => Transport::Sse(http),
    };
    // somebody waits for it: connecting takes no longer than a call
    let startup_timeout = McpServer::TIMEOUT;
    McpServer { startup_timeout, ..McpServer::new(shown_url(&options.target), transport) }
}

fn of_project(project: &Project, name: &str) -> Result<McpServer, Trouble> {
    known(project, name)?;
    match project.servers.get(name) {
        Some(Ok(server)) => Ok(McpServer::clone(server)),
        Some(Err(disabled)) => {
            Err(Trouble::usage(format!("MCP server `{name}` cannot be used: {}", disabled.reason)))
        }
        None => Err(Trouble::usage(format!("Server not found: `{name}` is not in `mcp.servers`"))),
    }
}

/// Who agrees to an access that the server wants.
pub(crate) fn consent(options: &Probe) -> Consent {
    match &options.access {
        ProbeAccess { follow_authorization: true, .. } => Consent::Follow,
        ProbeAccess { login: true, .. } => Consent::Person(Arc::new(Terminal::new(false))),
        _ => Consent::Absent,
    }
}

/// What the command line says of it; `None` leaves it to the file.
fn auth(access: &ProbeAccess) -> Result<Option<Auth>, Trouble> {
    let is_said = access.client_id.is_some() || access.client_metadata.is_some();
    if !is_said && !access.login && !access.follow_authorization {
        return Ok(None);
    }
    let read = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).map_err(|error| {
            Trouble::usage(format!("the private key {} cannot be read: {error}", path.display()))
        })
    };
    let client = OAuthClient {
        client_id: access.client_id.clone(),
        client_secret: access.client_secret.clone(),
        private_key: access.private_key.as_ref().map(read).transpose()?.as_deref().map(Secret::from),
        metadata_url: access.client_metadata.clone(),
        ..OAuthClient::default()
    };
    Ok(Some(match access.client_credentials {
        true => Auth::ClientCredentials(client),
        false => Auth::OAuth(client),
    }))
}

fn header_of(text: &str) -> Result<(String, Secret), Trouble> {
    let wrong = || Trouble::usage("a header is written `Name: value`".to_owned());
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) || value.chars().any(char::is_control) {
        return Err(wrong());
    }
    Ok((name.to_owned(), Secret::from(value.trim())))
}
