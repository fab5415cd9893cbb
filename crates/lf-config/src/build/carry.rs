//! What an entry takes out of the environment, and where that goes.

use lf_core::Model;
use lf_core::place::Place;
use lf_core::project::{Asked, Carried, Destination, Entry, Transport};
use lf_core::secret::shown_url;
use url::Url;

use super::{Context, provider};
use crate::variables::Used;

/// Keys of `auth` that hold what is sent; the others name things.
const OF_AUTH: [&str; 3] = ["token", "client_secret", "private_key"];

/// What a server's entry takes along; `transport` is what became of it.
pub(super) fn by_server(name: &str, transport: &Transport, used: &[Used], context: &Context<'_>) {
    let entry = || Entry::Server(name.to_owned());
    let mut carried = context.carried.borrow_mut();
    match transport {
        Transport::Stdio(stdio) => {
            let command = || Destination::Command(name.to_owned());
            let to = |used: &Used| match used.key.as_str() {
                "args" | "env" => command(),
                _ => Destination::Texts,
            };
            carried.extend(used.iter().map(|used| written(entry(), used, to(used))));
            carried.extend(stdio.inherit_env.iter().map(|variable| Carried {
                entry: entry(),
                variable: Some(variable.clone()),
                to: command(),
                asked: Asked::Written,
                is_set: true,
            }));
        }
        Transport::Http(http) | Transport::Sse(http) => {
            let to = |used: &Used| match used.key.as_str() {
                "headers" => Some(host(&http.base_url)),
                "auth" if OF_AUTH.contains(&used.leaf.as_str()) => Some(host(&http.base_url)),
                "base_url" => in_url(&http.base_url, used),
                _ => Some(Destination::Texts),
            };
            carried.extend(used.iter().filter_map(|used| Some(written(entry(), used, to(used)?))));
            carried.extend(connection(entry(), &http.base_url, Asked::Written));
        }
    }
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
    used: impl Iterator<Item = &'u Used>,
    of_prompts: impl Iterator<Item = &'u Used>,
    context: &Context<'_>,
) {
    let entry = || Entry::Model(model.name.clone());
    let usual = provider::base_url(model.provider, context.variables);
    let is_usual = !usual.is_empty() && host(&usual) == host(&model.base_url);
    let is_own = |variable: &str| provider::variables(model.provider).contains(&variable);
    let mut carried = context.carried.borrow_mut();
    for used in used {
        let to = match used.key.as_str() {
            "api_key" if model.base_url.is_empty() => continue,
            "api_key" => host(&model.base_url),
            "base_url" => match in_url(&model.base_url, used) {
                Some(to) => to,
                None => continue,
            },
            _ => Destination::Texts,
        };
        let mut one = written(entry(), used, to);
        if used.key == "api_key" && is_usual && is_own(&used.variable) {
            one.asked = Asked::Usual;
        }
        carried.push(one);
    }
    carried.extend(of_prompts.map(|used| written(entry(), used, Destination::Texts)));
    let asked = if is_usual { Asked::Usual } else { Asked::Implied };
    if let Key::Usual(set) = key {
        carried.extend(provider::variables(model.provider).iter().map(|variable| Carried {
            entry: entry(),
            variable: Some((*variable).to_owned()),
            to: host(&model.base_url),
            asked,
            is_set: set == Some(*variable),
        }));
    }
    let asked = if is_usual { Asked::Usual } else { Asked::Written };
    carried.extend(connection(entry(), &model.base_url, asked));
}

fn written(entry: Entry, used: &Used, to: Destination) -> Carried {
    let (variable, is_set) = (Some(used.variable.clone()), used.value.is_some());
    Carried { entry, variable, to, asked: Asked::Written, is_set }
}

/// To the host where it stands in a part of the URL that is never shown. `None` where there is no value to be looked for.
fn in_url(url: &str, used: &Used) -> Option<Destination> {
    let is_shown = shown_url(url).contains(used.value.as_ref()?.expose());
    Some(if is_shown { Destination::Texts } else { host(url) })
}

fn host(url: &str) -> Destination {
    // what is no URL is an error of the file, or disables the entry
    let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
    Destination::Host(origin.unwrap_or_else(|_| "nowhere".to_owned()))
}

/// A host that is not the public network's, by its own words, or the provider's own.
fn connection(entry: Entry, url: &str, asked: Asked) -> Option<Carried> {
    let parsed = Url::parse(url).ok()?;
    let is_public = Place::of_host(parsed.host_str()?).is_none_or(|place| place == Place::Public);
    let carried = || Carried { entry, variable: None, to: host(url), asked, is_set: true };
    (asked == Asked::Usual || !is_public).then(carried)
}
