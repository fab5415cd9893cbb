//! What the operator of a machine says, whatever the projects on it ask for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::project::{Carried, Destination};

/// The content of `operator.yaml` in the data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operator {
    /// Variable → the only places it goes to, from every project.
    pub secrets: BTreeMap<String, Vec<Grant>>,
    /// Hosts and networks, private ones too, that every project may connect to.
    pub egress: Vec<Listed>,
}

/// A place that a variable may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Scheme, host and port.
    Origin(String),
    /// `commands`: arguments and environment of every command that may run.
    Commands,
    /// `texts`: what models are told and clients are shown.
    Texts,
}

/// A part of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// With the length of the prefix in bits.
    Net(IpAddr, u8),
    /// Lowercase.
    Host(String),
}

impl Operator {
    /// Whether it is said that this may go there; `None` where nothing is said of it.
    pub fn says(&self, carried: &Carried) -> Option<bool> {
        match (&carried.variable, &carried.to) {
            (Some(variable), to) => {
                let grants = self.secrets.get(variable)?;
                Some(grants.iter().any(|grant| match (grant, to) {
                    (Grant::Origin(origin), Destination::Host(host)) => origin == host,
                    (Grant::Commands, Destination::Command(_)) | (Grant::Texts, Destination::Texts) => true,
                    _ => false,
                }))
            }
            (None, Destination::Host(origin)) => self.lists_host(host_of(origin)).then_some(true),
            (None, _) => None,
        }
    }

    /// Whether this host is listed, by name or as an address.
    pub fn lists_host(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches([']', '.']);
        match bare.parse() {
            Ok(address) => self.lists(address),
            Err(_) => self
                .egress
                .iter()
                .any(|listed| matches!(listed, Listed::Host(name) if name.eq_ignore_ascii_case(bare))),
        }
    }

    /// Whether an address is in a listed network.
    pub fn lists(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.egress
            .iter()
            .any(|listed| matches!(listed, Listed::Net(net, bits) if is_in(address, *net, *bits)))
    }
}

/// The host of an origin such as `http://[::1]:80`.
fn host_of(origin: &str) -> &str {
    let rest = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    match rest.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => rest,
    }
}

fn is_in(address: IpAddr, net: IpAddr, bits: u8) -> bool {
    let (address, net, width): (u128, u128, u32) = match (address, net) {
        (IpAddr::V4(address), IpAddr::V4(net)) => (address.to_bits().into(), net.to_bits().into(), 32),
        (IpAddr::V6(address), IpAddr::V6(net)) => (address.to_bits(), net.to_bits(), 128),
        _ => return false,
    };
    let shift = width.saturating_sub(bits.into());
    address.checked_shr(shift).unwrap_or(0) == net.checked_shr(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::{Asked, Entry};

    fn carried(variable: Option<&str>, to: Destination) -> Carried {
        let entry = Entry::Model("m".to_owned());
        Carried {
            entry,
            variable: variable.map(str::to_owned),
            to,
            asked: Asked::Written,
            is_set: true,
            is_told: true,
        }
    }

    #[test]
    fn a_listed_variable_goes_to_the_listed_places_only() {
        let grants = vec![Grant::Origin("https://a.example".to_owned()), Grant::Commands];
        let operator = Operator { secrets: BTreeMap::from([("KEY".to_owned(), grants)]), egress: Vec::new() };
        let to = |origin: &str| Destination::Host(origin.to_owned());
        assert_eq!(operator.says(&carried(Some("KEY"), to("https://a.example"))), Some(true));
        for origin in
            ["http://a.example", "https://a.example:444", "https://a.example.evil", "https://b.a.example"]
        {
            assert_eq!(operator.says(&carried(Some("KEY"), to(origin))), Some(false), "{origin}");
        }
        assert_eq!(operator.says(&carried(Some("KEY"), Destination::Command("x".to_owned()))), Some(true));
        assert_eq!(operator.says(&carried(Some("KEY"), Destination::Texts)), Some(false));
        assert_eq!(operator.says(&carried(Some("OTHER"), to("https://a.example"))), None);
    }

    #[test]
    fn networks_and_hosts_are_listed() {
        let net = |net: &str, bits| Listed::Net(net.parse().unwrap(), bits);
        let egress = vec![net("10.20.0.0", 16), net("fd12::", 32), Listed::Host("wiki.internal".to_owned())];
        let operator = Operator { secrets: BTreeMap::new(), egress };
        for host in ["10.20.255.1", "[::ffff:10.20.0.1]", "[fd12::5]", "WIKI.internal.", "wiki.internal"] {
            assert!(operator.lists_host(host), "{host}");
        }
        for host in ["10.21.0.1", "[fd13::5]", "internal", "a.wiki.internal", "wiki.internal.evil"] {
            assert!(!operator.lists_host(host), "{host}");
        }
        let to = Destination::Host("http://[fd12::5]:8080".to_owned());
        assert_eq!(operator.says(&carried(None, to)), Some(true));
    }
}
