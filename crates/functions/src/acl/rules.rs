//! Rules and groups of them.

use crate::prefix::Prefix;
use crate::scope::{Miss, Scopes};
use core::fmt;
use pipeline::key::FlowKey;
use tables::classifier::{self, Classifier};
use wire::ip::protocol;

pub use tables::classifier::PortRange;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let it pass.
    Allow,
    /// Do not.
    Deny,
    /// Not decidable with these tables.
    Punt,
}

/// One entry of a group. Of those that match, the one with the lowest priority number counts; of those with one priority, the
/// one with the lowest entry id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The entry's id.
    pub entry: u32,
    /// The lower number first.
    pub priority: u32,
    /// Internet protocol number; `None` for all.
    pub protocol: Option<u8>,
    /// Source addresses.
    pub src: Prefix,
    /// Destination addresses.
    pub dst: Prefix,
    /// Source ports. A range other than [`PortRange::ANY`] matches only protocols that have ports.
    pub sport: PortRange,
    /// Destination ports, as `sport`.
    pub dport: PortRange,
    /// The answer.
    pub action: Action,
    /// Whether no later stage may override it.
    pub terminating: bool,
}

/// `tcp 10.0.0.0/24 > any port 80`, `any any port 1024-65535 > fd00::/64`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            None => f.write_str("any")?,
            Some(protocol::ICMP) => f.write_str("icmp")?,
            Some(protocol::TCP) => f.write_str("tcp")?,
            Some(protocol::UDP) => f.write_str("udp")?,
            Some(protocol::ICMPV6) => f.write_str("icmpv6")?,
            Some(protocol::SCTP) => f.write_str("sctp")?,
            Some(other) => write!(f, "proto-{other}")?,
        }
        for (before, prefix, range) in [(" ", self.src, self.sport), (" > ", self.dst, self.dport)] {
            write!(f, "{before}{prefix}")?;
            if range.lo == range.hi {
                write!(f, " port {}", range.lo)?;
            } else if range != PortRange::ANY {
                write!(f, " port {}-{}", range.lo, range.hi)?;
            }
        }
        Ok(())
    }
}

/// In the classifier's last word, beside the protocol: whether it has ports.
const HAS_PORTS: u64 = 1 << 8;
/// In the classifier's last word: the protocol.
const PROTOCOL: u64 = 0xff;

/// Whether the flow key holds the ports of a protocol.
const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP)
}

/// A group of rules.
#[derive(Clone)]
pub struct Group {
    classifier: Classifier,
    /// In order of precedence; the classifier's `data` is the index.
    rules: Vec<Rule>,
    miss: Miss,
}

/// The groups by number.
pub type Groups = Scopes<Group>;

impl Group {
    /// Builds a group from its rules; `miss` is [`Miss::Decide`] if they are all that the group has.
    pub fn build(rules: impl IntoIterator<Item = Rule>, miss: Miss) -> Group {
        let mut rules: Vec<Rule> = rules.into_iter().collect();
        rules.sort_unstable_by_key(|rule| (rule.priority, rule.entry));
        let mut classifier = Classifier::new();
        for (index, rule) in rules.iter().enumerate() {
            classifier.insert(compile(rule, index as u32));
        }
        Group { classifier, rules, miss }
    }

    /// The first rule in precedence that matches, or how a miss is answered.
    #[inline]
    pub fn lookup(&self, key: &FlowKey) -> Result<&Rule, Miss> {
        let found = self.classifier.lookup(&classifier_key(key)).ok_or(self.miss)?;
        Ok(&self.rules[found.data as usize])
    }
}

fn compile(rule: &Rule, index: u32) -> classifier::Rule {
    let mut value = [0; classifier::WORDS];
    let mut mask = [0; classifier::WORDS];
    [value[0], value[1]] = words(rule.src.addr);
    [mask[0], mask[1]] = words(rule.src.mask());
    [value[2], value[3]] = words(rule.dst.addr);
    [mask[2], mask[3]] = words(rule.dst.mask());
    if let Some(protocol) = rule.protocol {
        value[4] |= u64::from(protocol);
        mask[4] |= PROTOCOL;
    }
    let ranges = [rule.sport, rule.dport];
    if ranges != [PortRange::ANY; 2] {
        value[4] |= HAS_PORTS;
        mask[4] |= HAS_PORTS;
    }
    classifier::Rule { value, mask, ranges, priority: rule.priority, data: index }
}

#[inline]
fn classifier_key(key: &FlowKey) -> classifier::Key {
    let ([a, b], [c, d]) = (words(key.src()), words(key.dst()));
    let ports = if has_ports(key.proto) { HAS_PORTS } else { 0 };
    classifier::Key { words: [a, b, c, d, u64::from(key.proto) | ports], ports: [key.sport, key.dport] }
}

#[inline]
const fn words(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}
