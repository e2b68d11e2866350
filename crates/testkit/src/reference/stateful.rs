//! The reference with a memory: which connections there are, and what that makes of the next packet.
//!
//! A connection runs under one verdict, that of its opening direction; answers and ICMP errors about it share it. After a change of
//! policy each one is judged again, and one that is denied ends. When exactly that is noticed is the device's business, within its
//! bound, so that some connections are *doubtful*: a packet of theirs may be taken as theirs or as the first of a new one. While a
//! change is under way, a packet is judged by the old policy as a whole or by the new one as a whole.

use super::{Exit, Judged, Judgement, Packet, Policy, TCP, Tuple, What, exit};
use model::Eni;
use packet::DropReason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// After this long without a packet a connection may have ended, ns; below every limit of the standards (RFC 4787, REQ-5 for UDP; 30 s
/// is the shortest limit in use, for what was never answered).
const IDLE: u64 = 25_000_000_000;

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It left.
    Delivered(Exit),
    /// It did not.
    Dropped(DropReason),
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Where it was opened.
    pub port: String,
    /// The ENI that opened it.
    pub eni: String,
    /// The direction in which it was opened.
    pub tuple: Tuple,
    /// The ENI at its other end when its last packet passed, empty if that is not known. Where a change of policy puts another ENI there, its answers may be
    /// taken for something new until the connection is judged again.
    pub peer: String,
    /// Whether there was another one with the same tuple, from another ENI, as happens between VNETs with the same addresses: nobody
    /// can say whose the answers are.
    pub hidden: bool,
    /// Whether it may be there or not.
    pub doubtful: bool,
    /// Its last packet, ns.
    pub seen: u64,
}

/// An outcome that the policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What becomes of the packet.
    pub outcome: Outcome,
    /// Rules that are hit.
    pub rules: Vec<String>,
    /// What it means for the connections.
    effect: Effect,
    /// The ENIs at both ends, as this policy has them.
    ends: [String; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It belongs to this connection.
    Known(usize),
    /// It opens one.
    Opens,
    /// It belongs to none.
    Alone,
    /// Nobody looked at the policy.
    Unjudged,
}

/// The full policy, with connections.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    policies: Vec<Arc<Policy>>,
    connections: Vec<Connection>,
    /// Reasons for which a packet may be dropped whatever the policy says.
    pub tolerated: Vec<DropReason>,
    /// Frames by rule, as far as they are certain.
    pub hits: BTreeMap<String, u64>,
    /// Whether `hits` is exact since it was last cleared.
    pub exact: bool,
}

impl Reference {
    /// Under this policy, without connections.
    pub fn new(policy: Policy) -> Reference {
        Reference { policies: vec![Arc::new(policy)], exact: true, ..Reference::default() }
    }

    /// A change to this policy is under way; there may be several, one after the other.
    pub fn change(&mut self, policy: Policy) {
        self.policies.push(Arc::new(policy));
        self.doubt();
    }

    /// The policy at this place of [`policies`](Self::policies) is in force, and none before it any more.
    pub fn in_force(&mut self, place: usize) {
        self.policies.drain(..place);
        self.doubt();
    }

    /// The change at this place of [`policies`](Self::policies) is not going to be.
    pub fn withdrawn(&mut self, place: usize) {
        self.policies.remove(place);
        self.doubt();
    }

    /// The policy in force, and those that may be in its place already.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Connections, doubtful ones included.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Forgets connections that a policy in force denies. To be called when the device had the time to judge all of them again.
    pub fn judged_again(&mut self) {
        let policies = std::mem::take(&mut self.policies);
        self.connections.retain(|c| policies.iter().any(|p| opening(p, c).is_some()));
        self.policies = policies;
    }

    /// Connections that some policy denies may have ended.
    fn doubt(&mut self) {
        let policies = &self.policies;
        for connection in &mut self.connections {
            connection.doubtful |= policies.iter().any(|p| opening(p, connection).is_none());
        }
        self.exact &= policies.len() == 1;
    }

    /// All that may become of a packet at `now`.
    pub fn expect(&self, packet: &Packet, now: u64) -> Vec<Expected> {
        let mut expected = Vec::new();
        for policy in &self.policies {
            self.expect_under(policy, packet, now, &mut expected);
        }
        expected.extend(self.tolerated.iter().map(|&reason| dropped(reason, vec![], Effect::Unjudged)));
        expected
    }

    fn expect_under(&self, policy: &Policy, packet: &Packet, now: u64, expected: &mut Vec<Expected>) {
        let mut add = |e: Expected| {
            if !expected.contains(&e) {
                expected.push(e);
            }
        };
        let Some(eni) = policy.eni_at(&packet.port) else {
            return add(dropped(DropReason::NoEni, vec![], Effect::Alone));
        };
        if eni.anti_spoof && packet.mac != eni.mac_address {
            return add(dropped(DropReason::SpoofedMac, vec![], Effect::Unjudged));
        }
        let (tuple, source) = match packet.what {
            What::Error(source) => (packet.tuple.reversed(), Some(source)),
            _ => (packet.tuple, None),
        };
        let (mut fresh, mut ghost) = (true, false);
        for (index, connection) in self.connections.iter().enumerate() {
            let Some((exit, rules)) = member(policy, connection, &packet.port, &eni.name, &tuple) else {
                // Until it is noticed that this one ended, its answers may hide those of a new one with the same tuple.
                ghost |= connection.tuple == tuple.reversed() && connection.doubtful;
                continue;
            };
            let answer = connection.port != packet.port || connection.eni != eni.name;
            let moved = answer && (eni.name != connection.peer || connection.hidden);
            fresh &= connection.doubtful || moved || now - connection.seen > IDLE;
            if source.is_some_and(|source| !policy.permits(eni, source)) {
                add(dropped(DropReason::SpoofedIp, vec![], Effect::Unjudged));
            } else {
                add(delivered(policy, eni, exit, rules, Effect::Known(index)));
            }
        }
        if !fresh && !ghost {
            return;
        }
        if let Some(source) = source {
            let permitted = policy.permits(eni, source);
            let reason = if permitted { DropReason::IcmpErrorNoConnection } else { DropReason::SpoofedIp };
            return add(dropped(reason, vec![], Effect::Alone));
        }
        let Judgement { answer, rules } = policy.judge(&packet.port, &packet.tuple);
        add(match (answer, packet.what) {
            (Judged::Denied(reason), _) => dropped(reason, rules, Effect::Alone),
            (Judged::Allowed(_), What::Follower) if tuple.protocol == TCP => {
                dropped(DropReason::TcpNoConnection, vec![], Effect::Alone)
            }
            (Judged::Allowed(_), What::Follower) => {
                dropped(DropReason::IcmpNoConnection, vec![], Effect::Alone)
            }
            (Judged::Allowed(exit), _) => delivered(policy, eni, exit, rules, Effect::Opens),
        });
    }

    /// Takes note of what became of a packet at `now`.
    ///
    /// # Errors
    /// All that would have been right, if it is none of that.
    pub fn observe(&mut self, packet: &Packet, outcome: &Outcome, now: u64) -> Result<(), Vec<Expected>> {
        let expected = self.expect(packet, now);
        let explanations: Vec<&Expected> = expected.iter().filter(|e| e.outcome == *outcome).collect();
        let [first, others @ ..] = &explanations[..] else {
            return Err(expected);
        };
        let certain = others.is_empty();
        self.exact &= others.iter().all(|e| e.rules == first.rules);
        for rule in &first.rules {
            *self.hits.entry(rule.clone()).or_default() += 1;
        }
        let mut ended = Vec::new();
        for explanation in &explanations {
            let [sender, receiver] = &explanation.ends;
            match explanation.effect {
                Effect::Known(index) => {
                    let connection = &mut self.connections[index];
                    connection.doubtful &= !certain || self.policies.len() > 1;
                    connection.seen = now;
                    let forward = connection.port == packet.port && connection.eni == *sender;
                    connection.peer.clone_from(if forward { receiver } else { sender });
                    if explanations.iter().any(|e| e.ends != explanation.ends) {
                        connection.peer.clear();
                    }
                }
                Effect::Opens => {
                    if certain {
                        ended.extend(self.disproved(packet));
                    }
                    let same = |c: &Connection| c.tuple == packet.tuple || c.tuple == packet.tuple.reversed();
                    let hidden = self.connections.iter().any(same);
                    self.connections.iter_mut().filter(|c| same(c)).for_each(|c| c.hidden = true);
                    self.connections.push(Connection {
                        hidden,
                        port: packet.port.clone(),
                        eni: sender.clone(),
                        peer: receiver.clone(),
                        tuple: packet.tuple,
                        doubtful: !certain || self.policies.len() > 1,
                        seen: now,
                    });
                }
                Effect::Alone if certain && self.policies.len() == 1 => ended.extend(self.disproved(packet)),
                Effect::Alone | Effect::Unjudged => {}
            }
        }
        ended.sort_unstable();
        ended.dedup();
        for index in ended.into_iter().rev() {
            self.connections.remove(index);
        }
        Ok(())
    }

    /// Doubtful connections that are not there if a packet was not taken as theirs.
    fn disproved(&self, packet: &Packet) -> Vec<usize> {
        let tuple = match packet.what {
            What::Error(_) => packet.tuple.reversed(),
            _ => packet.tuple,
        };
        let eni = self.policies[0].eni_at(&packet.port).map_or("", |e| &e.name);
        let disproved = |c: &Connection| {
            let forward = c.tuple == tuple && c.port == packet.port && c.eni == eni;
            let backward = c.tuple == tuple.reversed() && c.peer == eni && !c.hidden;
            c.doubtful
                && (forward || backward && member(&self.policies[0], c, &packet.port, eni, &tuple).is_some())
        };
        (0..self.connections.len()).filter(|&i| disproved(&self.connections[i])).collect()
    }
}

fn dropped(reason: DropReason, rules: Vec<String>, effect: Effect) -> Expected {
    Expected { outcome: Outcome::Dropped(reason), rules, effect, ends: Default::default() }
}

fn delivered(policy: &Policy, from: &Eni, exit: Exit, rules: Vec<String>, effect: Effect) -> Expected {
    let to = policy.eni_at(&exit.port).map_or(String::new(), |eni| eni.name.clone());
    Expected { outcome: Outcome::Delivered(exit), rules, effect, ends: [from.name.clone(), to] }
}

/// Where the opener's packets leave, and the rules met, if the policy lets them pass.
fn opening(policy: &Policy, connection: &Connection) -> Option<(Exit, Vec<String>)> {
    policy.eni_at(&connection.port).filter(|eni| eni.name == connection.eni)?;
    match policy.judge(&connection.port, &connection.tuple) {
        Judgement { answer: Judged::Allowed(exit), rules } => Some((exit, rules)),
        _ => None,
    }
}

/// Where a packet with this tuple, in at this port, leaves as one of the connection, if it is one.
fn member(
    policy: &Policy,
    connection: &Connection,
    port: &str,
    eni: &str,
    tuple: &Tuple,
) -> Option<(Exit, Vec<String>)> {
    let forward = connection.tuple == *tuple && connection.port == port && connection.eni == eni;
    let backward = connection.tuple == tuple.reversed();
    if !forward && !backward {
        return None;
    }
    let (there, rules) = opening(policy, connection)?;
    if forward {
        Some((there, rules))
    } else {
        let opener = policy.eni_at(&connection.port)?;
        (there.port == port).then(|| (exit(opener), rules))
    }
}
