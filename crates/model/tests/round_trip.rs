//! Random valid configurations come back from TOML and JSON as they were; random texts never panic; the search for overlapping
//! addresses agrees with the comparison of all pairs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::{
    AclAction, AclGroup, AclRule, AclStage, Config, ConfigErrorKind, Desired, Device, Eni, IpPrefix,
    IpVersion, MacAddr, MissPolicy, Offload, Port, PortKind, PortRange, Profile, Protocol, ResetPolicy,
    Route, RouteAction, Span, Vnet, VnetMapping,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

fn word<T: Copy + std::fmt::Debug + 'static>(
    words: &'static [(&'static str, T)],
) -> impl Strategy<Value = T> {
    select(words).prop_map(|(_, value)| value)
}

fn prefix(version: IpVersion) -> BoxedStrategy<IpPrefix> {
    let cut = |addr: u128, len: u8, bits: u8| if len == 0 { 0 } else { addr >> (bits - len) << (bits - len) };
    match version {
        IpVersion::Ipv4 => (any::<u32>(), 0..=32u8)
            .prop_map(move |(a, len)| {
                IpPrefix::new(IpAddr::V4(Ipv4Addr::from_bits(cut(a.into(), len, 32) as u32)), len)
                    .expect("masked")
            })
            .boxed(),
        IpVersion::Ipv6 => (any::<u128>(), 0..=128u8)
            .prop_map(move |(a, len)| {
                let a = cut(a | 1 << 127, len, 128);
                IpPrefix::new(IpAddr::V6(Ipv6Addr::from_bits(a)), len).expect("masked, and not mapped")
            })
            .boxed(),
    }
}

fn ports() -> impl Strategy<Value = Vec<PortRange>> {
    vec(
        (any::<u16>(), any::<u16>()).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).expect("in order")),
        0..3,
    )
}

fn rule(version: IpVersion) -> impl Strategy<Value = AclRule> {
    let with_ports = (subsequence(vec![Protocol::TCP, Protocol::UDP], 1..=2), ports(), ports()).boxed();
    let without = (vec(any::<u8>().prop_map(Protocol), 0..3), Just(vec![]), Just(vec![])).boxed();
    (
        (word(AclAction::WORDS), any::<bool>(), word(Offload::WORDS)),
        prop_oneof![with_ports, without],
        vec(prefix(version), 0..3),
        vec(prefix(version), 0..3),
    )
        .prop_map(
            |((action, terminating, offload), (protocol, src_port, dst_port), src_addr, dst_addr)| AclRule {
                id: String::new(),
                priority: 0,
                action,
                terminating,
                protocol,
                src_addr,
                dst_addr,
                src_port,
                dst_port,
                offload,
                span: Span::default(),
            },
        )
}

fn group() -> impl Strategy<Value = AclGroup> {
    word(IpVersion::WORDS).prop_flat_map(|ip_version| {
        (vec(rule(ip_version), 0..4), btree_set(any::<u32>(), 4)).prop_map(move |(mut rules, priorities)| {
            for (i, (rule, priority)) in rules.iter_mut().zip(priorities).enumerate() {
                rule.id = format!("rule:{i}");
                rule.priority = priority;
            }
            AclGroup { acl_group_id: String::new(), ip_version, rules, span: Span::default() }
        })
    })
}

fn stages(groups: Vec<AclGroup>) -> impl Strategy<Value = Vec<AclStage>> {
    let of = |version: IpVersion| -> Vec<Option<String>> {
        let ids = groups.iter().filter(|g| g.ip_version == version).map(|g| Some(g.acl_group_id.clone()));
        std::iter::once(None).chain(ids).collect()
    };
    let pick = (select(of(IpVersion::Ipv4)), select(of(IpVersion::Ipv6)));
    (subsequence(vec![1u8, 2, 3, 4, 5], 0..=5).prop_shuffle(), vec(pick, 5)).prop_map(|(numbers, picks)| {
        numbers
            .into_iter()
            .zip(picks)
            .filter(|(_, (v4, v6))| v4.is_some() || v6.is_some())
            .map(|(stage, (v4, v6))| AclStage {
                stage,
                v4_acl_group_id: v4,
                v6_acl_group_id: v6,
                span: Span::default(),
            })
            .collect()
    })
}

fn device() -> impl Strategy<Value = Device> {
    (select(vec!["unlimited", "tiny"]), 1..=64u16, word(MissPolicy::WORDS), word(ResetPolicy::WORDS))
        .prop_map(|(profile, workers, miss_policy, reset_policy)| Device {
            profile: profile.into(),
            workers,
            miss_policy,
            reset_policy,
            span: Span::default(),
        })
}

/// What the rest of a configuration needs to know of its ENIs.
fn enis(groups: Vec<AclGroup>, vnets: usize) -> impl Strategy<Value = Vec<(Port, Eni)>> {
    let one = (
        (word(PortKind::WORDS), 1280..=65535u32),
        (any::<Index>(), any::<bool>(), any::<[u8; 4]>()),
        stages(groups.clone()),
        stages(groups),
    );
    vec(one, 0..5).prop_map(move |all| {
        let of = |(i, ((kind, mtu), (vnet, anti_spoof, mac), acl_out, acl_in)): (usize, _)| {
            let i = i as u8;
            let port = Port {
                name: format!("p{i}"),
                kind,
                interface: format!("if-{i}"),
                mtu,
                span: Span::default(),
            };
            let [a, b, c, d]: [u8; 4] = mac;
            let vnet: Index = vnet;
            let eni = Eni {
                name: format!("e{i}"),
                port: port.name.clone(),
                vnet: format!("v{}", vnet.index(vnets)),
                mac_address: MacAddr([2, i, a, b, c, d]),
                addresses: [format!("10.{i}.0.1"), format!("fd00:{i:x}::/64"), format!("10.{i}.128.0/17")]
                    .map(|a| a.parse().expect("valid"))
                    .to_vec(),
                anti_spoof,
                acl_out,
                acl_in,
                span: Span::default(),
            };
            (port, eni)
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn desired() -> impl Strategy<Value = Desired> {
    let groups = vec(group(), 0..4).prop_map(|mut groups| {
        groups.iter_mut().enumerate().for_each(|(i, g)| g.acl_group_id = format!("g.{i}"));
        groups
    });
    (device(), groups, btree_set(0..=0xff_ffffu32, 1..4))
        .prop_flat_map(|(device, groups, vnis)| {
            let route =
                (any::<Index>(), word(IpVersion::WORDS).prop_flat_map(prefix), any::<Option<Index>>());
            let enis = enis(groups.clone(), vnis.len());
            (Just((device, groups, vnis)), enis, vec(route, 0..6), vec((any::<Index>(), any::<u8>()), 0..4))
        })
        .prop_map(|((device, acl_groups, vnis), enis, routes, mappings)| {
            let vnets: Vec<Vnet> = (vnis.into_iter().enumerate())
                .map(|(i, vni)| Vnet { name: format!("v{i}"), vni, span: Span::default() })
                .collect();
            let (ports, enis): (Vec<Port>, Vec<Eni>) = enis.into_iter().unzip();
            let mut desired = Desired { device, ports, vnets, enis, acl_groups, ..Desired::default() };
            if desired.enis.is_empty() {
                return desired;
            }
            for (eni, prefix, vnet) in routes {
                let (eni, vnet) =
                    (eni.get(&desired.enis).name.clone(), vnet.map(|v| v.get(&desired.vnets).name.clone()));
                let action_type = if vnet.is_some() { RouteAction::Vnet } else { RouteAction::Drop };
                if !desired.routes.iter().any(|r| r.eni == eni && r.prefix == prefix) {
                    desired.routes.push(Route { eni, prefix, action_type, vnet, span: Span::default() });
                }
            }
            for (i, (eni, host)) in mappings.into_iter().enumerate() {
                let eni = eni.get(&desired.enis);
                let ip_address = format!("192.168.{i}.{host}").parse().expect("valid");
                let (vnet, eni) = (eni.vnet.clone(), eni.name.clone());
                desired.vnet_mappings.push(VnetMapping { vnet, ip_address, eni, span: Span::default() });
            }
            desired
        })
}

proptest! {
    #[test]
    fn toml_and_json_come_back_as_they_were(desired in desired()) {
        let toml = toml::to_string(&desired).expect("serialises");
        let json = serde_json::to_string_pretty(&desired).expect("serialises");
        for text in [toml, json] {
            let config = Config::parse(&text, "f");
            prop_assert!(config.is_ok(), "{:?}\n{}", config, text);
            let Config { desired: back, profile, .. } = config.expect("checked");
            prop_assert_eq!(&back, &desired);
            prop_assert_eq!(profile.name, back.device.profile);
        }
        let stored: Desired = serde_json::from_str(&serde_json::to_string(&desired).expect("serialises")).expect("reads");
        prop_assert_eq!(stored, desired);
    }

    #[test]
    fn any_text_is_read_without_panic(text in ".{0,200}") {
        let _ = (Config::parse(&text, "f"), Profile::parse(&text, "f"));
    }

    /// Valid configurations with pieces of others in their midst come further than any text.
    #[test]
    fn any_mutilation_is_read_without_panic(
        at in any::<Index>(),
        cut in 0..40usize,
        paste in prop_oneof![".{0,8}", select(vec!["[", "]]", "\"", "= 0", "\n[[eni]]\n", "[device]\n", "ipv6", "{", "é"])
            .prop_map(String::from)],
        json in any::<bool>(),
    ) {
        let base = include_str!("data/two-tenants.toml");
        let text = if json {
            serde_json::to_string_pretty(&Config::parse(base, "f").expect("valid").desired).expect("serialises")
        } else {
            base.to_string()
        };
        let start = text.floor_char_boundary(at.index(text.len()));
        let end = text.ceil_char_boundary(start + cut);
        let text = format!("{}{paste}{}", &text[..start], &text[end..]);
        match Config::parse(&text, "f") {
            Ok(_) => {}
            Err(errors) => {
                let lines = text.lines().count() as u32 + 1;
                prop_assert!(!errors.is_empty());
                prop_assert!(errors.iter().all(|e| (1..=lines).contains(&e.line) && e.column >= 1), "{errors:?}");
            }
        }
    }

    #[test]
    fn overlaps_agree_with_all_pairs(
        enis in vec((0..2usize, vec((0..64u32, 26..=32u8, any::<bool>()), 1..4)), 1..5)
    ) {
        let mut text = String::from("schema = 1\n[[vnet]]\nname = \"v0\"\nvni = 0\n[[vnet]]\nname = \"v1\"\nvni = 1\n");
        let mut all = Vec::new();
        for (i, (vnet, addresses)) in enis.iter().enumerate() {
            let prefixes: Vec<IpPrefix> = addresses.iter().map(|(host, len, v6)| {
                let host = host >> (32 - len) << (32 - len);
                let (addr, len) = if *v6 {
                    (IpAddr::V6(Ipv6Addr::from_bits(0xfd << 120 | u128::from(host))), len + 96)
                } else {
                    (IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | host)), *len)
                };
                IpPrefix::new(addr, len).expect("masked")
            }).collect();
            let list: Vec<_> = prefixes.iter().map(|p| format!("\"{p}\"")).collect();
            text += &format!("[[port]]\nname = \"p{i}\"\nkind = \"memory\"\n[[eni]]\nname = \"e{i}\"\nport = \"p{i}\"\n");
            text += &format!("vnet = \"v{vnet}\"\nmac_address = \"02:00:00:00:00:{i:02x}\"\naddresses = [{}]\n", list.join(", "));
            all.extend(prefixes.into_iter().map(|p| (*vnet, i, p)));
        }
        let mut collides = false;
        for (n, (vnet, eni, prefix)) in all.iter().enumerate() {
            collides |= all[..n].iter().any(|(v, e, p)| v == vnet && p.overlaps(prefix) && (e != eni || p == prefix));
        }
        match Config::parse(&text, "f") {
            Ok(_) => prop_assert!(!collides, "{text}"),
            Err(errors) => {
                prop_assert!(collides, "{errors:?}\n{text}");
                let kinds = [ConfigErrorKind::Contradiction, ConfigErrorKind::Duplicate];
                prop_assert!(errors.iter().all(|e| kinds.contains(&e.kind) && e.path.contains(".addresses[")));
            }
        }
    }
}
