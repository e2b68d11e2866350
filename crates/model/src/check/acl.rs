//! ACL stages, groups and rules.

use super::{Check, Names, Unique};
use crate::desired::{AclRule, AclStage, Eni};
use crate::error::{ConfigErrorKind as Kind, Fault};
use crate::net::{IpPrefix, IpVersion, PortRange, Protocol};

/// Stages per direction.
const STAGES: usize = 5;

/// The stages of every ENI, and the groups that they bind.
pub(super) fn stages(c: &mut Check, groups: &Names) {
    let mut bound = vec![false; c.desired.acl_groups.len()];
    for (i, eni) in c.desired.enis.iter().enumerate() {
        for (direction, stages) in [("acl_out", &eni.acl_out), ("acl_in", &eni.acl_in)] {
            let path = format!("eni[{i}].{direction}");
            let mut numbers = Unique::new();
            for (j, stage) in stages.iter().enumerate() {
                let path = format!("{path}[{j}]");
                if j == STAGES {
                    let what = format!("ENI {:?} has {} stages in {direction}", eni.name, stages.len());
                    c.contradiction(path.clone(), what, "at most 5");
                }
                if c.is_read(|| format!("{path}.stage"))
                    && let Some(first) = numbers.claim(stage.stage, j)
                {
                    let what = format!(
                        "stage {} of ENI {:?} in {direction} is there already (line {})",
                        stage.stage, eni.name, stages[first].span.line
                    );
                    c.duplicate(format!("{path}.stage"), what, "each stage once");
                }
                bindings(c, groups, eni, stage, &path, &mut bound);
            }
        }
    }
    for (i, group) in c.desired.acl_groups.iter().enumerate().filter(|(i, _)| !bound[*i]) {
        c.warning(format!("acl_group[{i}]"), format!("no stage binds ACL group {:?}", group.acl_group_id));
    }
}

fn bindings(c: &mut Check, groups: &Names, eni: &Eni, stage: &AclStage, path: &str, bound: &mut [bool]) {
    let sides = [
        ("v4_acl_group_id", &stage.v4_acl_group_id, IpVersion::Ipv4),
        ("v6_acl_group_id", &stage.v6_acl_group_id, IpVersion::Ipv6),
    ];
    let all_read = sides.iter().all(|(key, ..)| c.is_read(|| format!("{path}.{key}")));
    if all_read && sides.iter().all(|(_, id, _)| id.is_none()) {
        let what = format!("stage {} of ENI {:?} has no group", stage.stage, eni.name);
        let fault = Fault::new(Kind::MissingKey, what).expected("v4_acl_group_id, v6_acl_group_id or both");
        return c.error(path.to_string(), fault);
    }
    for (key, id, version) in sides {
        let path = || format!("{path}.{key}");
        let Some(id) = id else {
            if all_read && eni.addresses.iter().any(|a| a.version() == version) {
                let what =
                    format!("stage {} of ENI {:?} has no {key}: {version} skips it", stage.stage, eni.name);
                c.warning(path(), what);
            }
            continue;
        };
        let Some(found) = c.resolve(groups, path, id) else { continue };
        bound[found] = true;
        let group = &c.desired.acl_groups[found];
        if c.is_read(|| format!("acl_group[{found}].ip_version")) && group.ip_version != version {
            let what = format!("ACL group {id:?} (line {}) is for {}", group.span.line, group.ip_version);
            c.contradiction(path(), what, &format!("a group for {version}"));
        }
    }
}

/// The rules of every group.
pub(super) fn groups(c: &mut Check) {
    for (i, group) in c.desired.acl_groups.iter().enumerate() {
        let (mut ids, mut priorities) = (Unique::new(), Unique::new());
        for (j, rule) in group.rules.iter().enumerate() {
            let path = format!("acl_group[{i}].rule[{j}]");
            let line = |first: usize| group.rules[first].span.line;
            if c.is_read(|| format!("{path}.id"))
                && let Some(first) = ids.claim(rule.id.as_str(), j)
            {
                let what =
                    format!("second rule {:?} in its group, the first is at line {}", rule.id, line(first));
                c.duplicate(format!("{path}.id"), what, "an id that is unique in the group");
            }
            if c.is_read(|| format!("{path}.priority"))
                && let Some(first) = priorities.claim(rule.priority, j)
            {
                let what = format!(
                    "priority {} of rule {:?} is that of rule {:?} (line {})",
                    rule.priority,
                    rule.id,
                    group.rules[first].id,
                    line(first)
                );
                c.contradiction(format!("{path}.priority"), what, "a priority that is unique in the group");
            }
            if c.is_read(|| format!("acl_group[{i}].ip_version")) {
                family(c, i, rule, &path);
            }
            ports(c, rule, &path);
        }
    }
}

/// A rule matches packets of its group's version.
fn family(c: &mut Check, group: usize, rule: &AclRule, path: &str) {
    let group = &c.desired.acl_groups[group];
    let lists: [(&str, &[IpPrefix]); 2] = [("src_addr", &rule.src_addr), ("dst_addr", &rule.dst_addr)];
    for (key, list) in lists {
        for (k, prefix) in list.iter().enumerate().filter(|(_, p)| p.version() != group.ip_version) {
            let what = format!(
                "{prefix} of rule {:?} is {}, its ACL group {:?} (line {}) is for {}",
                rule.id,
                prefix.version(),
                group.acl_group_id,
                group.span.line,
                group.ip_version
            );
            c.contradiction(format!("{path}.{key}[{k}]"), what, &format!("an {} prefix", group.ip_version));
        }
    }
    let other = match group.ip_version {
        IpVersion::Ipv4 => Protocol::ICMPV6,
        IpVersion::Ipv6 => Protocol::ICMP,
    };
    if let Some(k) = rule.protocol.iter().position(|p| *p == other) {
        let what = format!("rule {:?} names {other}, which {} hardly carries", rule.id, group.ip_version);
        c.warning(format!("{path}.protocol[{k}]"), what);
    }
}

/// Ports are matched in protocols that have them.
fn ports(c: &mut Check, rule: &AclRule, path: &str) {
    if !c.is_read(|| format!("{path}.protocol")) {
        return;
    }
    let lists: [(&str, &[PortRange]); 2] = [("src_port", &rule.src_port), ("dst_port", &rule.dst_port)];
    let without = rule.protocol.iter().find(|p| !p.has_ports());
    for (key, _) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        let what = match without {
            Some(protocol) => {
                format!("rule {:?} matches {key} of protocol {protocol}, which has no ports", rule.id)
            }
            None if rule.protocol.is_empty() => {
                format!("rule {:?} matches {key} of any protocol, and not all have ports", rule.id)
            }
            None => continue,
        };
        c.contradiction(format!("{path}.{key}"), what, "protocol = [\"tcp\"], [\"udp\"] or both");
    }
}
