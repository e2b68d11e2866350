//! Generated policies: more rules than a tiny device holds, and the verdict that they state.

use super::probes::Probe;
use crate::error::LabError;
use model::{AclAction, AclGroup, AclRule, AclStage, Desired, IpVersion, Offload, PortRange, Protocol, Span};

/// The group that holds the generated rules: what blue-1 sends.
pub(crate) const GROUP: &str = "blue-out";

/// A rule for TCP to the ports `first..=last`.
pub(crate) fn tcp(id: &str, priority: u32, action: AclAction, first: u16, last: u16) -> AclRule {
    rule(id, priority, action, Some(Protocol::TCP), Some((first, last)))
}

fn udp(id: &str, priority: u32, action: AclAction, first: u16, last: u16) -> AclRule {
    rule(id, priority, action, Some(Protocol::UDP), Some((first, last)))
}

fn rule(
    id: &str,
    priority: u32,
    action: AclAction,
    protocol: Option<Protocol>,
    ports: Option<(u16, u16)>,
) -> AclRule {
    // Both ends are constants of this file, in order.
    let ports = ports.and_then(|(first, last)| PortRange::new(first, last).ok());
    AclRule {
        id: id.into(),
        priority,
        action,
        terminating: true,
        protocol: protocol.into_iter().collect(),
        src_addr: Vec::new(),
        dst_addr: Vec::new(),
        src_port: Vec::new(),
        dst_port: ports.into_iter().collect(),
        offload: Offload::Any,
        span: Span::default(),
    }
}

/// The rules that come first: twelve allows, which fill the ACL table of the profile `tiny`.
///
/// ```text
/// tcp 5000-5999 | udp 6000-6019, 6020-6039 ... 6160-6179 (nine) | udp 6200-6219 | anything
/// ```
pub(crate) fn allows() -> Vec<AclRule> {
    let mut rules = vec![tcp("a-tcp", 100, AclAction::Allow, 5000, 5999)];
    rules.extend((0..9).map(|i| {
        let first = 6000 + 20 * i;
        udp(&format!("a-{first}"), 101 + u32::from(i), AclAction::Allow, first, first + 19)
    }));
    rules.push(udp("a-6200", 111, AclAction::Allow, 6200, 6219));
    rules.push(rule("a-any", 200, AclAction::Allow, None, None));
    rules
}

/// The rules that come on top, before the allows in precedence: denies, and exceptions from some of them.
pub(crate) fn on_top() -> Vec<AclRule> {
    let (allow, deny) = (AclAction::Allow, AclAction::Deny);
    let mut rules = vec![
        // Each of these overrides several allows.
        udp("d-6010", 11, deny, 6010, 6089),
        udp("d-6110", 12, deny, 6110, 6169),
        // This one overrides one allow, and the last one.
        udp("d-6205", 13, deny, 6205, 6209),
    ];
    for i in 0..3 {
        let first = 6300 + 10 * i;
        rules.push(udp(&format!("x-{first}"), 1 + u32::from(i), allow, first, first));
        rules.push(udp(&format!("d-{first}"), 21 + u32::from(i), deny, first, first + 9));
    }
    rules.extend((0..5).map(|i| {
        let first = 6400 + 10 * i;
        tcp(&format!("d-tcp-{first}"), 24 + u32::from(i), deny, first, first + 4)
    }));
    rules.extend((0..14).map(|i| {
        let first = 6500 + 10 * i;
        udp(&format!("d-{first}"), 31 + u32::from(i), deny, first, first + 4)
    }));
    rules
}

/// The laboratory's device with these rules alone, for what blue-1 sends over IPv4.
pub(crate) fn device(base: &Desired, profile: &str, rules: Vec<AclRule>) -> Result<Desired, LabError> {
    let mut device = base.clone();
    device.device.profile = profile.into();
    for eni in &mut device.enis {
        eni.acl_out.clear();
        eni.acl_in.clear();
    }
    let eni = device.enis.iter_mut().find(|e| e.name == "blue-1");
    let eni = eni.ok_or_else(|| LabError::Topology("the scenario needs an ENI named blue-1".into()))?;
    eni.acl_out = vec![AclStage {
        stage: 1,
        v4_acl_group_id: Some(GROUP.into()),
        v6_acl_group_id: None,
        span: Span::default(),
    }];
    device.acl_groups = vec![AclGroup {
        acl_group_id: GROUP.into(),
        ip_version: IpVersion::Ipv4,
        rules,
        span: Span::default(),
    }];
    Ok(device)
}

/// Whether a rule matches a probe from blue-1 to blue-2.
fn matches(rule: &AclRule, probe: Probe) -> bool {
    let (protocol, port) = match probe {
        Probe::Udp(port) => (Protocol::UDP, Some(port)),
        Probe::Tcp(port) => (Protocol::TCP, Some(port)),
        Probe::Ping => (Protocol::ICMP, None),
    };
    let of_protocol = rule.protocol.is_empty() || rule.protocol.contains(&protocol);
    let of_port =
        rule.dst_port.is_empty() || rule.dst_port.iter().any(|r| port.is_some_and(|p| r.contains(p)));
    of_protocol && of_port
}

/// The rules that match a probe, the one that decides first. A plain scan, for comparison with the device.
pub(crate) fn matching(rules: &[AclRule], probe: Probe) -> Vec<&AclRule> {
    let mut found: Vec<&AclRule> = rules.iter().filter(|r| matches(r, probe)).collect();
    found.sort_by_key(|r| r.priority);
    found
}

/// The packets by which the verdicts are compared.
pub(crate) fn probes() -> Vec<Probe> {
    let udp = |ports: &[u16]| ports.iter().map(|p| Probe::Udp(*p)).collect::<Vec<_>>();
    let mut probes: Vec<Probe> = (0..16).map(|i| Probe::Udp(6010 + 5 * i)).collect();
    probes.extend((0..12).map(|i| Probe::Udp(6110 + 5 * i)));
    probes.extend(udp(&[6205, 6207, 6301, 6311, 6500, 6510, 6634]));
    probes.extend(udp(&[6300, 6310, 6320]));
    probes.extend(udp(&[6000, 6005, 6090, 6100, 6105, 6175, 6200, 6505, 6700, 6701, 6702, 6703]));
    probes.extend([6400, 6410, 6600, 6601, 5001].map(Probe::Tcp));
    probes.push(Probe::Ping);
    probes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_rule_set_is_as_said() {
        let (allows, top) = (allows(), on_top());
        let tiny = model::Profile::built_in("tiny").expect("built in");
        assert_eq!(tiny.limit("acl"), Some(allows.len() as u32));
        assert!(allows.iter().all(|r| r.action == AclAction::Allow));
        assert_eq!(allows.len() + top.len(), 40);
        let all: Vec<AclRule> = [allows, top].concat();
        let unique = |f: fn(&AclRule) -> String| all.iter().map(f).collect::<BTreeSet<_>>().len();
        assert_eq!((unique(|r| r.id.clone()), unique(|r| r.priority.to_string())), (40, 40));
        assert!(all.iter().all(|r| r.dst_port.len() <= 1 && r.protocol.len() <= 1));
    }

    #[test]
    fn probes_are_distinct_and_decided() {
        let rules: Vec<AclRule> = [allows(), on_top()].concat();
        let probes = probes();
        assert_eq!(probes.iter().collect::<BTreeSet<_>>().len(), probes.len());
        for (probe, action) in [
            (Probe::Udp(6009), AclAction::Allow),
            (Probe::Udp(6010), AclAction::Deny),
            (Probe::Udp(6300), AclAction::Allow),
            (Probe::Udp(6301), AclAction::Deny),
            (Probe::Tcp(6400), AclAction::Deny),
            (Probe::Udp(6400), AclAction::Allow),
            (Probe::Ping, AclAction::Allow),
        ] {
            assert_eq!(matching(&rules, probe)[0].action, action, "{probe:?}");
        }
    }
}
