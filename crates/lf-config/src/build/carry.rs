//! What an entry takes out of the environment, and where that goes.

use lf_core::place::Place;
use lf_core::project::{Asked, Auth, Carried, Destination, Entry, HttpServer, Transport};
use lf_core::{Model, Secret};
use url::Url;

use super::{Context, provider};
use crate::variables::Used;

/// Keys of `auth` that hold what is sent; the others name things.
const OF_AUTH: [&str; 3] = ["token", "client_secret", "private_key"];

/// Parameters in the query of a database's URL that do not say where it is.
const OF_NO_HOST: [&str; 7] =
    ["sslmode", "user", "password", "dbname", "application_name", "connect_timeout", "channel_binding"];

/// What a server's entry takes along; `transport` is what became of it.
pub(super) fn by_server(name: &str, transport: &Transport, used: &[Used], context: &Context<'_>) {
    let entry = || Entry::Server(name.to_owned());
    let mut carried = context.carried.borrow_mut();
    match transport {
        Transport::Stdio(stdio) => {
            let command = || Destination::Command(name.to_owned());
            let to = |used: &Used| match used.key.as_str() {
                // who may read or change these decides what it can do, as what it is told does; nobody else is told
                "args" | "env" | "sandbox" => command(),
                _ => Destination::Texts,
            };
            carried.extend(used.iter().map(|used| written(entry(), used, to(used), true)));
            carried.extend(stdio.inherit_env.iter().map(|variable| Carried {
                entry: entry(),
                variable: Some(variable.clone()),
                to: command(),
                asked: Asked::Written,
                is_set: true,
                is_told: true,
            }));
        }
        Transport::Http(http) | Transport::Sse(http) => {
            let is_told = is_told(used);
            for used in used {
                let to = |to| written(entry(), used, to, is_told);
                let is_sent = OF_AUTH.contains(&used.leaf.as_str());
                match used.key.as_str() {
                    "headers" | "base_url" => carried.push(to(host(&http.base_url))),
                    "auth" if is_sent || used.leaf == "issuer" => {
                        carried.push(to(host(&http.base_url)));
                        // it has what proves who the client is, and the file says who it is
                        let issuer = issuer(http).filter(|_| used.leaf != "token");
                        carried.extend(issuer.map(|issuer| to(host(issuer))));
                    }
                    _ => carried.push(to(Destination::Texts)),
                }
            }
            carried.extend(
                connection(entry(), &http.base_url, Asked::Written, is_told).filter(|_| is_whole(used)),
            );
        }
    }
}

fn issuer(http: &HttpServer) -> Option<&str> {
    match http.auth.as_ref()? {
        Auth::Bearer(_) => None,
        Auth::OAuth(client) | Auth::ClientCredentials(client) => client.issuer.as_deref(),
    }
}

/// Whether no value of a variable says where the entry's requests go.
fn is_told(used: &[Used]) -> bool {
    let names = |used: &Used| used.key == "base_url" || (used.key == "auth" && used.leaf == "issuer");
    !used.iter().any(|used| names(used) && used.value.is_some())
}

/// Whether the URL is the one that is meant.
fn is_whole(used: &[Used]) -> bool {
    !used.iter().any(|used| used.key == "base_url" && used.is_missing)
}

/// What variables hold of `base_url`, which is not shown; of what is a URL itself, the host is.
pub(super) fn in_url(used: &[Used]) -> Vec<Secret> {
    let values = used.iter().filter(|used| used.key == "base_url").filter_map(|used| used.value.as_ref());
    let hidden = values.map(|value| match value.expose().split_once("://") {
        Some((_, rest)) => {
            Secret::from(rest.find('/').map_or("", |at| &rest[at + 1..]).trim_end_matches('/'))
        }
        None => value.clone(),
    });
    hidden.collect()
}

/// What a prompt set takes along, to whoever asks for it.
pub(super) fn by_prompts(name: &str, used: &[Used], context: &Context<'_>) {
    let entry = || Entry::Prompts(name.to_owned());
    let carried = used.iter().map(|used| written(entry(), used, Destination::Texts, true));
    context.carried.borrow_mut().extend(carried);
}

/// What `storage` takes along to its database, and the database itself: conversations go there.
pub(super) fn by_storage(url: &str, used: &[Used], context: &Context<'_>) {
    let is_told = used.iter().all(|used| used.value.is_none());
    let to = Destination::Host(database(url));
    let mut carried = context.carried.borrow_mut();
    carried.extend(used.iter().map(|used| written(Entry::Storage, used, to.clone(), is_told)));
    carried.push(Carried {
        entry: Entry::Storage,
        variable: None,
        to,
        asked: Asked::Written,
        is_set: true,
        is_told,
    });
}

/// Where a URL of Postgres leads, cut as its clients cut it: the first `@` ends the password, and the query can name
/// other hosts.
fn database(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let (hosts, after) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let query = after.split_once('?').map_or("", |(_, query)| query);
    let names_no_host =
        |pair: &str| pair.is_empty() || OF_NO_HOST.contains(&pair.split('=').next().unwrap_or(pair));
    let others: Vec<&str> = query.split('&').filter(|pair| !names_no_host(pair)).collect();
    let port = if hosts.rsplit(']').next().is_some_and(|end| end.contains(':')) { "" } else { ":5432" };
    let others = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    format!("postgres://{}{port}{others}", hosts.to_ascii_lowercase())
}

/// Where a model's key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// The file has it, or names it.
    Written,
    /// One of its provider's usual variables, if that is set.
    Usual(Option<&'static str>),
}

/// What a model's entry takes along, and its prompts.
pub(super) fn by_model<'u>(
    model: &Model,
    key: Key,
    used: &'u [Used],
    of_prompts: impl Iterator<Item = &'u Used>,
    context: &Context<'_>,
) {
    let entry = || Entry::Model(model.name.clone());
    let usual = provider::base_url(model.provider, |name| context.variables.usual_of_process(name));
    let is_told = is_told(used);
    let is_usual = !usual.is_empty() && host(&usual) == host(&model.base_url);
    let is_own = |variable: &str| provider::variables(model.provider).contains(&variable);
    let mut carried = context.carried.borrow_mut();
    for used in used {
        let to = match used.key.as_str() {
            "api_key" | "base_url" if model.base_url.is_empty() => continue,
            "api_key" | "base_url" => host(&model.base_url),
            _ => Destination::Texts,
        };
        let mut one = written(entry(), used, to, is_told);
        if used.key == "api_key" && is_usual && is_own(&used.variable) {
            one.asked = Asked::Usual;
        }
        carried.push(one);
    }
    carried.extend(of_prompts.map(|used| written(entry(), used, Destination::Texts, true)));
    let asked = if is_usual { Asked::Usual } else { Asked::Implied };
    if let Key::Usual(set) = key {
        carried.extend(provider::variables(model.provider).iter().map(|variable| Carried {
            entry: entry(),
            variable: Some((*variable).to_owned()),
            to: host(&model.base_url),
            asked,
            is_set: set == Some(*variable),
            is_told,
        }));
    }
    let asked = if is_usual { Asked::Usual } else { Asked::Written };
    carried.extend(connection(entry(), &model.base_url, asked, is_told).filter(|_| is_whole(used)));
}

fn written(entry: Entry, used: &Used, to: Destination, is_told: bool) -> Carried {
    let (variable, is_set) = (Some(used.variable.clone()), used.value.is_some());
    Carried { entry, variable, to, asked: Asked::Written, is_set, is_told }
}

fn host(url: &str) -> Destination {
    // what is no URL is an error of the file, or disables the entry
    let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
    Destination::Host(origin.unwrap_or_else(|_| "nowhere".to_owned()))
}

/// The host itself. One that is not the public network's, by its own words, has to be permitted before anybody asks for
/// it; any other name leads to public addresses, and further where it is permitted.
fn connection(entry: Entry, url: &str, asked: Asked, is_told: bool) -> Option<Carried> {
    let parsed = Url::parse(url).ok()?;
    let name = parsed.host_str()?;
    let is_public = match Place::of_host(name) {
        Some(place) => place == Place::Public,
        None => !is_local_name(name),
    };
    let asked = if asked == Asked::Written && is_public { Asked::Implied } else { asked };
    Some(Carried { entry, variable: None, to: host(url), asked, is_set: true, is_told })
}

/// Names that only a private network has: of one word, as among containers, and below what RFC 6762, RFC 8375 and ICANN
/// keep for such networks, or what is used so.
fn is_local_name(name: &str) -> bool {
    const ENDS: [&str; 9] =
        ["local", "internal", "lan", "home", "corp", "intranet", "private", "localdomain", "arpa"];
    match name.trim_end_matches('.').rsplit_once('.') {
        None => true,
        Some((_, end)) => ENDS.iter().any(|local| local.eq_ignore_ascii_case(end)),
    }
}
