//! Witness packets: frames that a rule should judge, made from the corners of its matches.

use crate::frame::Probe;
use crate::numbers::Policy;
use contract::schema::{PUNT, vnet};
use contract::{Entry, FieldMatch};
use model::{Desired, Eni, IpPrefix, IpVersion};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

/// Frames tried for one rule at most.
pub(crate) const MAX_PROBES: usize = 32;
/// Where a packet goes that has no known receiver.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A frame, and the index of the port that it comes in on.
pub(crate) type Witness = (u16, Vec<u8>);

/// What a rule says of a packet; absent: anything.
#[derive(Debug, Clone, Copy)]
struct Wish {
    src: FieldMatch,
    dst: FieldMatch,
    protocol: FieldMatch,
    src_port: FieldMatch,
    dst_port: FieldMatch,
}

const ANYTHING: Wish = Wish {
    src: FieldMatch::Any,
    dst: FieldMatch::Any,
    protocol: FieldMatch::Any,
    src_port: FieldMatch::Any,
    dst_port: FieldMatch::Any,
};

/// Frames that the rule should judge, the likeliest first.
pub(crate) fn witnesses(desired: &Desired, ports: &[String], policy: &Policy, rule: &str) -> Vec<Witness> {
    let Some(numbered) = policy.rules.get(rule) else {
        return Vec::new();
    };
    let mut probes: Vec<(u16, Probe)> = Vec::new();
    for entry in numbered.entries.iter().filter_map(|id| policy.entries.get(id)) {
        let mut found: Vec<(u16, Probe)> = Vec::new();
        for eni in &desired.enis {
            let Some(port) = ports.iter().position(|p| *p == eni.port).and_then(|p| u16::try_from(p).ok())
            else {
                continue;
            };
            for (wish, to) in wishes(desired, policy, entry, eni) {
                found.extend(probes_of(desired, eni, to, &wish).into_iter().map(|p| (port, p)));
            }
        }
        found.retain(|(port, probe)| is_first(policy, entry, *port, probe));
        let share = (MAX_PROBES / numbered.entries.len().max(1)).max(1);
        probes.extend(spread(found, share));
    }
    let mut seen = BTreeSet::new();
    probes.retain(|p| seen.insert(*p));
    probes.into_iter().take(MAX_PROBES).filter_map(|(port, p)| Some((port, p.frame()?))).collect()
}

/// At most `n` of them, from all over the list.
fn spread<T>(list: Vec<T>, n: usize) -> Vec<T> {
    let step = list.len().div_ceil(n).max(1);
    list.into_iter().step_by(step).collect()
}

/// What packets from this ENI would have to look like to meet the entry, and where they should lead.
fn wishes<'a>(
    desired: &'a Desired,
    policy: &Policy,
    entry: &Entry,
    from: &Eni,
) -> Vec<(Wish, Option<&'a Eni>)> {
    let number = policy.enis.get(&from.name).copied().map_or(0, u32::from);
    let first = entry.matches.first().copied().unwrap_or(FieldMatch::Any);
    match entry.table {
        vnet::ENI if first == FieldMatch::Any => Vec::new(),
        vnet::ENI => vec![(ANYTHING, None)],
        vnet::SOURCE if entry.scope == number => vec![(Wish { src: first, ..ANYTHING }, None)],
        vnet::ROUTE if entry.scope == number => vec![(Wish { dst: first, ..ANYTHING }, None)],
        vnet::MAPPING => vec![(Wish { dst: first, ..ANYTHING }, None)],
        vnet::ACL => {
            let [protocol, src, dst, src_port, dst_port] = entry.matches[..] else {
                return Vec::new();
            };
            let wish = Wish { src, dst, protocol, src_port, dst_port };
            let mut ways = Vec::new();
            if groups(policy, from).0.contains(&entry.scope) {
                ways.push((wish, None));
            }
            let receivers = desired.enis.iter().filter(|e| groups(policy, e).1.contains(&entry.scope));
            ways.extend(receivers.map(|to| (wish, Some(to))));
            ways
        }
        _ => Vec::new(),
    }
}

/// The numbers of an ENI's outbound and inbound groups.
fn groups(policy: &Policy, eni: &Eni) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let number = policy.enis.get(&eni.name).copied().map(u128::from);
    let entry =
        policy.entries.values().find(|e| e.table == vnet::ENI && e.action.params.first().copied() == number);
    let params = entry.map_or(&[][..], |e| &e.action.params);
    let of = |from: usize| {
        let slots = params.iter().skip(from).take(2 * vnet::STAGES);
        slots.filter_map(|g| u32::try_from(*g).ok()).filter(|g| *g != 0).collect()
    };
    (of(4), of(4 + 2 * vnet::STAGES))
}

fn probes_of(desired: &Desired, from: &Eni, to: Option<&Eni>, wish: &Wish) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut sources: Vec<IpAddr> = from.addresses.iter().flat_map(|p| corners(*p, wish.src)).collect();
    if !from.anti_spoof && sources.is_empty() {
        sources = free_corners(wish.src);
    }
    for src in sources {
        let mut targets: Vec<(IpAddr, [u8; 6])> = Vec::new();
        match to {
            Some(to) => targets.extend(at(to, &to.addresses, wish.dst)),
            None => {
                for eni in desired.enis.iter().filter(|e| e.name != from.name) {
                    targets.extend(at(eni, &eni.addresses, wish.dst));
                    let further = desired.vnet_mappings.iter().filter(|m| m.eni == eni.name);
                    let further: Vec<IpPrefix> = further.map(|m| m.ip_address).collect();
                    targets.extend(at(eni, &further, wish.dst));
                }
                targets.extend(free_corners(wish.dst).into_iter().map(|a| (a, NOBODY)));
            }
        }
        for (dst, dst_mac) in targets.into_iter().filter(|(d, _)| d.is_ipv4() == src.is_ipv4() && *d != src) {
            for protocol in protocols(wish, src) {
                for dst_port in port_corners(wish.dst_port, 80) {
                    for src_port in port_corners(wish.src_port, 40_000) {
                        let src_mac = from.mac_address.0;
                        probes.push(Probe { src_mac, dst_mac, src, dst, protocol, src_port, dst_port });
                    }
                }
            }
        }
    }
    probes
}

fn at(eni: &Eni, prefixes: &[IpPrefix], wish: FieldMatch) -> Vec<(IpAddr, [u8; 6])> {
    let addresses = prefixes.iter().flat_map(|p| corners(*p, wish));
    addresses.map(|a| (a, eni.mac_address.0)).collect()
}

fn protocols(wish: &Wish, src: IpAddr) -> Vec<u8> {
    let icmp = if src.is_ipv4() { 1 } else { 58 };
    match wish.protocol {
        FieldMatch::Exact(p) => u8::try_from(p).into_iter().collect(),
        _ => vec![6, 17, icmp],
    }
}

fn port_corners(wish: FieldMatch, usual: u16) -> BTreeSet<u16> {
    match wish {
        FieldMatch::Range { low, high } => {
            let middle = low + (high.saturating_sub(low)) / 2;
            [low, middle, high].into_iter().filter_map(|p| u16::try_from(p).ok()).collect()
        }
        _ => [usual].into(),
    }
}

/// The first, the last and some addresses between that lie in the prefix and match; network and broadcast addresses of a subnet
/// come last, since a host does not have them.
fn corners(prefix: IpPrefix, wish: FieldMatch) -> Vec<IpAddr> {
    let (base, bits) = mapped(prefix);
    let (base, bits) = match wish {
        FieldMatch::Any => (base, bits),
        FieldMatch::Prefix { value, len } if len > bits => (value, len),
        _ => (base, bits),
    };
    if !prefix_has(prefix, base) || !wish.matches(base) {
        return Vec::new();
    }
    let free = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    let points = [base | (1 & free), base | (free & !1), base | (free / 2), base, base | free];
    let mut seen = BTreeSet::new();
    points.into_iter().filter(|p| seen.insert(*p)).filter_map(address).collect()
}

/// Corners of what a rule itself names.
fn free_corners(wish: FieldMatch) -> Vec<IpAddr> {
    let FieldMatch::Prefix { value, len } = wish else {
        return Vec::new();
    };
    let Some(first) = address(value) else {
        return Vec::new();
    };
    let length = if first.is_ipv4() { len.saturating_sub(96) } else { len };
    IpPrefix::new(first, length).map_or(Vec::new(), |p| corners(p, wish))
}

fn mapped(prefix: IpPrefix) -> (u128, u8) {
    match prefix.addr() {
        IpAddr::V4(a) => (a.to_ipv6_mapped().to_bits(), 96 + prefix.len()),
        IpAddr::V6(a) => (a.to_bits(), prefix.len()),
    }
}

fn prefix_has(prefix: IpPrefix, value: u128) -> bool {
    address(value).is_some_and(|a| IpVersion::of(a) == prefix.version() && prefix.contains(a))
}

/// A unicast address, or none.
fn address(value: u128) -> Option<IpAddr> {
    let address = IpAddr::V6(Ipv6Addr::from_bits(value)).to_canonical();
    (!address.is_multicast() && !address.is_unspecified()).then_some(address)
}

/// Whether the full table gives this very entry for the probe.
fn is_first(policy: &Policy, entry: &Entry, port: u16, probe: &Probe) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    };
    let has_ports = matches!(probe.protocol, 6 | 17);
    let port_of = |p: u16| if has_ports { p.into() } else { 0 };
    let key: Vec<u128> = match entry.table {
        vnet::ENI => vec![port.into()],
        vnet::SOURCE => vec![bits(probe.src)],
        vnet::ROUTE | vnet::MAPPING => vec![bits(probe.dst)],
        vnet::ACL => vec![
            probe.protocol.into(),
            bits(probe.src),
            bits(probe.dst),
            port_of(probe.src_port),
            port_of(probe.dst_port),
        ],
        _ => return false,
    };
    let fits = |e: &&Entry| {
        (e.table, e.scope) == (entry.table, entry.scope)
            && e.matches.iter().zip(&key).all(|(m, v)| m.matches(*v))
    };
    let first = policy.entries.values().filter(fits).min_by_key(|e| crate::compile::precedence(e));
    first.is_some_and(|f| f.rule.rule == entry.rule.rule) && entry.action.id != PUNT
}
