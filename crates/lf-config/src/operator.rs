//! `operator.yaml`, in the data directory: what the operator says, whatever the projects ask for.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use lf_core::operator::{Grant, Listed, Operator};
use url::Url;

use crate::diagnostic::{Report, Source, quote};
use crate::load::{LoadError, read};
use crate::node::{self, Node, Value};
use crate::variables::is_variable;

/// Its name in the data directory.
pub const OPERATOR_FILE: &str = "operator.yaml";

/// What the file of the data directory says; nothing where there is none.
///
/// # Errors
/// When it cannot be read or is wrong: then nobody knows what may go where.
pub fn operator(data_dir: &Path) -> Result<Operator, LoadError> {
    // restrictions that nobody reads are none
    let misnamed = data_dir.join("operator.yml");
    if misnamed.symlink_metadata().is_ok() {
        let source = Source { path: misnamed, text: String::new() };
        let mut report = Report::new(&source);
        report
            .general_error("`operator.yml` in the data directory is not read")
            .hint("call it `operator.yaml`");
        return Err(report.reject().into());
    }
    let path = data_dir.join(OPERATOR_FILE);
    let text = match read(&path) {
        Ok(text) => text,
        Err(LoadError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Operator::default());
        }
        Err(error) => return Err(error),
    };
    let source = Source { path, text };
    let mut report = Report::new(&source);
    // a file of comments says nothing
    let root = node::read(&mut report).unwrap_or_else(|| Node::map(Vec::new(), 0..0));
    let operator = content(&root, &mut report);
    if report.has_errors() { Err(report.reject().into()) } else { Ok(operator) }
}

fn content(root: &Node, report: &mut Report<'_>) -> Operator {
    let mut operator = Operator::default();
    if root.entries().is_empty() && !root.is_null() && root.kind() != "a mapping" {
        report.error(&root.span, "this is not a mapping").hint("it has `secrets` and `egress`");
    }
    for entry in root.entries() {
        match entry.key.as_str() {
            "secrets" => {
                for variable in entry.node.entries() {
                    if !is_variable(&variable.key) {
                        let message = format!("{} is no name of a variable", quote(&variable.key));
                        report
                            .error(&variable.key_span, message)
                            .hint("letters, digits and `_`; there are no patterns");
                    }
                    let grants = texts(&variable.node, report).filter_map(|item| grant(item, report));
                    let grants = grants.collect();
                    operator.secrets.insert(variable.key.clone(), grants);
                }
                if entry.node.entries().is_empty() && !entry.node.is_null() {
                    let error = report.error(&entry.node.span, "`secrets` maps variables to hosts");
                    error.hint("such as `GITHUB_TOKEN: [api.github.com]`");
                }
            }
            "egress" => {
                let listed = texts(&entry.node, report).filter_map(|item| listed(item, report));
                operator.egress = listed.collect();
            }
            other => {
                let error = report.error(&entry.key_span, format!("unknown key {}", quote(other)));
                error.hint("there are: `secrets`, `egress`");
            }
        }
    }
    operator
}

/// The items of a list of words.
fn texts<'n>(list: &'n Node, report: &mut Report<'_>) -> std::vec::IntoIter<&'n Node> {
    let is_list = matches!(list.value, Value::List(_)) || list.is_null();
    if !is_list {
        report.error(&list.span, "this must be a list").hint("write it in brackets: `[api.example.com]`");
    }
    list.items().iter().collect::<Vec<_>>().into_iter()
}

fn grant(item: &Node, report: &mut Report<'_>) -> Option<Grant> {
    let text = item.as_str().unwrap_or_default();
    match text {
        "commands" => return Some(Grant::Commands),
        "texts" => return Some(Grant::Texts),
        _ => {}
    }
    if let Some(host) = text.strip_prefix("postgres://").filter(|host| is_database(host)) {
        return Some(Grant::Origin(format!("postgres://{}", host.to_ascii_lowercase())));
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&url).ok().filter(|url| {
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare && url.username().is_empty()
    });
    if text.is_empty() || url.is_none() {
        let error = report.error(&item.span, format!("{} is no place for a secret", quote(text)));
        error.hint(
            "`api.example.com` (https), `http://10.0.0.5:8080`, `postgres://db:5432`, `commands` or `texts`",
        );
    }
    url.map(|url| Grant::Origin(url.origin().ascii_serialization()))
}

/// `host:port`, as it is compared.
fn is_database(host: &str) -> bool {
    let port = host.rsplit_once(':').map(|(_, port)| port);
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[],".contains(&byte));
    is_host && port.is_some_and(|port| port.parse::<u16>().is_ok())
}

fn listed(item: &Node, report: &mut Report<'_>) -> Option<Listed> {
    let text = item.as_str().unwrap_or_default();
    let found = match text.split_once('/') {
        Some((net, bits)) => net
            .parse()
            .ok()
            .zip(bits.parse().ok())
            .filter(|(net, bits)| *bits <= width(*net))
            .and_then(|(net, bits)| canonical(net, bits)),
        None => text.parse::<IpAddr>().ok().map(|address| {
            let address = address.to_canonical();
            (address, width(address))
        }),
    };
    if let Some((net, bits)) = found {
        return Some(Listed::Net(net, bits));
    }
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if text.is_empty() || !is_name {
        let error = report.error(&item.span, format!("{} is no host and no network", quote(text)));
        error.hint("such as `wiki.internal`, `10.0.0.5` or `10.20.0.0/16`");
        return None;
    }
    Some(Listed::Host(text.trim_end_matches('.').to_ascii_lowercase()))
}

/// Networks of IPv4 as such: addresses are compared as what they stand for.
fn canonical(net: IpAddr, bits: u8) -> Option<(IpAddr, u8)> {
    match net.to_canonical() {
        found if found == net => Some((net, bits)),
        found => bits.checked_sub(96).map(|bits| (found, bits)),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(text: &str) -> Result<Operator, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(OPERATOR_FILE), text).unwrap();
        operator(directory.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_says_where_secrets_go_and_what_is_reached() {
        let text = "secrets:\n  KEY: [api.example.com, 'http://10.0.0.5:8080', 'postgres://db:5432', commands, texts]\n  NONE: []\n\
                    egress: [10.20.0.0/16, fd12::1, Wiki.Internal]\n";
        let operator = read_as(text).unwrap();
        let origin = |text: &str| Grant::Origin(text.to_owned());
        let grants = [
            origin("https://api.example.com"),
            origin("http://10.0.0.5:8080"),
            origin("postgres://db:5432"),
            Grant::Commands,
            Grant::Texts,
        ];
        assert_eq!(operator.secrets["KEY"], grants);
        assert_eq!(operator.secrets["NONE"], []);
        let net = |net: &str, bits| Listed::Net(net.parse().unwrap(), bits);
        let egress = [net("10.20.0.0", 16), net("fd12::1", 128), Listed::Host("wiki.internal".to_owned())];
        assert_eq!(operator.egress, egress);
        assert_eq!(read_as("# nothing yet\n"), Ok(Operator::default()));
        let mapped = read_as("egress: ['::ffff:10.0.0.0/104', '::ffff:10.0.0.1']\n").unwrap();
        assert_eq!(mapped.egress, [net("10.0.0.0", 8), net("10.0.0.1", 32)]);
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(super::operator(nowhere.path()).unwrap(), Operator::default());
    }

    #[test]
    fn a_file_of_another_ending_is_not_overlooked() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("operator.yml"), "egress: []\n").unwrap();
        let error = operator(directory.path()).unwrap_err().to_string();
        assert!(error.contains("call it `operator.yaml`"), "{error}");
    }

    #[test]
    fn what_it_says_wrongly_is_told_with_its_place() {
        for (text, told) in [
            ("secret: {}\n", "unknown key `secret`"),
            ("secrets: {A: api.example.com}\n", "this must be a list"),
            ("secrets: {A: ['https://x/path']}\n", "no place for a secret"),
            ("secrets: {A: ['ftp://x']}\n", "no place for a secret"),
            ("secrets: {A: {b: c}}\n", "this must be a list"),
            ("secrets: {AWS_*: []}\n", "`AWS_*` is no name of a variable"),
            ("secrets: {' GITHUB_TOKEN': []}\n", "no name of a variable"),
            ("egress: {a: b}\n", "this must be a list"),
            ("egress: ['::ffff:10.0.0.0/64']\n", "no host and no network"),
            ("secrets: nothing\n", "maps variables to hosts"),
            ("egress: [10.0.0.0/33]\n", "no host and no network"),
            ("egress: ['a b']\n", "no host and no network"),
            ("[1]\n", "not a mapping"),
            ("secrets: {\n", "operator.yaml:"),
        ] {
            let error = read_as(text).unwrap_err();
            assert!(error.contains(told) && error.contains("operator.yaml:"), "{text}: {error}");
        }
    }
}
