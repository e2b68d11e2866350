//! From desired state to rules, and from rules to entries without numbers yet.
//!
//! A rule is one unit of intent: an ENI (its place, its sources, its own addresses), an ACL rule, a route, a mapping. Addresses are
//! written as in [`contract::FieldMatch`]: IPv4 as IPv4-mapped IPv6.

use contract::schema::{self, vnet};
use contract::{Action, ActionId, FieldMatch, TableId};
use model::{AclAction, AclRule, Desired, Eni, IpPrefix, Offload, PortRange, Protocol, RouteAction};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Entries that one rule may become.
pub const MAX_ENTRIES_PER_RULE: usize = 4096;

/// A part of a table: the table and the scope within it.
pub type Scope = (TableId, u32);

/// An entry that has no number yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Draft {
    /// The table.
    pub table: TableId,
    /// The scope.
    pub scope: u32,
    /// The priority; 0 where the match decides.
    pub priority: u32,
    /// One match per key field.
    pub matches: Vec<FieldMatch>,
    /// What to do.
    pub action: Action,
}

/// A rule and what it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledRule {
    /// Unique and stable: `acl/blue-out/allow-web`.
    pub name: String,
    /// The table that the rule is about.
    pub table: TableId,
    /// Its priority; 0 where the match decides.
    pub priority: u32,
    /// It may not be carried out by the host path.
    pub hardware_only: bool,
    /// Its entries, none twice.
    pub drafts: Vec<Draft>,
}

/// The whole desired state, compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// Rules in the order in which a packet meets their tables, then by priority, then as in the file.
    pub rules: Vec<CompiledRule>,
    /// Every part of a table that some ENI or group owns, with entries or without.
    pub scopes: BTreeSet<Scope>,
    /// Numbers of ENIs.
    pub enis: BTreeMap<String, u16>,
}

/// Why desired state cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The lists of a rule multiply to too many entries.
    #[error(
        "{rule}: its lists multiply to {entries} entries; at most {MAX_ENTRIES_PER_RULE} are accepted, split the rule"
    )]
    TooManyEntries {
        /// The rule.
        rule: String,
        /// What the lists multiply to.
        entries: usize,
    },
    /// A port that the device does not have.
    #[error(
        "{rule}: the device has no port {port:?}; its ports are fixed while it runs, restart it with this configuration"
    )]
    UnknownPort {
        /// The rule.
        rule: String,
        /// The port.
        port: String,
    },
    /// A name that stands nowhere in the desired state.
    #[error("{rule}: there is no {kind} {name:?}")]
    UnknownName {
        /// The rule.
        rule: String,
        /// `vnet`, `eni`, `acl_group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Two rules claim one key of a table without an order between them.
    #[error("{first} and {second} both say what becomes of {key} in table {table}")]
    Conflict {
        /// One rule.
        first: String,
        /// The other.
        second: String,
        /// The table's name.
        table: &'static str,
        /// The key in words.
        key: String,
    },
    /// No number is left for an object.
    #[error("no {kind} number is left")]
    NoNumber {
        /// `rule`, `entry`, `eni`, `acl_group`.
        kind: &'static str,
    },
}

/// Numbers of objects that entries refer to.
pub trait Numbering {
    /// The number of an ENI, 1 and up.
    ///
    /// # Errors
    /// [`CompileError::NoNumber`].
    fn eni(&mut self, name: &str) -> Result<u16, CompileError>;

    /// The number of an ACL group, 1 and up.
    ///
    /// # Errors
    /// [`CompileError::NoNumber`].
    fn group(&mut self, name: &str) -> Result<u32, CompileError>;
}

/// Compiles desired state for a device with these ports.
///
/// # Errors
/// [`CompileError`] naming the rule.
pub fn compile(
    desired: &Desired,
    ports: &[String],
    numbers: &mut impl Numbering,
) -> Result<Compiled, CompileError> {
    let mut compiled = Compiled::default();
    compiled.scopes.insert((vnet::ENI, 0));
    for eni in &desired.enis {
        let number = numbers.eni(&eni.name)?;
        compiled.enis.insert(eni.name.clone(), number);
        compiled.scopes.insert((vnet::SOURCE, number.into()));
        compiled.scopes.insert((vnet::ROUTE, number.into()));
    }
    for network in &desired.vnets {
        compiled.scopes.insert((vnet::MAPPING, network.vni));
    }
    let mut groups = BTreeMap::new();
    for group in &desired.acl_groups {
        let number = numbers.group(&group.acl_group_id)?;
        groups.insert(group.acl_group_id.as_str(), number);
        compiled.scopes.insert((vnet::ACL, number));
    }
    let names = Names { desired, ports, enis: &compiled.enis, groups };

    let mut rules = Vec::new();
    for eni in &desired.enis {
        rules.push(names.eni_rule(eni)?);
    }
    for group in &desired.acl_groups {
        let scope = names.groups[group.acl_group_id.as_str()];
        for rule in &group.rules {
            rules.push(acl_rule(&group.acl_group_id, scope, rule)?);
        }
    }
    rules.extend(names.route_rules()?);
    for mapping in &desired.vnet_mappings {
        let name = format!("mapping/{}/{}", mapping.vnet, mapping.ip_address);
        let (port, eni) = names.home(&name, &mapping.eni)?;
        let scope = names.vni(&name, &mapping.vnet)?;
        rules.push(CompiledRule {
            table: vnet::MAPPING,
            priority: 0,
            hardware_only: false,
            drafts: mapping_drafts(scope, mapping.ip_address, port, eni),
            name,
        });
    }
    for rule in &mut rules {
        let mut seen = BTreeSet::new();
        rule.drafts.retain(|d| seen.insert(d.clone()));
    }
    rules.sort_by_key(|r| (r.table, r.priority));
    refuse_conflicts(&rules)?;
    compiled.rules = rules;
    Ok(compiled)
}

struct Names<'a> {
    desired: &'a Desired,
    ports: &'a [String],
    enis: &'a BTreeMap<String, u16>,
    groups: BTreeMap<&'a str, u32>,
}

impl Names<'_> {
    fn port(&self, rule: &str, name: &str) -> Result<u16, CompileError> {
        let index = self.ports.iter().position(|p| p == name);
        index
            .and_then(|i| u16::try_from(i).ok())
            .ok_or_else(|| CompileError::UnknownPort { rule: rule.to_owned(), port: name.to_owned() })
    }

    fn vni(&self, rule: &str, name: &str) -> Result<u32, CompileError> {
        let network = self.desired.vnet(name);
        Ok(network.ok_or_else(|| unknown(rule, "vnet", name))?.vni)
    }

    /// The port that an ENI lives on, and the ENI.
    fn home(&self, rule: &str, eni: &str) -> Result<(u16, &Eni), CompileError> {
        let eni = self.desired.eni(eni).ok_or_else(|| unknown(rule, "eni", eni))?;
        Ok((self.port(rule, &eni.port)?, eni))
    }

    fn eni_rule(&self, eni: &Eni) -> Result<CompiledRule, CompileError> {
        let name = format!("eni/{}", eni.name);
        let number = self.enis[&eni.name];
        let port = self.port(&name, &eni.port)?;
        let vni = self.vni(&name, &eni.vnet)?;
        let flags = if eni.anti_spoof { vnet::FLAG_ANTI_SPOOF } else { 0 };
        let mut groups = [[0u32; vnet::STAGES]; 4];
        for (direction, stages) in [(0, &eni.acl_out), (2, &eni.acl_in)] {
            for stage in stages {
                let ids = [&stage.v4_acl_group_id, &stage.v6_acl_group_id];
                for (family, id) in ids.into_iter().enumerate() {
                    let Some(id) = id else { continue };
                    let number = self.groups.get(id.as_str());
                    let slot = usize::from(stage.stage).wrapping_sub(1);
                    if let Some(place) = groups[direction + family].get_mut(slot) {
                        *place = *number.ok_or_else(|| unknown(&name, "acl_group", id))?;
                    }
                }
            }
        }
        let mut params = vec![number.into(), mac(eni), vni.into(), flags];
        params.extend(groups.iter().flatten().map(|g| u128::from(*g)));
        let mut drafts = vec![Draft {
            table: vnet::ENI,
            scope: 0,
            priority: 0,
            matches: vec![FieldMatch::Exact(port.into())],
            action: action(vnet::SET_ENI, params),
        }];
        for prefix in &eni.addresses {
            for source in without_ipv4(*prefix) {
                drafts.push(Draft {
                    table: vnet::SOURCE,
                    scope: number.into(),
                    priority: 0,
                    matches: vec![source],
                    action: action(vnet::PERMIT, vec![]),
                });
            }
        }
        for prefix in &eni.addresses {
            drafts.extend(mapping_drafts(vni, *prefix, port, eni));
        }
        Ok(CompiledRule { name, table: vnet::ENI, priority: 0, hardware_only: false, drafts })
    }

    fn route_rules(&self) -> Result<Vec<CompiledRule>, CompileError> {
        let mut rules = Vec::new();
        let mut guarded = BTreeSet::new();
        for route in &self.desired.routes {
            let name = format!("route/{}/{}", route.eni, route.prefix);
            let eni = self.enis.get(&route.eni);
            let scope = u32::from(*eni.ok_or_else(|| unknown(&name, "eni", &route.eni))?);
            let to = match (route.action_type, &route.vnet) {
                (RouteAction::Vnet, Some(network)) => {
                    action(vnet::TO_VNET, vec![self.vni(&name, network)?.into()])
                }
                (RouteAction::Vnet, None) => return Err(unknown(&name, "vnet", "")),
                (RouteAction::Drop, _) => action(vnet::BLACKHOLE, vec![]),
            };
            let draft = |matches, action| Draft {
                table: vnet::ROUTE,
                scope,
                priority: 0,
                matches: vec![matches],
                action,
            };
            let mut drafts = vec![draft(prefix(route.prefix), to)];
            // ::/0 covers the IPv4-mapped addresses, by which IPv4 packets are looked up; they stay without a route.
            let has_ipv4_default = self
                .desired
                .routes
                .iter()
                .any(|r| r.eni == route.eni && r.prefix.addr().is_ipv4() && r.prefix.len() == 0);
            if prefix(route.prefix).overlaps(&ALL_IPV4)
                && route.prefix.addr().is_ipv6()
                && !has_ipv4_default
                && guarded.insert(scope)
            {
                drafts.push(draft(ALL_IPV4, action(vnet::BLACKHOLE, vec![])));
            }
            rules.push(CompiledRule { name, table: vnet::ROUTE, priority: 0, hardware_only: false, drafts });
        }
        Ok(rules)
    }
}

fn unknown(rule: &str, kind: &'static str, name: &str) -> CompileError {
    CompileError::UnknownName { rule: rule.to_owned(), kind, name: name.to_owned() }
}

fn acl_rule(group: &str, scope: u32, rule: &AclRule) -> Result<CompiledRule, CompileError> {
    let name = format!("acl/{group}/{}", rule.id);
    let id = match (rule.action, rule.terminating) {
        (AclAction::Allow, false) => vnet::ALLOW,
        (AclAction::Allow, true) => vnet::ALLOW_TERMINATING,
        (AclAction::Deny, false) => vnet::DENY,
        (AclAction::Deny, true) => vnet::DENY_TERMINATING,
    };
    let has_ports = !rule.src_port.is_empty() || !rule.dst_port.is_empty();
    let protocols = if rule.protocol.is_empty() && has_ports {
        &[Protocol::TCP, Protocol::UDP][..]
    } else {
        &rule.protocol
    };
    let lists = [
        any_or(protocols, |p| FieldMatch::Exact(p.0.into())),
        any_or(&rule.src_addr, |p| prefix(*p)),
        any_or(&rule.dst_addr, |p| prefix(*p)),
        any_or(&rule.src_port, range),
        any_or(&rule.dst_port, range),
    ];
    let entries = lists.iter().fold(1usize, |n, l| n.saturating_mul(l.len()));
    if entries > MAX_ENTRIES_PER_RULE {
        return Err(CompileError::TooManyEntries { rule: name, entries });
    }
    let mut products = vec![Vec::new()];
    for list in &lists {
        products = products
            .iter()
            .flat_map(|start: &Vec<FieldMatch>| list.iter().map(move |m| [start.as_slice(), &[*m]].concat()))
            .collect();
    }
    Ok(CompiledRule {
        name,
        table: vnet::ACL,
        priority: rule.priority,
        hardware_only: rule.offload == Offload::HardwareOnly,
        drafts: products
            .into_iter()
            .map(|matches| Draft {
                table: vnet::ACL,
                scope,
                priority: rule.priority,
                matches,
                action: action(id, vec![]),
            })
            .collect(),
    })
}

fn any_or<T>(list: &[T], field: impl Fn(&T) -> FieldMatch) -> Vec<FieldMatch> {
    if list.is_empty() { vec![FieldMatch::Any] } else { list.iter().map(field).collect() }
}

fn mapping_drafts(scope: u32, address: IpPrefix, port: u16, eni: &Eni) -> Vec<Draft> {
    without_ipv4(address)
        .into_iter()
        .map(|place| Draft {
            table: vnet::MAPPING,
            scope,
            priority: 0,
            matches: vec![place],
            action: action(vnet::TO_PORT, vec![port.into(), mac(eni)]),
        })
        .collect()
}

/// Two entries of one key in a table whose order follows from the match would both be right: nobody could say which.
fn refuse_conflicts(rules: &[CompiledRule]) -> Result<(), CompileError> {
    let mut keys: BTreeMap<(TableId, u32, &[FieldMatch]), &str> = BTreeMap::new();
    for rule in rules {
        for draft in rule.drafts.iter().filter(|d| d.table != vnet::ACL) {
            let key = (draft.table, draft.scope, draft.matches.as_slice());
            if let Some(first) = keys.insert(key, &rule.name) {
                return Err(CompileError::Conflict {
                    first: first.to_owned(),
                    second: rule.name.clone(),
                    table: crate::words::table(draft.table),
                    key: crate::words::matches(draft.table, &draft.matches),
                });
            }
        }
    }
    Ok(())
}

fn action(id: ActionId, params: Vec<u128>) -> Action {
    Action { id, params }
}

fn mac(eni: &Eni) -> u128 {
    eni.mac_address.0.iter().fold(0, |mac, byte| mac << 8 | u128::from(*byte))
}

fn range(range: &PortRange) -> FieldMatch {
    FieldMatch::Range { low: range.first().into(), high: range.last().into() }
}

const ALL_IPV4: FieldMatch = FieldMatch::Prefix { value: 0xffff << 32, len: 96 };

fn prefix(prefix: IpPrefix) -> FieldMatch {
    match prefix.addr() {
        IpAddr::V4(a) => FieldMatch::Prefix { value: a.to_ipv6_mapped().to_bits(), len: 96 + prefix.len() },
        IpAddr::V6(a) => FieldMatch::Prefix { value: a.to_bits(), len: prefix.len() },
    }
}

/// The prefix, less the IPv4-mapped addresses if it is an IPv6 prefix that covers them.
fn without_ipv4(whole: IpPrefix) -> Vec<FieldMatch> {
    let FieldMatch::Prefix { value: v4, .. } = ALL_IPV4 else {
        return vec![prefix(whole)];
    };
    if whole.addr().is_ipv4() || !prefix(whole).overlaps(&ALL_IPV4) {
        return vec![prefix(whole)];
    }
    (whole.len() + 1..=96)
        .map(|len| FieldMatch::Prefix {
            value: (v4 ^ 1 << (128 - u32::from(len))) & (u128::MAX << (128 - u32::from(len))),
            len,
        })
        .collect()
}

/// What orders the entries of one table and scope: the lower first.
pub fn precedence(entry: &contract::Entry) -> (u32, contract::EntryId) {
    let lpm = schema::vnet::PROGRAM.table(entry.table).is_some_and(schema::Table::is_lpm);
    let order = match entry.matches.first() {
        Some(FieldMatch::Prefix { len, .. }) if lpm => 128 - u32::from(*len),
        Some(_) if lpm => 128,
        _ => entry.priority,
    };
    (order, entry.id)
}
