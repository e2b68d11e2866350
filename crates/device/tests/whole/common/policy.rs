//! Entries in words.

use contract::schema::vnet;
use contract::{Action, ActionId, Entry, EntryId, FieldMatch, RuleRef, TableId};
use std::net::IpAddr;
use wire::ip;

/// The groups of an ENI's ACL stages: outbound, then inbound; of each IPv4, then IPv6.
pub type Groups = [[u32; vnet::STAGES]; 4];

/// A set of entries, each under an id of its own.
#[derive(Clone, Default)]
pub struct Policy {
    /// The entries, in the order of their ids, which begin at 1.
    pub entries: Vec<Entry>,
}

/// The bits of an address, IPv4 as IPv4-mapped.
pub fn map(address: &str) -> u128 {
    ip::to_bits(address.parse::<IpAddr>().unwrap_or_else(|_| panic!("{address:?} is no address")))
}

fn prefix(text: &str) -> FieldMatch {
    let (address, len) =
        text.split_once('/').unwrap_or((text, if text.contains(':') { "128" } else { "32" }));
    let value = map(address);
    let len = len.parse::<u8>().expect("a prefix length") + if ip::is_v4(value) { 96 } else { 0 };
    FieldMatch::Prefix { value, len }
}

fn bits(mac: [u8; 6]) -> u128 {
    mac.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

impl Policy {
    fn add(
        &mut self,
        table: TableId,
        scope: u32,
        priority: u32,
        matches: Vec<FieldMatch>,
        action: ActionId,
        params: Vec<u128>,
    ) -> EntryId {
        let id = EntryId(self.entries.len() as u32 + 1);
        let rule = RuleRef { rule: id.0, revision: 1 };
        self.entries.push(Entry {
            id,
            rule,
            table,
            scope,
            priority,
            matches,
            action: Action { id: action, params },
        });
        id
    }

    /// The ENI of a port.
    pub fn eni(
        &mut self,
        port: u16,
        eni: u16,
        mac: [u8; 6],
        vnet: u32,
        flags: u128,
        groups: Groups,
    ) -> EntryId {
        let mut params = vec![u128::from(eni), bits(mac), u128::from(vnet), flags];
        params.extend(groups.iter().flatten().map(|group| u128::from(*group)));
        self.add(vnet::ENI, 0, 0, vec![FieldMatch::Exact(u128::from(port))], vnet::SET_ENI, params)
    }

    /// An address or prefix that an ENI may use.
    pub fn source(&mut self, eni: u16, from: &str) -> EntryId {
        self.add(vnet::SOURCE, u32::from(eni), 0, vec![prefix(from)], vnet::PERMIT, Vec::new())
    }

    /// A rule for all addresses: a protocol or all, and one destination port or all.
    pub fn rule(
        &mut self,
        group: u32,
        priority: u32,
        action: ActionId,
        protocol: Option<u8>,
        port: Option<u16>,
    ) -> EntryId {
        let protocol = protocol.map_or(FieldMatch::Any, |p| FieldMatch::Exact(u128::from(p)));
        let port = port.map_or(FieldMatch::Any, |p| FieldMatch::Range { low: p.into(), high: p.into() });
        let matches = vec![protocol, FieldMatch::Any, FieldMatch::Any, FieldMatch::Any, port];
        self.add(vnet::ACL, group, priority, matches, action, Vec::new())
    }

    /// A route of an ENI; `None` drops.
    pub fn route(&mut self, eni: u16, to: &str, vnet: Option<u32>) -> EntryId {
        let (action, params) = match vnet {
            Some(vnet) => (vnet::TO_VNET, vec![u128::from(vnet)]),
            None => (vnet::BLACKHOLE, Vec::new()),
        };
        self.add(vnet::ROUTE, u32::from(eni), 0, vec![prefix(to)], action, params)
    }

    /// Where an address or prefix of a VNET lives.
    pub fn mapping(&mut self, vnet: u32, to: &str, port: u16, mac: [u8; 6]) -> EntryId {
        let params = vec![u128::from(port), bits(mac)];
        self.add(vnet::MAPPING, vnet, 0, vec![prefix(to)], vnet::TO_PORT, params)
    }
}
