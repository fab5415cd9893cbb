//! What kind of network an address is in: what may be dialled is decided by it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Public,
    Private,
    /// Link-local, and the other addresses at which clouds tell their machines secrets.
    LinkLocal,
    Loopback,
    /// Nothing that can be dialled to good purpose: multicast, reserved, documentation.
    Nowhere,
}

impl Place {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    /// Of what a URL has for a host, as URL parsers write it: lowercase, IPv6 in brackets. `None` for a name that has to
    /// be looked up; the names of this machine are known.
    pub fn of_host(host: &str) -> Option<Self> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::of(address));
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        (name == "localhost" || name.ends_with(".localhost")).then_some(Self::Loopback)
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        match (a, b, c, d) {
            // where Oracle, Azure and Alibaba have what others have at 169.254.169.254
            (192, 0, 0, 192) | (168, 63, 129, 16) | (100, 100, 100, 200) | (169, 254, ..) => Self::LinkLocal,
            // `0.0.0.0` is dialled as this machine
            (127, ..) | (0, 0, 0, 0) => Self::Loopback,
            (10, ..) | (172, 16..=31, ..) | (192, 168, ..) | (100, 64..=127, ..) => Self::Private,
            (0 | 224..=255, ..) | (192, 0, 0 | 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => Self::Nowhere,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let embedded = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Self::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Self::Loopback,
            // an IPv4 address that a network translates to (RFC 6052)
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
            // the same within one network (RFC 8215), in 6to4 (RFC 3056), and as it was written before both
            [0x64, 0xff9b, 1, .., high, low] | [0x2002, high, low, ..] | [0, 0, 0, 0, 0, 0, high, low]
                if embedded(high, low) == Self::LinkLocal =>
            {
                Self::LinkLocal
            }
            // metadata of Amazon's instances and pods, and of Google's
            [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254 | 0x23] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
                Self::LinkLocal
            }
            [first, ..] if first & 0xfe00 == 0xfc00 => Self::Private,
            [first, ..] if first & 0xffc0 == 0xfe80 => Self::LinkLocal,
            // global unicast, without documentation and 6to4
            [0x2001, 0xdb8, ..] | [0x2002, ..] => Self::Nowhere,
            [first, ..] if first & 0xe000 == 0x2000 => Self::Public,
            _ => Self::Nowhere,
        }
    }

    /// As in "its address is …".
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::LinkLocal => "link-local or a cloud's metadata",
            Self::Loopback => "of this machine",
            Self::Nowhere => "of no network",
        }
    }
}

/// How far the word of whoever named a host reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reach {
    /// The operator's, or a person's who approved it: this machine and its network too.
    #[default]
    Named,
    /// Anybody's: public addresses, and what the operator lists.
    Public,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_in_every_way_it_is_written_in_six_bytes() {
        let cases = [
            ("127.0.0.1", Place::Loopback),
            ("0.0.0.0", Place::Loopback),
            ("[::]", Place::Loopback),
            ("[::1]", Place::Loopback),
            ("[::ffff:127.0.0.1]", Place::Loopback),
            ("LocalHost.", Place::Loopback),
            ("a.localhost", Place::Loopback),
            ("169.254.169.254", Place::LinkLocal),
            ("[::ffff:a9fe:a9fe]", Place::LinkLocal),
            ("[64:ff9b::a9fe:a9fe]", Place::LinkLocal),
            ("[fe80::1]", Place::LinkLocal),
            ("[fd00:ec2::254]", Place::LinkLocal),
            ("[fd00:ec2::23]", Place::LinkLocal),
            ("[fd20:ce::254]", Place::LinkLocal),
            ("192.0.0.192", Place::LinkLocal),
            ("[2002:a9fe:a9fe::]", Place::LinkLocal),
            ("[::a9fe:a9fe]", Place::LinkLocal),
            ("[64:ff9b:1::a9fe:a9fe]", Place::LinkLocal),
            ("100.100.100.200", Place::LinkLocal),
            ("168.63.129.16", Place::LinkLocal),
            ("10.1.2.3", Place::Private),
            ("100.64.0.1", Place::Private),
            ("[fd12::1]", Place::Private),
            ("[2002:7f00:1::]", Place::Nowhere),
            ("[::127.0.0.1]", Place::Nowhere),
            ("224.0.0.1", Place::Nowhere),
            ("8.8.8.8", Place::Public),
            ("[2606:4700::1111]", Place::Public),
        ];
        for (host, place) in cases {
            assert_eq!(Place::of_host(host), Some(place), "{host}");
        }
        assert_eq!(Place::of_host("api.example.com"), None);
    }
}
