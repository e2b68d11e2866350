//! How much the rules of a policy overlap: whether a random policy tests what it is meant to test.

use model::{AclRule, Desired, IpPrefix, PortRange};
use std::fmt;

/// Rules that overlap within their groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Rules in all.
    pub rules: usize,
    /// Rules that share a packet with another rule of their group.
    pub overlapping: usize,
    /// Rules above another one that they share a packet with, and that says otherwise.
    pub overriding: usize,
}

impl Overlap {
    /// That of a desired state.
    pub fn of(desired: &Desired) -> Overlap {
        let mut overlap = Overlap::default();
        for group in &desired.acl_groups {
            for rule in &group.rules {
                let others = || group.rules.iter().filter(|o| o.priority != rule.priority && share(rule, o));
                let overrides = |o: &AclRule| {
                    rule.priority < o.priority && (rule.action, rule.terminating) != (o.action, o.terminating)
                };
                overlap.rules += 1;
                overlap.overlapping += usize::from(others().next().is_some());
                overlap.overriding += usize::from(others().any(overrides));
            }
        }
        overlap
    }
}

impl std::ops::AddAssign for Overlap {
    fn add_assign(&mut self, other: Overlap) {
        self.rules += other.rules;
        self.overlapping += other.overlapping;
        self.overriding += other.overriding;
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |n: usize| 100 * n / self.rules.max(1);
        let (overlapping, overriding) = (percent(self.overlapping), percent(self.overriding));
        write!(
            f,
            "{} rules: {overlapping}% overlap another of their group, {overriding}% override one that says otherwise",
            self.rules
        )
    }
}

/// Whether some packet matches both.
fn share(a: &AclRule, b: &AclRule) -> bool {
    fn lists<T>(a: &[T], b: &[T], meet: impl Fn(&T, &T) -> bool) -> bool {
        a.is_empty() || b.is_empty() || a.iter().any(|x| b.iter().any(|y| meet(x, y)))
    }
    let addresses = |a: &[IpPrefix], b: &[IpPrefix]| lists(a, b, IpPrefix::overlaps);
    let ports =
        |a: &[PortRange], b: &[PortRange]| lists(a, b, |x, y| x.first() <= y.last() && y.first() <= x.last());
    lists(&a.protocol, &b.protocol, |x, y| x == y)
        && addresses(&a.src_addr, &b.src_addr)
        && addresses(&a.dst_addr, &b.dst_addr)
        && ports(&a.src_port, &b.src_port)
        && ports(&a.dst_port, &b.dst_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, desired};

    #[test]
    fn random_policies_overlap() {
        let mut sum = Overlap::default();
        for seed in 0..200 {
            sum += Overlap::of(&desired(&mut Random::new(seed)));
        }
        println!("{sum}");
        assert!(sum.overlapping * 2 > sum.rules, "{sum}");
        assert!(sum.overriding * 4 > sum.rules, "{sum}");
    }
}
