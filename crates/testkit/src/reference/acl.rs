//! ACL stages, as DASH means them: "terminating" ends the pipeline with that answer, a later stage overrides any other; a stage
//! without a group is skipped; a stage with a group and no match denies and ends.

use super::{Policy, TCP, Tuple, UDP, Upper};
use model::{AclAction, AclGroup, AclRule, AclStage, IpPrefix, PortRange};

impl Policy {
    /// Whether the stages let it pass.
    pub(super) fn acl_allows(&self, stages: &[AclStage], tuple: &Tuple, rules: &mut Vec<String>) -> bool {
        let mut allowed = true;
        for number in 1..=5 {
            let Some(stage) = stages.iter().find(|s| s.stage == number) else { continue };
            let id = if tuple.src.is_ipv4() { &stage.v4_acl_group_id } else { &stage.v6_acl_group_id };
            let Some(id) = id else { continue };
            let rule = self.desired.acl_group(id).and_then(|group| first_match(group, tuple));
            let Some(rule) = rule else { return false };
            rules.push(format!("acl/{id}/{}", rule.id));
            allowed = rule.action == AclAction::Allow;
            if rule.terminating {
                return allowed;
            }
        }
        allowed
    }
}

/// The rule of the lowest priority number that matches.
pub fn first_match<'g>(group: &'g AclGroup, tuple: &Tuple) -> Option<&'g AclRule> {
    let mut best: Option<&AclRule> = None;
    for rule in &group.rules {
        if matches(rule, tuple) && best.is_none_or(|b| rule.priority < b.priority) {
            best = Some(rule);
        }
    }
    best
}

/// Whether a rule matches a packet.
pub fn matches(rule: &AclRule, tuple: &Tuple) -> bool {
    let protocol = rule.protocol.is_empty() || rule.protocol.iter().any(|p| p.0 == tuple.protocol);
    let address = |list: &[IpPrefix], a| list.is_empty() || list.iter().any(|p| p.contains(a));
    protocol && address(&rule.src_addr, tuple.src) && address(&rule.dst_addr, tuple.dst) && ports(rule, tuple)
}

/// A rule that names ports matches nothing without ports.
fn ports(rule: &AclRule, tuple: &Tuple) -> bool {
    let port =
        |list: &[PortRange], p| list.is_empty() || list.iter().any(|r| r.first() <= p && p <= r.last());
    match tuple.upper {
        Upper::Ports(src, dst) if matches!(tuple.protocol, TCP | UDP) => {
            port(&rule.src_port, src) && port(&rule.dst_port, dst)
        }
        _ => rule.src_port.is_empty() && rule.dst_port.is_empty(),
    }
}
