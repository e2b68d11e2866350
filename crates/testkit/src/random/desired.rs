//! Random desired states: two VNETs with the same addresses, a few ENIs, and ACL groups whose rules overlap.

use super::Random;
use model::{
    AclAction, AclGroup, AclRule, AclStage, Desired, Device, Eni, IpPrefix, IpVersion, MacAddr, Offload,
    Port, PortKind, PortRange, Profile, Protocol, Route, RouteAction, Span, Vnet, VnetMapping,
};

/// VNETs and their numbers.
const VNETS: [(&str, u32); 2] = [("blue", 100), ("red", 200)];
/// Prefixes of rules: nested, around the addresses of the ENIs.
const PREFIXES: [[&str; 9]; 2] = [
    [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.0.0.0/24",
        "10.0.0.0/29",
        "10.0.0.0/30",
        "10.0.0.2/31",
        "10.0.0.1",
        "10.0.0.2",
        "10.1.0.0/16",
    ],
    [
        "::/0",
        "fd00::/16",
        "fd00::/64",
        "fd00::/125",
        "fd00::/126",
        "fd00::2/127",
        "fd00::1",
        "fd00::2",
        "fd01::/32",
    ],
];
const PORTS: [&str; 8] = ["53", "80", "443", "79-81", "0-1023", "1024-65535", "1000-2000", "0-65535"];

fn parse<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a text that the model knows")
}

fn prefix(random: &mut Random, version: IpVersion) -> IpPrefix {
    parse(random.pick::<&str>(&PREFIXES[family(version)]))
}

fn family(version: IpVersion) -> usize {
    usize::from(version == IpVersion::Ipv6)
}

/// A desired state with 3 to 6 ENIs on as many memory ports and at least 20 ACL rules. It is valid: reading its file form gives no
/// error.
pub fn desired(random: &mut Random) -> Desired {
    let count = random.within(3..=6);
    let mut desired = Desired {
        device: Device { workers: random.within(1..=3) as u16, ..Device::default() },
        ports: (0..count).map(port).collect(),
        vnets: VNETS
            .iter()
            .map(|&(name, vni)| Vnet { name: name.into(), vni, span: Span::default() })
            .collect(),
        ..Desired::default()
    };
    for version in [IpVersion::Ipv4, IpVersion::Ipv6] {
        for n in 0..random.within(3..=4) {
            desired.acl_groups.push(group(random, version, n));
        }
    }
    let mut n = 0;
    while desired.acl_groups.iter().map(|g| g.rules.len()).sum::<usize>() < 20 {
        let groups = desired.acl_groups.len();
        let group = &mut desired.acl_groups[n % groups];
        add_rule(random, group);
        n += 1;
    }
    for n in 0..count {
        let eni = eni(random, &desired, n);
        desired.enis.push(eni);
    }
    for n in 0..desired.enis.len() {
        let routes = routes(random, &desired.enis[n]);
        desired.routes.extend(routes);
    }
    mappings(random, &mut desired);
    desired
}

fn port(n: u64) -> Port {
    let name = format!("p{n}");
    Port { interface: name.clone(), name, kind: PortKind::Memory, mtu: 1500, span: Span::default() }
}

/// ENI `n`. Of each VNET every second one is: ENIs 0 and 1 have the same addresses in two VNETs, and so on.
fn eni(random: &mut Random, desired: &Desired, n: u64) -> Eni {
    let host = n / 2 + 1;
    let mut addresses: Vec<IpPrefix> =
        vec![parse(&format!("10.0.0.{host}")), parse(&format!("fd00::{host}"))];
    if random.chance(30) {
        addresses.push(parse(&format!("10.1.{host}.0/24")));
    }
    if random.chance(20) {
        addresses.push(parse(&format!("fd01:0:{host}::/48")));
    }
    Eni {
        name: format!("e{n}"),
        port: format!("p{n}"),
        vnet: VNETS[(n % 2) as usize].0.into(),
        mac_address: MacAddr([2, 0, 0, 0, (n % 2) as u8, host as u8]),
        addresses,
        anti_spoof: random.chance(80),
        acl_out: stages(random, desired),
        acl_in: stages(random, desired),
        span: Span::default(),
    }
}

/// None to three stages; the first ENIs' traffic must get through sometimes, so that none is the most frequent.
fn stages(random: &mut Random, desired: &Desired) -> Vec<AclStage> {
    let count = *random.pick(&[0, 1, 1, 2, 2, 3]);
    let mut numbers = vec![1, 2, 3, 4, 5];
    let mut stages = Vec::new();
    for _ in 0..count {
        let number = numbers.remove(random.below(numbers.len() as u64) as usize);
        let mut bind = |version| {
            let of: Vec<&AclGroup> = desired.acl_groups.iter().filter(|g| g.ip_version == version).collect();
            random.chance(85).then(|| random.pick(&of).acl_group_id.clone())
        };
        let (v4, v6) = (bind(IpVersion::Ipv4), bind(IpVersion::Ipv6));
        if v4.is_some() || v6.is_some() {
            stages.push(AclStage {
                stage: number,
                v4_acl_group_id: v4,
                v6_acl_group_id: v6,
                span: Span::default(),
            });
        }
    }
    stages
}

fn group(random: &mut Random, version: IpVersion, n: u64) -> AclGroup {
    let letter = if version == IpVersion::Ipv4 { "v4" } else { "v6" };
    let mut group = AclGroup {
        acl_group_id: format!("{letter}-{n}"),
        ip_version: version,
        rules: Vec::new(),
        span: Span::default(),
    };
    for _ in 0..random.within(2..=6) {
        add_rule(random, &mut group);
    }
    if random.chance(70) {
        // Something below all others, mostly an allow: else nearly all is denied.
        let rule = AclRule {
            id: "last".into(),
            priority: 1000,
            action: if random.chance(80) { AclAction::Allow } else { AclAction::Deny },
            terminating: random.chance(20),
            protocol: vec![],
            src_addr: vec![],
            dst_addr: vec![],
            src_port: vec![],
            dst_port: vec![],
            offload: Offload::Any,
            span: Span::default(),
        };
        group.rules.push(rule);
    }
    group
}

fn add_rule(random: &mut Random, group: &mut AclGroup) {
    let priority = loop {
        let priority = random.within(1..=60) as u32;
        if group.rules.iter().all(|r| r.priority != priority) {
            break priority;
        }
    };
    let rule = rule(random, group.ip_version, priority);
    group.rules.push(rule);
}

fn rule(random: &mut Random, version: IpVersion, priority: u32) -> AclRule {
    let icmp = if version == IpVersion::Ipv4 { Protocol::ICMP } else { Protocol::ICMPV6 };
    let protocol = match random.below(10) {
        0..=2 => vec![Protocol::TCP],
        3..=5 => vec![Protocol::UDP],
        6 => vec![Protocol::TCP, Protocol::UDP],
        7 => vec![icmp],
        8 => vec![Protocol(47), Protocol::UDP],
        _ => vec![],
    };
    let has_ports = !protocol.is_empty() && protocol.iter().all(Protocol::has_ports);
    let mut addresses = || {
        let count = *random.pick(&[0, 0, 1, 1, 1, 2]);
        let mut list: Vec<IpPrefix> = (0..count).map(|_| prefix(random, version)).collect();
        list.dedup();
        list
    };
    let (src_addr, dst_addr) = (addresses(), addresses());
    let mut ports = || -> Vec<PortRange> {
        let count = if has_ports { *random.pick(&[0, 0, 1, 1, 2]) } else { 0 };
        let mut list: Vec<PortRange> = (0..count).map(|_| parse(random.pick::<&str>(&PORTS))).collect();
        list.dedup();
        list
    };
    let (src_port, dst_port) = (ports(), ports());
    AclRule {
        id: format!("r{priority}"),
        priority,
        action: if random.chance(55) { AclAction::Allow } else { AclAction::Deny },
        terminating: random.chance(35),
        protocol,
        src_addr,
        dst_addr,
        src_port,
        dst_port,
        offload: Offload::Any,
        span: Span::default(),
    }
}

fn routes(random: &mut Random, eni: &Eni) -> Vec<Route> {
    let other = VNETS.iter().find(|v| v.0 != eni.vnet).map_or("", |v| v.0);
    let mut routes: Vec<Route> = Vec::new();
    let mut add = |prefix: IpPrefix, vnet: Option<&str>| {
        if routes.iter().all(|r| r.prefix != prefix) {
            routes.push(Route {
                eni: eni.name.clone(),
                prefix,
                action_type: if vnet.is_some() { RouteAction::Vnet } else { RouteAction::Drop },
                vnet: vnet.map(Into::into),
                span: Span::default(),
            });
        }
    };
    for version in [IpVersion::Ipv4, IpVersion::Ipv6] {
        // No ::/0: it has a second entry, by which IPv4 packets without a route of their own drop as `route_drop`.
        let broad = match version {
            IpVersion::Ipv4 => PREFIXES[0][random.below(3) as usize],
            IpVersion::Ipv6 => PREFIXES[1][random.within(1..=3) as usize],
        };
        if random.chance(92) {
            add(parse(broad), Some(&eni.vnet));
        }
        for _ in 0..random.below(3) {
            let to = match random.below(10) {
                0..=4 => Some(eni.vnet.as_str()),
                5..=7 => Some(other),
                _ => None,
            };
            let narrow = PREFIXES[family(version)][random.within(1..=8) as usize];
            add(parse(narrow), to);
        }
    }
    routes
}

fn mappings(random: &mut Random, desired: &mut Desired) {
    for _ in 0..random.below(4) {
        let eni = random.pick(&desired.enis).clone();
        let text = *random.pick(&["10.0.0.7", "10.2.0.0/16", "fd00::7", "fd02::/32"]);
        let ip_address: IpPrefix = parse(text);
        let taken = |m: &VnetMapping| m.vnet == eni.vnet && m.ip_address == ip_address;
        if !desired.vnet_mappings.iter().any(taken) {
            desired.vnet_mappings.push(VnetMapping {
                vnet: eni.vnet,
                ip_address,
                eni: eni.name,
                span: Span::default(),
            });
        }
    }
}

/// A changed policy on the same ports: some rules, routes, stages and ENIs are others.
pub fn change(random: &mut Random, old: &Desired) -> Desired {
    let mut new = old.clone();
    for _ in 0..random.within(1..=6) {
        change_once(random, &mut new);
    }
    new
}

fn change_once(random: &mut Random, new: &mut Desired) {
    let group = random.below(new.acl_groups.len() as u64) as usize;
    match random.below(13) {
        0..=2 => add_rule(random, &mut new.acl_groups[group]),
        3 | 4 if new.acl_groups[group].rules.len() > 1 => {
            let rules = &mut new.acl_groups[group].rules;
            rules.remove(random.below(rules.len() as u64) as usize);
        }
        5 | 6 if !new.acl_groups[group].rules.is_empty() => {
            let rules = &mut new.acl_groups[group].rules;
            let n = random.below(rules.len() as u64) as usize;
            rules[n].action =
                if rules[n].action == AclAction::Allow { AclAction::Deny } else { AclAction::Allow };
        }
        7 if new.acl_groups[group].rules.len() > 1 => {
            let rules = &mut new.acl_groups[group].rules;
            let (a, b) =
                (random.below(rules.len() as u64) as usize, random.below(rules.len() as u64) as usize);
            let (p, q) = (rules[a].priority, rules[b].priority);
            (rules[a].priority, rules[b].priority) = (q, p);
        }
        8 => {
            let eni = random.pick(&new.enis).clone();
            new.routes.retain(|r| r.eni != eni.name);
            new.routes.extend(routes(random, &eni));
        }
        9 => {
            let n = random.below(new.enis.len() as u64) as usize;
            let (out, inward) = (stages(random, new), stages(random, new));
            (new.enis[n].acl_out, new.enis[n].acl_in) = (out, inward);
        }
        10 if new.enis.len() > 2 => {
            let eni = new.enis.remove(random.below(new.enis.len() as u64) as usize);
            new.routes.retain(|r| r.eni != eni.name);
            new.vnet_mappings.retain(|m| m.eni != eni.name);
        }
        // Another ENI on the port: what the one before had is not its own.
        11 => {
            let n = random.below(new.enis.len() as u64) as usize;
            let name = format!("{}x", new.enis[n].name);
            let old = std::mem::replace(&mut new.enis[n].name, name.clone());
            new.routes.iter_mut().filter(|r| r.eni == old).for_each(|r| r.eni.clone_from(&name));
            new.vnet_mappings.iter_mut().filter(|m| m.eni == old).for_each(|m| m.eni.clone_from(&name));
        }
        _ => {
            new.vnet_mappings.clear();
            mappings(random, new);
        }
    }
}

/// A profile whose tables are small, some so small that the policy does not fit.
pub fn profile(random: &mut Random, desired: &Desired) -> Profile {
    let mut profile = Profile {
        name: "random".into(),
        queue: *random.pick(&[4, 16, 64, 1024]),
        insert_rate: *random.pick(&[0, 0, 0, 20_000]),
        ..Profile::default()
    };
    if random.chance(20) {
        return profile;
    }
    let enis = desired.enis.len() as u64;
    let rules = desired.acl_groups.iter().map(|g| g.rules.len()).sum::<usize>() as u64;
    let mut limit = |table: &str, most: u64, percent| {
        if random.chance(percent) {
            profile.tables.insert(table.into(), random.within(0..=most) as u32);
        }
    };
    limit("acl", 2 * rules, 80);
    limit("flow", 12, 60);
    limit("eni", enis + 1, 15);
    limit("source", 4 * enis, 15);
    limit("route", 5 * enis, 25);
    limit("mapping", 4 * enis, 25);
    profile
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Config;

    #[test]
    fn random_states_are_valid_and_large_enough() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let first = desired(&mut random);
            let second = change(&mut random, &first);
            for state in [&first, &second] {
                let text = toml::to_string(state).unwrap();
                match Config::parse(&text, "random") {
                    Ok(config) => assert_eq!(config.desired, *state, "seed {seed}"),
                    Err(errors) => panic!("seed {seed}: {errors:?}\n{text}"),
                }
            }
            assert!(first.acl_groups.iter().map(|g| g.rules.len()).sum::<usize>() >= 20);
            assert!((3..=6).contains(&first.enis.len()));
        }
    }

    #[test]
    fn a_seed_is_a_state() {
        let state = |seed| desired(&mut Random::new(seed));
        assert_eq!(state(7), state(7));
        assert_ne!(state(7), state(8));
    }
}
