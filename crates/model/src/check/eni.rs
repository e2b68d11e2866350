//! Ports, VNETs and ENIs.

use std::collections::HashSet;
use std::net::IpAddr;

use super::{Check, Names, Unique};
use crate::desired::PortKind;
use crate::net::{IpPrefix, IpVersion};
use crate::reader::is_interface;

/// The smallest MTU of a link that carries IPv6, RFC 8200 (5).
const IPV6_MTU: u32 = 1280;

pub(super) fn ports(c: &mut Check) {
    let ports = &c.desired.ports;
    let mut interfaces = Unique::new();
    for (i, port) in ports.iter().enumerate() {
        let path = || format!("port[{i}].interface");
        let named = c.is_read(path) && c.is_read(|| format!("port[{i}].name"));
        if !named || port.kind == PortKind::Memory {
            continue;
        }
        if !is_interface(&port.interface) {
            let what = format!("the name of port {:?} is no interface name", port.name);
            c.contradiction(path(), what, "the key interface: 1 to 15 bytes without space, / or :");
        } else if let Some(first) = interfaces.claim(port.interface.as_str(), i) {
            let first = &ports[first];
            let what = format!(
                "interface {:?} of port {:?} is that of port {:?} (line {})",
                port.interface, port.name, first.name, first.span.line
            );
            c.duplicate(path(), what, "an interface of its own");
        }
    }
    let used: HashSet<_> = c.desired.enis.iter().map(|e| e.port.as_str()).collect();
    for (i, port) in ports.iter().enumerate().filter(|(_, p)| !used.contains(p.name.as_str())) {
        c.warning(
            format!("port[{i}]"),
            format!("port {:?} has no ENI: its frames are dropped as no_eni", port.name),
        );
    }
}

pub(super) fn vnets(c: &mut Check) {
    let vnets = &c.desired.vnets;
    let mut vnis = Unique::new();
    for (i, vnet) in vnets.iter().enumerate() {
        let path = || format!("vnet[{i}].vni");
        if !c.is_read(path) {
            continue;
        }
        if let Some(first) = vnis.claim(vnet.vni, i) {
            let first = &vnets[first];
            let what = format!(
                "vni {} of VNET {:?} is that of VNET {:?} (line {})",
                vnet.vni, vnet.name, first.name, first.span.line
            );
            c.duplicate(path(), what, "a unique vni");
        }
    }
}

pub(super) fn enis(c: &mut Check, ports: &Names, vnets: &Names) {
    let enis = &c.desired.enis;
    let mut port_owners = Unique::new();
    let mut macs = Unique::new();
    let mut addresses: Vec<Address> = Vec::new();
    for (i, eni) in enis.iter().enumerate() {
        if let Some(port) = c.resolve(ports, || format!("eni[{i}].port"), &eni.port) {
            if let Some(first) = port_owners.claim(port, i) {
                let first = &enis[first];
                let what = format!(
                    "port {:?} of ENI {:?} is that of ENI {:?} (line {})",
                    eni.port, eni.name, first.name, first.span.line
                );
                c.contradiction(format!("eni[{i}].port"), what, "one ENI per port");
            }
            port_mtu(c, i, port);
        }
        let Some(vnet) = c.resolve(vnets, || format!("eni[{i}].vnet"), &eni.vnet) else { continue };
        let path = || format!("eni[{i}].mac_address");
        if c.is_read(path)
            && let Some(first) = macs.claim((vnet, eni.mac_address), i)
        {
            let first = &enis[first];
            let what = format!(
                "MAC address {} of ENI {:?} is that of ENI {:?} (line {}) in the same VNET {:?}",
                eni.mac_address, eni.name, first.name, first.span.line, eni.vnet
            );
            c.contradiction(path(), what, "a MAC address that is unique in the VNET");
        }
        addresses.extend(eni.addresses.iter().enumerate().map(|(j, &prefix)| Address {
            vnet,
            prefix,
            eni: i,
            index: j,
        }));
    }
    overlaps(c, addresses);
}

/// An IPv6 address needs a port that carries 1280 bytes.
fn port_mtu(c: &mut Check, eni: usize, port: usize) {
    let (owner, port_path) = (&c.desired.enis[eni], format!("port[{port}].mtu"));
    let port = &c.desired.ports[port];
    let ipv6 = |p: &IpPrefix| p.version() == IpVersion::Ipv6;
    let mapped =
        c.desired.vnet_mappings.iter().filter(|m| m.eni == owner.name).map(|m| (m.ip_address, m.span.line));
    let mut all = owner.addresses.iter().map(|&a| (a, owner.span.line)).chain(mapped);
    if port.mtu >= IPV6_MTU {
        return;
    }
    if let Some((address, line)) = all.find(|(a, _)| ipv6(a)) {
        let what = format!(
            "mtu {} of port {:?} is too small for {address} of ENI {:?} (line {line})",
            port.mtu, port.name, owner.name
        );
        c.contradiction(
            port_path,
            what,
            "at least 1280, which IPv6 needs (RFC 8200 (5)), or no IPv6 address",
        );
    }
}

struct Address {
    vnet: usize,
    prefix: IpPrefix,
    eni: usize,
    index: usize,
}

impl Address {
    fn path(&self) -> String {
        format!("eni[{}].addresses[{}]", self.eni, self.index)
    }
}

/// Two ENIs of one VNET share no address, and no ENI states one twice.
fn overlaps(c: &mut Check, mut addresses: Vec<Address>) {
    // Sorted so, every prefix that covers another stands before it, and those that are open at one point cover each other.
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    };
    addresses
        .sort_by_key(|a| (a.vnet, a.prefix.version(), bits(a.prefix.addr()), a.prefix.len(), a.eni, a.index));
    let mut open: Vec<&Address> = Vec::new();
    for address in &addresses {
        let covers = |o: &&Address| o.vnet == address.vnet && o.prefix.covers(&address.prefix);
        while open.last().is_some_and(|o| !covers(o)) {
            open.pop();
        }
        let other = open.iter().rev().find(|o| o.eni != address.eni || o.prefix == address.prefix);
        if let Some(other) = other {
            let (later, earlier) = if (address.eni, address.index) > (other.eni, other.index) {
                (address, *other)
            } else {
                (*other, address)
            };
            collision(c, later, earlier);
        }
        open.push(address);
    }
}

fn collision(c: &mut Check, later: &Address, earlier: &Address) {
    let (eni, first) = (&c.desired.enis[later.eni], &c.desired.enis[earlier.eni]);
    if later.eni == earlier.eni {
        let what = format!("address {} of ENI {:?} stands there twice", later.prefix, eni.name);
        return c.duplicate(later.path(), what, "each address once");
    }
    let relation = if later.prefix == earlier.prefix { "is also that of" } else { "overlaps" };
    let of = if later.prefix == earlier.prefix { String::new() } else { format!("{} of ", earlier.prefix) };
    let what = format!(
        "address {} of ENI {:?} {relation} {of}ENI {:?} (line {}) in the same VNET {:?}",
        later.prefix, eni.name, first.name, first.span.line, eni.vnet
    );
    c.contradiction(later.path(), what, "addresses that no other ENI of the VNET has");
}
