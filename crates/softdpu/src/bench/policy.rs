//! The policy that measurements run under: two ENIs of one VNET, anti-spoofing, two outbound ACL stages, routes and mappings.

use crate::failure::{Failure, Result};
use contract::schema::vnet;
use contract::{
    Action, ActionId, Command, CommandId, Entry, EntryId, FieldMatch, Op, RuleRef, Session, TableId, Target,
    Version,
};
use device::{Asker, SoftDevice};
use std::net::Ipv4Addr;
use wire::ip::protocol;

/// One ENI; its port's index is its place in the pair.
#[derive(Clone, Copy)]
pub struct Side {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its addresses: a prefix and its length.
    pub prefix: (Ipv4Addr, u8),
}

/// Session of the measurement; it is the only one.
const SESSION: Session = Session(1);
const VNET: u32 = 1;
/// The groups of outbound stages 1 and 2, the same for both ENIs.
const GROUPS: [u32; 2] = [1, 2];

/// Installs the policy for the device and for its host path, and arms both ENIs. Each ACL stage has `rules` rules, of which
/// the last in priority is the one that lets the traffic of both sides pass.
pub fn install(device: &mut SoftDevice, sides: [Side; 2], rules: u32) -> Result {
    let mut commands = vec![Command::Hello { session: SESSION }];
    for target in [Target::Device, Target::Host] {
        let ops = entries(sides, rules).into_iter().map(|entry| Op::Insert { target, entry });
        commands.extend(ops.map(Command::Stage));
    }
    commands.push(Command::Commit { version: Version(1) });
    commands.push(Command::Arm { enis: vec![1, 2] });
    for (id, command) in (1..).zip(commands) {
        device.take(Asker::default(), SESSION, CommandId(id), command);
        device.poll(0);
        while let Some((_, completion)) = device.completed() {
            completion.outcome.map_err(|reason| Failure::new(format!("the policy: {reason}")))?;
        }
    }
    Ok(())
}

fn entries(sides: [Side; 2], rules: u32) -> Vec<Entry> {
    let mut list = List(Vec::new());
    let anywhere = prefix(Ipv4Addr::UNSPECIFIED, 0);
    for (port, side) in (0u16..).zip(sides) {
        let (eni, prefix) = (port + 1, side.prefix());
        let mut params = vec![eni.into(), side.mac(), VNET.into(), vnet::FLAG_ANTI_SPOOF];
        params.extend(GROUPS.map(u128::from));
        params.resize(4 + 4 * vnet::STAGES, 0);
        list.add(vnet::ENI, 0, 0, vec![FieldMatch::Exact(port.into())], vnet::SET_ENI, params);
        list.add(vnet::SOURCE, eni.into(), 0, vec![prefix], vnet::PERMIT, vec![]);
        list.add(vnet::ROUTE, eni.into(), 0, vec![anywhere], vnet::TO_VNET, vec![VNET.into()]);
        list.add(vnet::MAPPING, VNET, 0, vec![prefix], vnet::TO_PORT, vec![port.into(), side.mac()]);
    }
    for group in GROUPS {
        for n in 1..rules {
            list.add(vnet::ACL, group, n, other_traffic(n), vnet::DENY, vec![]);
        }
        list.add(vnet::ACL, group, rules, vec![FieldMatch::Any; 5], vnet::ALLOW, vec![]);
    }
    list.0
}

/// Matches nothing that is sent here: UDP to a network that is not there.
fn other_traffic(n: u32) -> Vec<FieldMatch> {
    let len = [20, 24, 28, 32][n as usize % 4];
    let mask = u32::MAX << (32 - len);
    let network = Ipv4Addr::from((u32::from(Ipv4Addr::new(172, 16, 0, 0)) + n * 16) & mask);
    let port = u64::from(n % 60_000);
    vec![
        FieldMatch::Exact(protocol::UDP.into()),
        FieldMatch::Any,
        prefix(network, len as u8),
        FieldMatch::Any,
        FieldMatch::Range { low: port, high: port + 100 },
    ]
}

impl Side {
    fn prefix(&self) -> FieldMatch {
        prefix(self.prefix.0, self.prefix.1)
    }

    fn mac(&self) -> u128 {
        self.mac.iter().fold(0, |bits, &byte| bits << 8 | u128::from(byte))
    }
}

fn prefix(network: Ipv4Addr, len: u8) -> FieldMatch {
    FieldMatch::Prefix { value: network.to_ipv6_mapped().into(), len: 96 + len }
}

/// Entries, numbered as they come.
struct List(Vec<Entry>);

impl List {
    fn add(
        &mut self,
        table: TableId,
        scope: u32,
        priority: u32,
        matches: Vec<FieldMatch>,
        id: ActionId,
        params: Vec<u128>,
    ) {
        let number = self.0.len() as u32 + 1;
        self.0.push(Entry {
            id: EntryId(number),
            rule: RuleRef { rule: number, revision: 1 },
            table,
            scope,
            priority,
            matches,
            action: Action { id, params },
        });
    }
}
