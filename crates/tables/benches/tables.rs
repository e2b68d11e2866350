//! Nanoseconds of CPU time per lookup of each table, medians of seven, beside a plain structure on
//! the same work: `cargo bench -p softdpu-tables`.

use std::collections::HashMap;
use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use tables::classifier::{Classifier, Key, PortRange, Rule};
use tables::exact::Index;
use tables::lpm::Lpm;
use tables::prefetch;

const LOOKUPS: usize = 1 << 20;
const BATCH: usize = 64;

fn main() {
    exact(10_000);
    exact(1_000_000);
    growth(1_000_000);
    lpm(100);
    lpm(1_000_000);
    for rules in [8, 100, 1000, 10_000] {
        classifier(rules);
    }
}

/// A caller's record: its key, and room as a connection's hot line has.
#[repr(align(64))]
struct Record {
    key: [u64; 5],
}

fn exact(connections: usize) {
    let mut random = Random(1);
    let records: Vec<Record> = (0..connections).map(|_| Record { key: random.words() }).collect();
    let mut index = Index::with_capacity(connections);
    let mut map = HashMap::new();
    for (handle, record) in (0..).zip(&records) {
        index.insert(hash(&record.key), handle, |held| hash(&records[held as usize].key));
        map.insert(record.key, handle);
    }
    let keys: Vec<[u64; 5]> = (0..LOOKUPS).map(|_| records[random.below(connections)].key).collect();
    let find = |hash: u64, key: &[u64; 5]| index.find(hash, |handle| records[handle as usize].key == *key);
    let batched = median(|| {
        let mut hashes = [0; BATCH];
        for keys in keys.chunks_exact(BATCH) {
            for (to, key) in hashes.iter_mut().zip(keys) {
                *to = hash(key);
                index.prefetch(*to);
            }
            for hash in hashes {
                if let Some(likely) = index.find(hash, |_| true) {
                    prefetch(&records[likely as usize]);
                }
            }
            for (hash, key) in hashes.iter().zip(keys) {
                black_box(find(*hash, key));
            }
        }
    });
    let single = median(|| {
        for key in &keys {
            black_box(find(hash(key), key));
        }
    });
    let misses = median(|| {
        for key in &keys {
            black_box(find(!hash(key), key));
        }
    });
    let std_map = median(|| {
        for key in &keys {
            black_box(map.get(key));
        }
    });
    println!(
        "exact      {connections:>8} connections: batched {batched:.1} ns, single {single:.1}, miss {misses:.1}, \
         HashMap {std_map:.1}; {:.1} bytes each",
        index.memory_bytes() as f64 / connections as f64
    );
}

/// The longest single insert while an index grows from nothing.
fn growth(entries: u32) {
    let hashes: Vec<u64> = (0..entries).map(|handle| mix(handle.into(), 1)).collect();
    let mut index = Index::with_capacity(0);
    let mut times: Vec<f64> = (0..entries)
        .map(|handle| {
            let start = cpu_ns();
            index.insert(hashes[handle as usize], handle, |held| hashes[held as usize]);
            (cpu_ns() - start) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "growth     {entries:>8} inserts: p50 {:.0} ns, p99.9 {:.0}, p99.999 {:.0}, longest {:.0}",
        at(0.5),
        at(0.999),
        at(0.99999),
        at(1.0)
    );
}

/// IPv4 prefixes with the lengths of a full routing table, six in ten of them /24.
fn lpm(prefixes: usize) {
    let mut random = Random(2);
    let mut table = Lpm::new();
    while table.len() < prefixes {
        let len = match random.below(10) {
            0..6 => 24,
            6..8 => 22 + random.below(2) as u8,
            _ => 12 + random.below(10) as u8,
        };
        let address = 0xffff << 32 | u128::from(random.next() as u32 & 0xdfff_ffff);
        table.insert(address, 96 + len, random.next() as u32);
    }
    let held: Vec<(u128, u8, u32)> = table.iter().collect();
    let covered: Vec<u128> = (0..LOOKUPS)
        .map(|_| {
            let (prefix, len, _) = held[random.below(held.len())];
            prefix | (u128::from(random.next()) & (u128::MAX.checked_shr(len.into()).unwrap_or(0)))
        })
        .collect();
    let single = median(|| {
        for &address in &covered {
            black_box(table.lookup(address));
        }
    });
    let batched = median(|| {
        let mut found = [None; BATCH];
        for addresses in covered.chunks_exact(BATCH) {
            table.lookup_batch(addresses, &mut found);
            black_box(found);
        }
    });
    println!(
        "lpm        {prefixes:>8} prefixes: batched {batched:.1} ns, single {single:.1}; {:.1} bytes each",
        table.memory_bytes() as f64 / prefixes as f64
    );
}

/// Rules of an ACL: prefixes of a few lengths, protocols, ports exact, ranged or any, and a last
/// rule for all; each key is taken from a rule.
fn classifier(rules: usize) {
    let mut random = Random(3);
    let mut table = Classifier::new();
    let mut held = Vec::new();
    for data in 0..rules as u32 {
        let mut rule =
            Rule { value: [0; 5], mask: [0; 5], ranges: [PortRange::ANY; 2], priority: data, data };
        let lengths = [[16, 24, 24, 28, 32, 32], [16, 24, 24, 32, 32, 32]];
        for (side, lengths) in [1, 3].into_iter().zip(lengths) {
            let network = [10, 172, 192, 203][random.below(4)] << 24;
            rule.mask[side - 1] = u64::MAX;
            rule.mask[side] = u64::MAX << (32 - lengths[random.below(6)]);
            rule.value[side] = (0xffff << 32 | network | random.next() & 0xff_ffff) & rule.mask[side];
        }
        rule.mask[4] = 0xff;
        rule.value[4] = [6, 6, 17][random.below(3)];
        rule.ranges[0] = [PortRange::ANY, PortRange { lo: 1024, hi: 65535 }][random.below(2)];
        rule.ranges[1] = match random.below(7) {
            port @ 0..4 => PortRange::exact([22, 53, 80, 443][port]),
            4 => PortRange::ANY,
            5 => PortRange { lo: 1024, hi: 65535 },
            _ => PortRange { lo: 8000, hi: 8100 },
        };
        held.push(rule);
    }
    let last = rules as u32;
    held.push(Rule { value: [0; 5], mask: [0; 5], ranges: [PortRange::ANY; 2], priority: last, data: last });
    for rule in &held {
        table.insert(*rule);
    }
    let keys: Vec<Key> = (0..LOOKUPS)
        .map(|_| {
            let rule = &held[random.below(rules)];
            let ports =
                rule.ranges.map(|range| range.lo + random.below((range.hi - range.lo) as usize + 1) as u16);
            let words = std::array::from_fn(|i| rule.value[i] | random.next() & 0xffff & !rule.mask[i]);
            Key { words, ports }
        })
        .collect();
    let fast = median(|| {
        for key in &keys {
            black_box(table.lookup(key));
        }
    });
    let linear = median(|| {
        for key in &keys[..LOOKUPS / 1024] {
            black_box(held.iter().find(|rule| rule.matches(key)));
        }
    }) * 1024.0;
    println!("classifier {rules:>8} rules: {fast:.1} ns, linear scan {linear:.1}");
}

/// CPU time of this thread, in ns: other work on the machine is not counted.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The median of seven runs of `LOOKUPS` lookups, in ns per lookup.
fn median(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..7)
        .map(|_| {
            let start = cpu_ns();
            run();
            (cpu_ns() - start) as f64 / LOOKUPS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[3]
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    product as u64 ^ (product >> 64) as u64
}

fn hash(key: &[u64; 5]) -> u64 {
    mix(mix(key[0], key[1]) ^ mix(key[2], key[3]), key[4])
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn words(&mut self) -> [u64; 5] {
        std::array::from_fn(|_| self.next())
    }
}
