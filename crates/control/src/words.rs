//! Entries in words, for reports and errors.

use contract::schema::vnet::PROGRAM;
use contract::{Action, FieldMatch, TableId};
use std::net::Ipv6Addr;

/// A table's name.
pub(crate) fn table(id: TableId) -> &'static str {
    PROGRAM.table(id).map_or("unknown", |t| t.name)
}

/// A key in words: `protocol=tcp dst=10.0.0.0/24 dst_port=80`; fields that match anything are left out.
pub(crate) fn matches(id: TableId, matches: &[FieldMatch]) -> String {
    let fields = PROGRAM.table(id).map_or(&[][..], |t| t.key);
    let words: Vec<String> = fields
        .iter()
        .zip(matches)
        .filter(|(_, m)| **m != FieldMatch::Any)
        .map(|(f, m)| format!("{}={}", f.name, field(f.name, *m)))
        .collect();
    if words.is_empty() { "any".to_owned() } else { words.join(" ") }
}

/// An action in words: `to_vnet vnet=100`; parameters that are 0 are left out.
pub(crate) fn action(id: TableId, action: &Action) -> String {
    let Some(info) = PROGRAM.table(id).and_then(|t| t.action(action.id)) else {
        return format!("action {}", action.id);
    };
    let mut words = info.name.to_owned();
    for (name, value) in info.params.iter().zip(&action.params) {
        match (*name, value) {
            (_, 0) => {}
            ("mac", mac) => {
                let octets: Vec<String> =
                    mac.to_be_bytes()[10..].iter().map(|b| format!("{b:02x}")).collect();
                words += &format!(" mac={}", octets.join(":"));
            }
            (name, value) => words += &format!(" {name}={value}"),
        }
    }
    words
}

fn field(name: &str, m: FieldMatch) -> String {
    match (name, m) {
        (_, FieldMatch::Any) => "any".to_owned(),
        ("protocol", FieldMatch::Exact(v)) => match u8::try_from(v) {
            Ok(number) => model::Protocol(number).to_string(),
            Err(_) => v.to_string(),
        },
        (_, FieldMatch::Exact(v)) => v.to_string(),
        (_, FieldMatch::Prefix { value, len }) => {
            let address = Ipv6Addr::from_bits(value);
            match address.to_ipv4_mapped() {
                Some(v4) if len == 128 => v4.to_string(),
                Some(v4) if len >= 96 => format!("{v4}/{}", len - 96),
                _ if len == 128 => address.to_string(),
                _ => format!("{address}/{len}"),
            }
        }
        (_, FieldMatch::Range { low, high }) if low == high => low.to_string(),
        (_, FieldMatch::Range { low, high }) => format!("{low}-{high}"),
    }
}
