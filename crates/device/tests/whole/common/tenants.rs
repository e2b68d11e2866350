//! The policy of two tenants with the same addresses.
//!
//! | port | ENI | VNET | addresses |
//! | --- | --- | --- | --- |
//! | 0 `blue-1` | 1 | 100 | `10.0.0.1`, `fd00::1` |
//! | 1 `blue-2` | 2 | 100 | `10.0.0.2`, `fd00::2` |
//! | 2 `red-1` | 3 | 200 | `10.0.0.1`, `fd00::1` |
//! | 3 `red-2` | 4 | 200 | `10.0.0.2`, `fd00::2`, and `10.2.0.9`, `fd02::9`, to which blue-1 has a route |
//! | 4 `spare` | none | | |

use super::{Groups, Policy};
use contract::schema::vnet::{ALLOW, ALLOW_TERMINATING, DENY, DENY_TERMINATING, FLAG_ANTI_SPOOF};
use device::{Config, PortDescription};
use model::Profile;
use std::net::IpAddr;
use wire::ip::protocol::UDP;

/// Ports by index.
pub const BLUE_1: usize = 0;
pub const BLUE_2: usize = 1;
pub const RED_1: usize = 2;
pub const RED_2: usize = 3;
pub const SPARE: usize = 4;
/// The MTU of each port.
pub const MTU: u32 = 1500;

/// The MAC address of the ENI on a port.
pub fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, port as u8]
}

/// What ENIs send to: their neighbours' addresses are the device's answers, so any will do.
pub const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

/// Which IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Family {
    /// The address of this family whose IPv4 form is given: `10.A.0.N` is `fdA::N` in IPv6, `fd00::N` for A = 0.
    pub fn of(self, v4: &str) -> IpAddr {
        let IpAddr::V4(address) = v4.parse().expect("an address") else { panic!("{v4} is not IPv4") };
        let [_, net, _, host] = address.octets();
        match self {
            Family::V4 => address.into(),
            Family::V6 => format!("fd{net:02}::{host}").parse().expect("an address"),
        }
    }

    /// `10.0.0.n` or `fd00::n`.
    pub fn host(self, n: u8) -> IpAddr {
        self.of(&format!("10.0.0.{n}"))
    }

    /// Bytes of its header.
    pub fn header(self) -> usize {
        match self {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }
}

/// A device with the ports of the two tenants and no limits.
pub fn config() -> Config {
    let names = ["blue-1", "blue-2", "red-1", "red-2", "spare"];
    let ports = names.map(|name| PortDescription {
        name: name.into(),
        kind: "memory".into(),
        interface: String::new(),
        mtu: MTU,
    });
    // Few buffers: a frame that does not come home is missed soon.
    Config {
        small_buffers: 256,
        large_buffers: 16,
        ..Config::new(Profile { name: "unlimited".into(), ..Profile::default() }, ports.to_vec())
    }
}

fn groups(out: [u32; 2], inbound: [u32; 1]) -> Groups {
    // IPv6 has groups of its own, 100 above.
    let out = |add| [out[0], out[1], 0, 0, 0].map(|g| if g == 0 { 0 } else { g + add });
    let inbound = |add| [inbound[0], 0, 0, 0, 0].map(|g| if g == 0 { 0 } else { g + add });
    [out(0), out(100), inbound(0), inbound(100)]
}

/// The policy. Its destination ports tell the rules apart: see the rows of `rows.rs`.
pub fn tenants() -> Policy {
    let mut p = Policy::default();
    p.eni(0, 1, mac(BLUE_1), 100, FLAG_ANTI_SPOOF, groups([11, 12], [0]));
    p.eni(1, 2, mac(BLUE_2), 100, FLAG_ANTI_SPOOF, groups([14, 0], [13]));
    p.eni(2, 3, mac(RED_1), 200, FLAG_ANTI_SPOOF, groups([0, 0], [0]));
    p.eni(3, 4, mac(RED_2), 200, FLAG_ANTI_SPOOF, groups([0, 0], [0]));
    for family in [0, 100] {
        // blue-1 outbound, stage 1.
        p.rule(11 + family, 10, DENY_TERMINATING, Some(UDP), Some(600));
        p.rule(11 + family, 20, DENY, Some(UDP), Some(601));
        p.rule(11 + family, 30, ALLOW_TERMINATING, Some(UDP), Some(602));
        p.rule(11 + family, 100, ALLOW, None, None);
        // Stage 2: no answer for what is neither TCP, UDP nor ICMP.
        p.rule(12 + family, 10, DENY, Some(UDP), Some(600 + 3));
        p.rule(12 + family, 10, DENY, Some(UDP), Some(602));
        p.rule(12 + family, 5, ALLOW, Some(UDP), Some(605));
        p.rule(12 + family, 6, DENY, Some(UDP), Some(605));
        for protocol in [1, 6, 17, 58] {
            p.rule(12 + family, 100, ALLOW, Some(protocol), None);
        }
        // blue-2 inbound.
        p.rule(13 + family, 10, DENY, Some(UDP), Some(604));
        p.rule(13 + family, 100, ALLOW, None, None);
        // blue-2 outbound: what goes to port 1000 passes as an answer only.
        p.rule(14 + family, 10, DENY, None, Some(1000));
        p.rule(14 + family, 100, ALLOW, None, None);
    }
    for (port, vnet, n) in [(0, 100, 1), (1, 100, 2), (2, 200, 1), (3, 200, 2)] {
        let eni = port + 1;
        for family in FAMILIES {
            let own = family.host(n).to_string();
            p.source(eni, &own);
            p.mapping(vnet, &own, port, mac(port as usize));
        }
        p.route(eni, "10.0.0.0/24", Some(vnet));
        p.route(eni, "fd00::/64", Some(vnet));
    }
    for (net, net6, vnet) in [("10.66.0.0/16", "fd66::/16", None), ("10.2.0.0/16", "fd02::/16", Some(200))] {
        p.route(1, net, vnet);
        p.route(1, net6, vnet);
    }
    for family in FAMILIES {
        p.mapping(200, &family.of("10.2.0.9").to_string(), 3, mac(RED_2));
        p.mapping(100, &family.host(77).to_string(), 4, mac(SPARE));
    }
    p
}

/// The numbers of its ENIs.
pub const ENIS: [u16; 4] = [1, 2, 3, 4];
