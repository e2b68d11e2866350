//! Reading one table by its schema: unknown and missing keys, types, and the values' own rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{ConfigErrorKind as Kind, Fault, nearest};
use crate::net::{IpPrefix, MacAddr, NetError, PortRange, Protocol};
use crate::report::Report;
use crate::schema::{Key, Object};
use crate::span::Span;
use crate::tree::{Node, Value};

/// One table of the file and what the schema says of it.
pub(crate) struct Reader<'a> {
    object: &'static Object,
    node: &'a Node,
    path: String,
    pub span: Span,
}

impl<'a> Reader<'a> {
    /// Starts on the table at `path`; what is no table and keys that it cannot have are errors.
    pub fn new(report: &mut Report, object: &'static Object, node: &'a Node, path: &str) -> Reader<'a> {
        let reader = Reader { object, node, path: path.to_string(), span: report.span(node.at) };
        match &node.value {
            Value::Table(entries) => {
                for entry in entries.iter().filter(|e| object.key(&e.key).is_none()) {
                    let names = || object.keys.iter().map(|k| k.name);
                    let close = nearest(&entry.key, names());
                    let fault = Fault::new(
                        Kind::UnknownKey,
                        format!("unknown key {:?} {}", entry.key, place(object)),
                    )
                    .expected(format!("one of {}", names().collect::<Vec<_>>().join(", ")))
                    .nearest(close);
                    report.error(entry.key_at, reader.path(&entry.key), fault);
                    if let Some(meant) = close {
                        report.fail(reader.path(meant));
                    }
                }
            }
            other => {
                let what = format!("{} where {} belongs", other.type_name(), object.header);
                report.error(
                    node.at,
                    path.to_string(),
                    Fault::new(Kind::WrongType, what).expected("a table"),
                );
            }
        }
        reader
    }

    /// The path of one of its keys.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    fn key(&self, name: &str) -> &'static Key {
        self.object.key(name).expect("the reader asks for keys of the schema only")
    }

    /// The table at `key`, with its path.
    pub fn table(&self, key: &str) -> Option<(&'a Node, String)> {
        self.node.get(key).map(|node| (node, self.path(key)))
    }

    /// The value at `key`, if it is there and right.
    pub fn optional<T>(
        &self,
        report: &mut Report,
        key: &str,
        read: impl FnOnce(&Node) -> Result<T, Fault>,
    ) -> Option<T> {
        let node = self.node.get(key)?;
        let key = self.key(key);
        self.value(report, key, node, self.path(key.name), read)
    }

    /// The value at `key`, if it is right; its absence is an error.
    pub fn required<T>(
        &self,
        report: &mut Report,
        key: &str,
        read: impl FnOnce(&Node) -> Result<T, Fault>,
    ) -> Option<T> {
        self.demand(report, key);
        self.optional(report, key, read)
    }

    fn demand(&self, report: &mut Report, key: &str) {
        if self.node.get(key).is_none() && matches!(self.node.value, Value::Table(_)) {
            let what = format!("missing key {key:?} {}", place(self.object));
            let fault = Fault::new(Kind::MissingKey, what).expected(self.key(key).kind.to_string());
            report.error(self.node.at, self.path(key), fault);
        }
    }

    /// The members of the list at `key`, none if it is absent; also none, and marked as failed, if one member is wrong.
    pub fn list<T>(
        &self,
        report: &mut Report,
        key: &str,
        mut read: impl FnMut(&Node) -> Result<T, Fault>,
    ) -> Vec<T> {
        let Some(node) = self.node.get(key) else { return Vec::new() };
        let key = self.key(key);
        let Value::Array(items) = &node.value else {
            let fault = wrong_type(node).expected(key.kind.to_string());
            report.error(node.at, self.path(key.name), named(key, fault));
            return Vec::new();
        };
        let mut list = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let path = format!("{}[{i}]", self.path(key.name));
            list.extend(self.value(report, key, item, path, &mut read));
        }
        if list.len() != items.len() {
            report.fail(self.path(key.name));
            list.clear();
        }
        list
    }

    /// As [`list`](Reader::list); absence and emptiness are errors.
    pub fn required_list<T>(
        &self,
        report: &mut Report,
        key: &str,
        read: impl FnMut(&Node) -> Result<T, Fault>,
    ) -> Vec<T> {
        self.demand(report, key);
        let list = self.list(report, key, read);
        if let Some(node) = self.node.get(key).filter(|_| list.is_empty()) {
            let fault = Fault::new(Kind::InvalidValue, " is empty").expected(self.key(key).kind.to_string());
            report.error(node.at, self.path(key), named(self.key(key), fault));
        }
        list
    }

    /// The tables at `key`, each read by `read` with its path.
    pub fn tables<T>(
        &self,
        report: &mut Report,
        key: &str,
        read: impl Fn(&mut Report, &Node, &str) -> T,
    ) -> Vec<T> {
        let Some(node) = self.node.get(key) else { return Vec::new() };
        let key = self.key(key);
        let Value::Array(items) = &node.value else {
            let fault = wrong_type(node).expected(key.kind.to_string());
            report.error(node.at, self.path(key.name), named(key, fault));
            return Vec::new();
        };
        let path = |i| format!("{}[{i}]", self.path(key.name));
        items.iter().enumerate().map(|(i, item)| read(report, item, &path(i))).collect()
    }

    fn value<T>(
        &self,
        report: &mut Report,
        key: &'static Key,
        node: &Node,
        path: String,
        read: impl FnOnce(&Node) -> Result<T, Fault>,
    ) -> Option<T> {
        match read(node) {
            Ok(value) => Some(value),
            Err(mut fault) => {
                fault.expected.get_or_insert_with(|| key.kind.item().to_string());
                report.error(node.at, path, named(key, fault));
                None
            }
        }
    }
}

fn place(object: &Object) -> String {
    if object.header.is_empty() { "at the top level".into() } else { format!("in {}", object.header) }
}

/// Puts the key before what is wrong with its value.
fn named(key: &Key, fault: Fault) -> Fault {
    Fault { what: format!("{:?}{}", key.name, fault.what), ..fault }
}

fn wrong_type(node: &Node) -> Fault {
    Fault::new(Kind::WrongType, format!(" is {}", node.value.type_name()))
}

fn invalid(what: impl Into<String>) -> Fault {
    Fault::new(Kind::InvalidValue, what)
}

/// Any string.
pub(crate) fn string(node: &Node) -> Result<String, Fault> {
    text(node).map(str::to_string)
}

fn text(node: &Node) -> Result<&str, Fault> {
    match &node.value {
        Value::String(s) => Ok(s),
        _ => Err(wrong_type(node)),
    }
}

/// A name or id.
pub(crate) fn name(node: &Node) -> Result<String, Fault> {
    let name = text(node)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        Ok(name.to_string())
    } else {
        Err(invalid(format!(" is {name:?}")))
    }
}

/// A name that Linux accepts for an interface (dev_valid_name: IFNAMSIZ is 16, with the closing zero).
pub(crate) fn interface(node: &Node) -> Result<String, Fault> {
    let name = text(node)?;
    if is_interface(name) { Ok(name.to_string()) } else { Err(invalid(format!(" is {name:?}"))) }
}

/// Whether Linux accepts the name for an interface.
pub(crate) fn is_interface(name: &str) -> bool {
    let bad = |b: u8| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace() || b == 0x0b;
    (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.bytes().any(bad)
}

/// `true` or `false`.
pub(crate) fn boolean(node: &Node) -> Result<bool, Fault> {
    match node.value {
        Value::Bool(b) => Ok(b),
        _ => Err(wrong_type(node)),
    }
}

/// An integer of the type, within `min..=max`.
pub(crate) fn integer<T: TryFrom<i128> + Copy + Into<i128>>(
    min: T,
    max: T,
) -> impl Fn(&Node) -> Result<T, Fault> {
    move |node| match node.value {
        Value::Integer(i) if (min.into()..=max.into()).contains(&i) => {
            T::try_from(i).map_err(|_| invalid(format!(" is {i}")))
        }
        Value::Integer(i) => Err(invalid(format!(" is {i}"))),
        _ => Err(wrong_type(node)),
    }
}

/// One of the words.
pub(crate) fn word<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(&Node) -> Result<T, Fault> {
    move |node| {
        let word = text(node)?;
        let found = words.iter().find(|(w, _)| *w == word).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let close = nearest(word, words.iter().map(|(w, _)| *w));
            Fault::new(Kind::UnknownWord, format!(" is {word:?}")).nearest(close)
        })
    }
}

/// A unicast MAC address.
pub(crate) fn mac(node: &Node) -> Result<MacAddr, Fault> {
    let mac: MacAddr = text(node)?.parse().map_err(net)?;
    if mac.is_unicast() { Ok(mac) } else { Err(net(NetError::NotUnicast(mac))) }
}

/// An IP address or prefix.
pub(crate) fn prefix(node: &Node) -> Result<IpPrefix, Fault> {
    text(node)?.parse().map_err(net)
}

/// An IP address or prefix that a host can have: not multicast, loopback, unspecified or broadcast (RFC 1122 (3.2.1.3), RFC 4291 (2.5)).
pub(crate) fn unicast(node: &Node) -> Result<IpPrefix, Fault> {
    let prefix = prefix(node)?;
    let unusable = match prefix.addr() {
        IpAddr::V4(a) => {
            (a.is_multicast() && prefix.len() >= 4)
                || (a.is_loopback() && prefix.len() >= 8)
                || (prefix.is_host() && (a == Ipv4Addr::UNSPECIFIED || a == Ipv4Addr::BROADCAST))
        }
        IpAddr::V6(a) => {
            (a.is_multicast() && prefix.len() >= 8)
                || (prefix.is_host() && (a == Ipv6Addr::UNSPECIFIED || a == Ipv6Addr::LOCALHOST))
        }
    };
    if unusable { Err(invalid(format!(": no host can have {prefix}"))) } else { Ok(prefix) }
}

/// A port as a number, or a port or range as a string.
pub(crate) fn port(node: &Node) -> Result<PortRange, Fault> {
    match &node.value {
        Value::Integer(i) => {
            u16::try_from(*i).map(PortRange::from).map_err(|_| net(NetError::Port(i.to_string())))
        }
        _ => text(node)?.parse().map_err(net),
    }
}

/// A protocol as a number, or as a string.
pub(crate) fn protocol(node: &Node) -> Result<Protocol, Fault> {
    match &node.value {
        Value::Integer(i) => {
            u8::try_from(*i).map(Protocol).map_err(|_| net(NetError::Protocol(i.to_string())))
        }
        _ => text(node)?.parse().map_err(net),
    }
}

fn net(error: NetError) -> Fault {
    let close = match &error {
        NetError::HostBits { prefix, .. } => Some(prefix.to_string()),
        NetError::Mapped(addr) => Some(addr.to_canonical().to_string()),
        NetError::Reversed { first, last } => Some(format!("{last}-{first}")),
        NetError::Protocol(word) => {
            nearest(word, Protocol::NAMES.iter().map(|(n, _)| *n)).map(str::to_string)
        }
        _ => None,
    };
    let kind = if matches!(error, NetError::Protocol(_)) { Kind::UnknownWord } else { Kind::InvalidValue };
    let what = match error {
        NetError::HostBits { given, .. } => format!(": {given} has bits set beyond its length"),
        error => format!(": {error}"),
    };
    Fault::new(kind, what).nearest(close)
}
