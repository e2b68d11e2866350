//! `Lpm` against the linear oracle, and RFC 4632's meaning in rows.

use proptest::prelude::*;
use tables::lpm::Lpm;
use tables::reference::LinearLpm;

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
    0xffff << 32 | u32::from_be_bytes([a, b, c, d]) as u128
}

/// Addresses that share many leading bits, of both families, with the neighbourhood of the
/// v4-mapped prefix.
fn address() -> impl Strategy<Value = u128> {
    let base = prop::sample::select(vec![
        0u128,
        v4(10, 0, 0, 0),
        v4(10, 0, 255, 255),
        v4(255, 255, 255, 255),
        0xfffe << 32,
        0x2001_0db8 << 96,
        0x2001_0db8_0001_0002 << 64,
        u128::MAX,
    ]);
    let flips = prop::collection::vec(0u32..128, 0..4);
    let low_flips = prop::collection::vec(0u32..40, 0..4);
    (base, flips, low_flips, 0u8..4).prop_map(|(base, flips, low_flips, far)| {
        let flips = if far == 0 { flips } else { Vec::new() };
        flips.into_iter().chain(low_flips).fold(base, |bits, flip| bits ^ 1 << flip)
    })
}

fn length() -> impl Strategy<Value = u8> {
    prop_oneof![
        0u8..=128,
        prop::sample::select(vec![0u8, 32, 48, 64, 95, 96, 97, 104, 112, 119, 120, 121, 126, 127, 128]),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u128, u8, u32),
    Remove(u128, u8),
    /// Removes a prefix that is held, the index modulo the count.
    RemoveHeld(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (address(), length(), any::<u32>()).prop_map(|(p, l, v)| Step::Insert(p, l, v)),
        1 => (address(), length()).prop_map(|(p, l)| Step::Remove(p, l)),
        5 => any::<usize>().prop_map(Step::RemoveHeld),
    ];
    prop::collection::vec(step, 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn answers_as_the_oracle(steps in steps(), probes in prop::collection::vec(address(), 64)) {
        let mut fast = Lpm::new();
        let mut oracle = LinearLpm::default();
        for step in steps {
            match step {
                Step::Insert(prefix, len, value) => {
                    prop_assert_eq!(fast.insert(prefix, len, value), oracle.insert(prefix, len, value));
                }
                Step::Remove(prefix, len) => {
                    prop_assert_eq!(fast.remove(prefix, len), oracle.remove(prefix, len));
                }
                Step::RemoveHeld(index) => {
                    let held = oracle.entries();
                    if !held.is_empty() {
                        let (prefix, len, value) = held[index % held.len()];
                        prop_assert_eq!(oracle.remove(prefix, len), Some(value));
                        prop_assert_eq!(fast.remove(prefix, len), Some(value));
                    }
                }
            }
            prop_assert_eq!(fast.len(), oracle.entries().len());
        }
        let mut held: Vec<_> = fast.iter().collect();
        held.sort_unstable();
        prop_assert_eq!(&held, &oracle.entries());
        let edges = held.iter().flat_map(|&(prefix, len, _)| {
            let last = prefix | u128::MAX.checked_shr(len.into()).unwrap_or(0);
            [prefix, last, prefix.wrapping_sub(1), last.wrapping_add(1)]
        });
        let addresses: Vec<u128> = edges.chain(probes).collect();
        let expected: Vec<_> = addresses.iter().map(|&address| oracle.lookup(address)).collect();
        for (&address, &expected) in addresses.iter().zip(&expected) {
            prop_assert_eq!(fast.lookup(address), expected, "{:x}", address);
        }
        let mut found = vec![Some((255, 0)); addresses.len()];
        fast.lookup_batch(&addresses, &mut found);
        prop_assert_eq!(found, expected);
    }

    /// Memory follows what is held: nothing leaks over many updates.
    #[test]
    fn memory_is_used_again(prefixes in prop::collection::vec((address(), length()), 1..100)) {
        let mut table = Lpm::new();
        let mut after_first = 0;
        for round in 0..20 {
            for (value, &(prefix, len)) in (0..).zip(&prefixes) {
                table.insert(prefix, len, value);
            }
            for &(prefix, len) in &prefixes {
                table.remove(prefix, len);
            }
            prop_assert!(table.is_empty());
            if round == 0 {
                after_first = table.memory_bytes();
            }
        }
        prop_assert_eq!(table.memory_bytes(), after_first);
    }
}

#[test]
fn longest_prefix_wins() {
    let mut table = Lpm::new();
    let routes = [
        (v4(0, 0, 0, 0), 96, 1),
        (v4(10, 0, 0, 0), 104, 2),
        (v4(10, 1, 0, 0), 112, 3),
        (v4(10, 1, 2, 0), 120, 4),
        (v4(10, 1, 2, 3), 128, 5),
        (0, 0, 6),
        (0x2001_0db8 << 96, 32, 7),
    ];
    for (prefix, len, value) in routes {
        assert_eq!(table.insert(prefix, len, value), None);
    }
    let rows = [
        ("host route", v4(10, 1, 2, 3), (128, 5)),
        ("its neighbour", v4(10, 1, 2, 4), (120, 4)),
        ("the /16", v4(10, 1, 3, 3), (112, 3)),
        ("the /8", v4(10, 2, 0, 0), (104, 2)),
        ("default of IPv4", v4(11, 0, 0, 0), (96, 1)),
        ("IPv6 /32", 0x2001_0db8 << 96 | 1, (32, 7)),
        ("default of IPv6", 1, (0, 6)),
    ];
    for (name, address, expected) in rows {
        assert_eq!(table.lookup(address), Some(expected), "{name}");
    }
}

#[test]
fn families_are_apart() {
    let mut table = Lpm::new();
    table.insert(0, 0, 6);
    assert_eq!(table.lookup(v4(10, 0, 0, 1)), None, "IPv4 under the default route of IPv6");
    table.insert(v4(0, 0, 0, 0), 96, 4);
    assert_eq!(table.lookup(v4(10, 0, 0, 1)), Some((96, 4)));
    assert_eq!(table.lookup(0xfffe_0a00_0001), Some((0, 6)), "an address beside the mapped ones");
}

#[test]
fn a_few_prefixes_take_less_than_two_kilobytes() {
    let mut table = Lpm::new();
    table.insert(v4(0, 0, 0, 0), 96, 0);
    table.insert(v4(10, 0, 0, 0), 104, 1);
    table.insert(v4(10, 0, 1, 0), 120, 2);
    table.insert(0, 0, 3);
    table.insert(0x2001_0db8_0001_0002 << 64, 64, 4);
    let copy = table.clone();
    assert!(copy.memory_bytes() < 2048, "{}", copy.memory_bytes());
    table.insert(v4(10, 0, 0, 0), 104, 9);
    assert_eq!(copy.lookup(v4(10, 9, 9, 9)), Some((104, 1)), "a clone is apart from its origin");
}
