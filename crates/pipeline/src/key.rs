//! The flow key: what makes two packets belong to one direction of one connection, and its two hashes.

use core::fmt;
use core::net::IpAddr;
use wire::ip::{self, protocol};

/// Splits the two directions of an ICMP echo conversation, whose ports (the identifier) are equal.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowKind {
    /// Everything but ICMP echo.
    #[default]
    Plain = 0,
    /// ICMP or ICMPv6 echo requests.
    EchoRequest = 1,
    /// ICMP or ICMPv6 echo replies.
    EchoReply = 2,
}

/// The key of one direction of a connection: 40 bytes, no padding, every field compared.
///
/// Addresses are 128 bits, IPv4 in its mapped form (`::ffff:a.b.c.d`). ICMP echo has the identifier in both ports. Protocols
/// without ports have 0 in both.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowKey {
    // Two words each, upper half first: a u128 would align the key to 16 and pad it to 48 bytes.
    src: [u64; 2],
    dst: [u64; 2],
    /// Source port; the identifier for ICMP echo; 0 without ports.
    pub sport: u16,
    /// Destination port; the identifier for ICMP echo; 0 without ports.
    pub dport: u16,
    /// The ENI whose direction this is, by its index in the device.
    pub eni: u16,
    /// Internet protocol number; for IPv6 that of the upper layer, behind the extension headers.
    pub proto: u8,
    /// Which side of an echo conversation, `Plain` for all else.
    pub kind: FlowKind,
}

const _: () = assert!(size_of::<FlowKey>() == 40 && align_of::<FlowKey>() == 8);

const fn words(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

const fn bits(words: [u64; 2]) -> u128 {
    (words[0] as u128) << 64 | words[1] as u128
}

impl FlowKey {
    /// A key from its addresses (IPv4-mapped for IPv4), ports and protocol, with ENI 0 and kind `Plain`.
    #[inline]
    pub const fn new(src: u128, dst: u128, sport: u16, dport: u16, proto: u8) -> FlowKey {
        FlowKey { src: words(src), dst: words(dst), sport, dport, eni: 0, proto, kind: FlowKind::Plain }
    }

    /// An ICMP (protocol 1) or ICMPv6 (protocol 58) echo key, with ENI 0.
    #[inline]
    pub const fn echo(src: u128, dst: u128, identifier: u16, proto: u8, kind: FlowKind) -> FlowKey {
        FlowKey { kind, ..FlowKey::new(src, dst, identifier, identifier, proto) }
    }

    /// The same key under another ENI.
    #[inline]
    #[must_use]
    pub const fn with_eni(self, eni: u16) -> FlowKey {
        FlowKey { eni, ..self }
    }

    /// Source address, IPv4 in its mapped form.
    #[inline]
    pub const fn src(&self) -> u128 {
        bits(self.src)
    }

    /// Destination address, IPv4 in its mapped form.
    #[inline]
    pub const fn dst(&self) -> u128 {
        bits(self.dst)
    }

    /// Replaces the source address.
    #[inline]
    pub const fn set_src(&mut self, address: u128) {
        self.src = words(address);
    }

    /// Replaces the destination address.
    #[inline]
    pub const fn set_dst(&mut self, address: u128) {
        self.dst = words(address);
    }

    /// Source address as the standard library's type.
    #[inline]
    pub const fn src_ip(&self) -> IpAddr {
        ip::from_bits(self.src())
    }

    /// Destination address as the standard library's type.
    #[inline]
    pub const fn dst_ip(&self) -> IpAddr {
        ip::from_bits(self.dst())
    }

    /// Whether this is an IPv4 flow.
    #[inline]
    pub const fn is_v4(&self) -> bool {
        ip::is_v4(self.src()) && ip::is_v4(self.dst())
    }

    /// The key of the answers: addresses and ports swapped, echo request and reply exchanged, seen at the ENI `peer_eni`.
    #[inline]
    #[must_use]
    pub const fn reversed(&self, peer_eni: u16) -> FlowKey {
        FlowKey {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            eni: peer_eni,
            proto: self.proto,
            kind: match self.kind {
                FlowKind::Plain => FlowKind::Plain,
                FlowKind::EchoRequest => FlowKind::EchoReply,
                FlowKind::EchoReply => FlowKind::EchoRequest,
            },
        }
    }

    /// The hash of the connection: equal for both directions, over addresses, ports and protocol, not over ENI and kind. It
    /// selects the worker, so both directions meet at one.
    #[inline]
    pub fn hash(&self, seed: u64) -> u32 {
        let seed = fold(seed ^ K[0], K[1]);
        let end = |address: [u64; 2], port: u16| {
            fold(fold(address[0] ^ seed, address[1] ^ K[2]) ^ K[3], seed ^ u64::from(port))
        };
        let both = end(self.src, self.sport).wrapping_add(end(self.dst, self.dport));
        (fold(both ^ u64::from(self.proto), seed ^ K[4]) >> 32) as u32
    }

    /// The hash of the direction, over every field: where the flow table looks.
    #[inline]
    pub fn table_hash(&self, seed: u64) -> u64 {
        let seed = fold(seed ^ K[0], K[1]);
        let rest = u64::from(self.sport)
            | u64::from(self.dport) << 16
            | u64::from(self.eni) << 32
            | u64::from(self.proto) << 48
            | (self.kind as u64) << 56;
        let src = fold(self.src[0] ^ seed, self.src[1] ^ K[2]);
        let dst = fold(self.dst[0] ^ seed, self.dst[1] ^ K[3]);
        fold(fold(src ^ rest, dst ^ K[4]) ^ seed, K[1])
    }
}

/// Constants without structure: the fractional digits of pi, made odd.
const K: [u64; 5] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
];

/// Multiplies to 128 bits and folds the halves: every input bit reaches every output bit.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

/// `tcp 10.0.0.1:5000 > 10.0.0.2:80`, `udp [fd00::1]:53 > [fd00::2]:53`, `icmp echo-request 10.0.0.1 > 10.0.0.2 id 7`,
/// `gre 10.0.0.1 > 10.0.0.2`.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proto {
            protocol::ICMP => f.write_str("icmp")?,
            protocol::TCP => f.write_str("tcp")?,
            protocol::UDP => f.write_str("udp")?,
            protocol::GRE => f.write_str("gre")?,
            protocol::ESP => f.write_str("esp")?,
            protocol::ICMPV6 => f.write_str("icmpv6")?,
            protocol::SCTP => f.write_str("sctp")?,
            other => write!(f, "proto-{other}")?,
        }
        let (src, dst) = (self.src_ip(), self.dst_ip());
        match (self.kind, self.proto) {
            (FlowKind::EchoRequest, _) => write!(f, " echo-request {src} > {dst} id {}", self.sport),
            (FlowKind::EchoReply, _) => write!(f, " echo-reply {src} > {dst} id {}", self.sport),
            (FlowKind::Plain, protocol::TCP | protocol::UDP) => {
                let (src, dst) = (
                    core::net::SocketAddr::new(src, self.sport),
                    core::net::SocketAddr::new(dst, self.dport),
                );
                write!(f, " {src} > {dst}")
            }
            (FlowKind::Plain, _) => write!(f, " {src} > {dst}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn v4(a: [u8; 4]) -> u128 {
        ip::map_v4(Ipv4Addr::from(a))
    }

    fn any_key() -> impl Strategy<Value = FlowKey> {
        let kind = prop_oneof![Just(FlowKind::Plain), Just(FlowKind::EchoRequest), Just(FlowKind::EchoReply)];
        (any::<u128>(), any::<u128>(), any::<(u16, u16, u16, u8)>(), kind).prop_map(
            |(src, dst, (s, d, e, p), kind)| FlowKey { kind, ..FlowKey::new(src, dst, s, d, p).with_eni(e) },
        )
    }

    #[test]
    fn display_names_protocol_and_ends() {
        let (a, b) = (v4([10, 0, 0, 1]), v4([10, 0, 0, 2]));
        let six = |s: &str| s.parse::<core::net::Ipv6Addr>().unwrap().to_bits();
        let rows = [
            (FlowKey::new(a, b, 5000, 80, 6), "tcp 10.0.0.1:5000 > 10.0.0.2:80"),
            (FlowKey::new(six("fd00::1"), six("fd00::2"), 53, 54, 17), "udp [fd00::1]:53 > [fd00::2]:54"),
            (FlowKey::echo(a, b, 7, 1, FlowKind::EchoRequest), "icmp echo-request 10.0.0.1 > 10.0.0.2 id 7"),
            (FlowKey::echo(a, b, 7, 1, FlowKind::EchoReply), "icmp echo-reply 10.0.0.1 > 10.0.0.2 id 7"),
            (FlowKey::new(a, b, 0, 0, 47), "gre 10.0.0.1 > 10.0.0.2"),
            (FlowKey::new(a, b, 0, 0, 99), "proto-99 10.0.0.1 > 10.0.0.2"),
        ];
        for (key, text) in rows {
            assert_eq!(key.to_string(), text);
        }
    }

    /// Chi-square of the bins against a uniform spread, as the distance from its mean in standard deviations.
    fn deviation(bins: &[u32]) -> f64 {
        let (n, k) = (bins.iter().sum::<u32>() as f64, bins.len() as f64);
        let chi: f64 = bins.iter().map(|&b| (b as f64 - n / k).powi(2) / (n / k)).sum();
        (chi - (k - 1.0)) / (2.0 * (k - 1.0)).sqrt()
    }

    /// Key sets with the structure of real tenants: one field counts, the rest stands still.
    fn sequences() -> Vec<(&'static str, Vec<FlowKey>)> {
        const N: u128 = 1 << 16;
        let (a, b) = (v4([10, 0, 0, 0]), v4([10, 1, 0, 1]));
        let net = 0xfd00_0000_0000_0000_0000_0000_0000_0000;
        let over = |f: &dyn Fn(u128) -> FlowKey| (0..N).map(f).collect::<Vec<_>>();
        vec![
            ("source address", over(&|i| FlowKey::new(a + i, b, 5000, 80, 6))),
            ("destination address", over(&|i| FlowKey::new(b, a + i, 5000, 80, 6))),
            ("source port", over(&|i| FlowKey::new(a, b, i as u16, 80, 17))),
            ("port and address", over(&|i| FlowKey::new(a + (i >> 8), b, 1024 + (i & 0xff) as u16, 443, 6))),
            ("both addresses", over(&|i| FlowKey::new(a + (i >> 8), b + (i & 0xff), 9, 9, 6))),
            ("both ports, one address", over(&|i| FlowKey::new(a, a, (i >> 8) as u16, (i & 0xff) as u16, 6))),
            ("IPv6 interface", over(&|i| FlowKey::new(net + i, net + (1 << 64), 5000, 80, 6))),
            ("IPv6 subnet", over(&|i| FlowKey::new(net + (i << 64), net, 5000, 80, 6))),
            ("identifier", over(&|i| FlowKey::echo(a, b, i as u16, 1, FlowKind::EchoRequest))),
        ]
    }

    #[test]
    fn structured_keys_spread_evenly_in_high_and_low_bits() {
        for seed in [0, 1, 0x1234_5678_9abc_def0] {
            for (name, keys) in sequences() {
                // Which end is which does not count for `hash`, so equal unordered pairs are one key.
                let ends = |k: &FlowKey| [(k.src(), k.sport), (k.dst(), k.dport)];
                let mut seen = std::collections::HashSet::new();
                let mut bins = [[0u32; 256]; 4];
                for key in keys.iter().filter(|k| {
                    let mut ends = ends(k);
                    ends.sort_unstable();
                    seen.insert(ends)
                }) {
                    let (h, t) = (key.hash(seed), key.table_hash(seed));
                    for (bin, value) in
                        bins.iter_mut().zip([h as u8, (h >> 24) as u8, t as u8, (t >> 56) as u8])
                    {
                        bin[value as usize] += 1;
                    }
                }
                for (bin, bits) in bins.iter().zip(["hash low", "hash high", "table low", "table high"]) {
                    let d = deviation(bin);
                    assert!(
                        d < 6.0,
                        "{name}, seed {seed:#x}, {bits}: {d:.1} standard deviations above uniform"
                    );
                }
            }
        }
    }

    #[test]
    fn structured_keys_do_not_collide_in_64_bits() {
        for (name, keys) in sequences() {
            let mut hashes: Vec<u64> = keys.iter().map(|k| k.table_hash(7)).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), keys.len(), "{name}");
        }
    }

    #[test]
    fn one_flipped_bit_flips_half_of_the_hash() {
        let key = FlowKey::new(v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), 5000, 80, 6);
        let mut flips = Vec::new();
        for bit in 0..128 {
            flips.push(FlowKey::new(key.src() ^ 1 << bit, key.dst(), key.sport, key.dport, 6));
            flips.push(FlowKey::new(key.src(), key.dst() ^ 1 << bit, key.sport, key.dport, 6));
        }
        for bit in 0..16 {
            flips.push(FlowKey { sport: key.sport ^ 1 << bit, ..key });
            flips.push(FlowKey { dport: key.dport ^ 1 << bit, ..key });
            flips.push(FlowKey { eni: key.eni ^ 1 << bit, ..key });
        }
        let total: u32 = flips.iter().map(|k| (k.table_hash(3) ^ key.table_hash(3)).count_ones()).sum();
        let mean = f64::from(total) / flips.len() as f64;
        assert!((30.0..34.0).contains(&mean), "{mean} of 64 bits flip in the mean");
        assert!(flips.iter().all(|k| (k.table_hash(3) ^ key.table_hash(3)).count_ones() >= 8));
    }

    proptest! {
        #[test]
        fn both_directions_share_the_worker_and_differ_in_the_table(key in any_key(), seed: u64, peer: u16) {
            let back = key.reversed(peer);
            prop_assert_eq!(key.hash(seed), back.hash(seed));
            prop_assert_eq!(back.reversed(key.eni), key);
            prop_assert_eq!(back.eni, peer);
            prop_assert_eq!((back.src(), back.dst(), back.sport, back.dport), (key.dst(), key.src(), key.dport, key.sport));
            if back != key {
                prop_assert_ne!(key.table_hash(seed), back.table_hash(seed));
            }
        }

        #[test]
        fn every_field_counts_in_the_table_and_eni_and_kind_not_for_the_worker(key in any_key(), seed: u64, eni: u16) {
            let moved = key.with_eni(eni);
            prop_assert_eq!(moved.hash(seed), key.hash(seed));
            prop_assert_eq!(moved.table_hash(seed) == key.table_hash(seed), eni == key.eni);
            let request = FlowKey { kind: FlowKind::EchoRequest, ..key };
            let reply = FlowKey { kind: FlowKind::EchoReply, ..key };
            prop_assert_eq!(request.hash(seed), reply.hash(seed));
            prop_assert_ne!(request.table_hash(seed), reply.table_hash(seed));
        }

        #[test]
        fn addresses_read_back(src: u128, dst: u128) {
            let mut key = FlowKey::new(src, dst, 1, 2, 6);
            prop_assert_eq!((key.src(), key.dst()), (src, dst));
            key.set_src(dst);
            key.set_dst(src);
            prop_assert_eq!((key.src(), key.dst()), (dst, src));
        }
    }
}
