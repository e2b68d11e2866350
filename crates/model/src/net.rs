//! Addresses, prefixes, ports and protocols as they stand in a configuration. Their text form is their serde form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not an address, prefix, MAC address, port range or protocol. The words say what would be right.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NetError {
    /// Neither an IPv4 (dotted decimal) nor an IPv6 (RFC 4291 (2.2)) address.
    #[error("{0:?} is no IP address")]
    Address(String),
    /// The length after the slash is no number, or longer than the address.
    #[error("prefix length {length:?} is not from 0 to {max}")]
    PrefixLength {
        /// The text after the slash.
        length: String,
        /// 32 for IPv4, 128 for IPv6.
        max: u8,
    },
    /// Bits beyond the prefix length are set.
    #[error("{given} has bits set beyond its length, the prefix is {prefix}")]
    HostBits {
        /// What was given.
        given: String,
        /// The same with these bits cleared.
        prefix: IpPrefix,
    },
    /// An IPv4-mapped IPv6 address (RFC 4291 (2.5.5.2)): never on the wire, and ambiguous beside IPv4.
    #[error("{0} is the IPv6 form of an IPv4 address")]
    Mapped(IpAddr),
    /// Not six pairs of hexadecimal digits.
    #[error("{0:?} is no MAC address")]
    Mac(String),
    /// A MAC address that cannot be a station's: the group bit is set (IEEE 802-2014, 8.2.2), or it is zero.
    #[error("{0} is no unicast MAC address")]
    NotUnicast(MacAddr),
    /// No port or port range.
    #[error("{0:?} is no port and no port range")]
    Port(String),
    /// The first port of a range is above the last.
    #[error("port range {first}-{last} is reversed")]
    Reversed {
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// Neither a known protocol name nor a number within 0..=255.
    #[error("{0:?} is no protocol")]
    Protocol(String),
}

macro_rules! text_serde {
    ($($t:ty),*) => {$(
        impl TryFrom<String> for $t {
            type Error = NetError;
            fn try_from(text: String) -> Result<$t, NetError> {
                text.parse()
            }
        }
        impl From<$t> for String {
            fn from(value: $t) -> String {
                value.to_string()
            }
        }
    )*};
}
text_serde!(IpPrefix, MacAddr, PortRange, Protocol);

/// Which of the two IP versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl IpVersion {
    /// Both versions with their words in files.
    pub const WORDS: &'static [(&'static str, IpVersion)] =
        &[("ipv4", IpVersion::Ipv4), ("ipv6", IpVersion::Ipv6)];

    /// The version of an address.
    pub fn of(addr: IpAddr) -> IpVersion {
        if addr.is_ipv4() { IpVersion::Ipv4 } else { IpVersion::Ipv6 }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpVersion::Ipv4 => "IPv4",
            IpVersion::Ipv6 => "IPv6",
        })
    }
}

/// An IPv4 or IPv6 prefix; a single address is the prefix of full length. No bit beyond the length is ever set.
///
/// Text: `10.0.0.0/24`; a single address stands without its length, `10.0.0.1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpPrefix {
    addr: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// The prefix `addr/len`.
    ///
    /// # Errors
    /// `PrefixLength` beyond 32 or 128, `HostBits` when bits beyond `len` are set, `Mapped` within `::ffff:0:0/96`.
    pub fn new(addr: IpAddr, len: u8) -> Result<IpPrefix, NetError> {
        let max = if addr.is_ipv4() { 32 } else { 128 };
        if len > max {
            return Err(NetError::PrefixLength { length: len.to_string(), max });
        }
        if let IpAddr::V6(v6) = addr
            && v6.to_ipv4_mapped().is_some()
            && len >= 96
        {
            return Err(NetError::Mapped(addr));
        }
        let prefix = IpPrefix { addr: mask(addr, len), len };
        if prefix.addr != addr {
            return Err(NetError::HostBits { given: format!("{addr}/{len}"), prefix });
        }
        Ok(prefix)
    }

    /// The first address of the prefix.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The length in bits.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// IPv4 or IPv6.
    pub fn version(&self) -> IpVersion {
        IpVersion::of(self.addr)
    }

    /// True for a single address.
    pub fn is_host(&self) -> bool {
        self.len == if self.addr.is_ipv4() { 32 } else { 128 }
    }

    /// True when `addr` is of the same version and within the prefix.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.addr.is_ipv4() && mask(addr, self.len) == self.addr
    }

    /// True when every address of `other` is within this prefix.
    pub fn covers(&self, other: &IpPrefix) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }

    /// True when some address is within both.
    pub fn overlaps(&self, other: &IpPrefix) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn mask(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
        }
    }
}

impl From<IpAddr> for IpPrefix {
    /// The prefix of the single address. An IPv4-mapped IPv6 address becomes the IPv4 address.
    fn from(addr: IpAddr) -> IpPrefix {
        let addr = addr.to_canonical();
        IpPrefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() { write!(f, "{}", self.addr) } else { write!(f, "{}/{}", self.addr, self.len) }
    }
}

impl FromStr for IpPrefix {
    type Err = NetError;

    fn from_str(text: &str) -> Result<IpPrefix, NetError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| NetError::Address(addr.to_string()))?;
        let max = if addr.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => max,
            Some(len) => {
                digits(len).ok_or_else(|| NetError::PrefixLength { length: len.to_string(), max })?
            }
        };
        IpPrefix::new(addr, len)
    }
}

/// A number in decimal digits alone: no sign, no space.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// An Ethernet address. Text: `02:00:00:00:01:01`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// True for an address that a station can have: group bit clear (IEEE 802-2014, 8.2.2), not zero.
    pub fn is_unicast(&self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = NetError;

    /// Six pairs of hexadecimal digits between colons, or between hyphens.
    fn from_str(text: &str) -> Result<MacAddr, NetError> {
        let error = || NetError::Mac(text.to_string());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
                .ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() { Err(error()) } else { Ok(MacAddr(bytes)) }
    }
}

/// A range of TCP or UDP ports, both ends included. Text: `53` or `1000-2000`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports `first..=last`.
    ///
    /// # Errors
    /// `Reversed` when `first` is above `last`.
    pub fn new(first: u16, last: u16) -> Result<PortRange, NetError> {
        if first > last { Err(NetError::Reversed { first, last }) } else { Ok(PortRange { first, last }) }
    }

    /// The first port.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The last port.
    pub fn last(&self) -> u16 {
        self.last
    }

    /// True when `port` is within the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> PortRange {
        PortRange { first: port, last: port }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = NetError;

    fn from_str(text: &str) -> Result<PortRange, NetError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (digits(first), digits(last)) {
            (Some(first), Some(last)) => PortRange::new(first, last),
            _ => Err(NetError::Port(text.to_string())),
        }
    }
}

/// An IP protocol number. Text: `tcp`, `udp`, `icmp`, `icmpv6`, or the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP, RFC 792.
    pub const ICMP: Protocol = Protocol(1);
    /// TCP, RFC 9293.
    pub const TCP: Protocol = Protocol(6);
    /// UDP, RFC 768.
    pub const UDP: Protocol = Protocol(17);
    /// ICMPv6, RFC 4443.
    pub const ICMPV6: Protocol = Protocol(58);

    /// The protocols that have a name.
    pub const NAMES: [(&'static str, Protocol); 4] = [
        ("tcp", Protocol::TCP),
        ("udp", Protocol::UDP),
        ("icmp", Protocol::ICMP),
        ("icmpv6", Protocol::ICMPV6),
    ];

    /// True when a rule can match the ports of this protocol: TCP and UDP.
    pub fn has_ports(&self) -> bool {
        matches!(*self, Protocol::TCP | Protocol::UDP)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Protocol::NAMES.iter().find(|(_, p)| p == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Protocol {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Protocol, NetError> {
        let named = Protocol::NAMES.iter().find(|(name, _)| *name == text).map(|(_, p)| *p);
        named.or_else(|| digits(text).map(Protocol)).ok_or_else(|| NetError::Protocol(text.to_string()))
    }
}
