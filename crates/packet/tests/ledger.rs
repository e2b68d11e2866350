//! The account balances, and the reasons keep their names.

use std::collections::HashSet;

use packet::{ConsumeReason, Count, CreateReason, DropReason, Ledger, PuntReason};
use proptest::prelude::*;

fn count(frames: u64) -> Count {
    Count { frames, packets: frames * 3, bytes: frames * 100 }
}

#[test]
fn a_frame_without_a_name_is_unaccounted() {
    let mut ledger = Ledger::new();
    ledger.entered.port += count(10);
    assert_eq!(ledger.unaccounted(), 10);
    ledger.left.port += count(7);
    ledger.drop(DropReason::NoRoute, count(1));
    ledger.held = 1;
    assert_eq!(ledger.unaccounted(), 1, "lost");
    ledger.consume(ConsumeReason::Probe, count(2));
    assert_eq!(ledger.unaccounted(), -1, "counted twice");
    assert_eq!(ledger.drops().collect::<Vec<_>>(), [(DropReason::NoRoute, count(1))]);
}

#[test]
fn codes_are_snake_case_unique_and_found_again() {
    fn check<R: Copy + PartialEq + std::fmt::Debug>(
        all: &[R],
        code: fn(R) -> &'static str,
        meaning: fn(R) -> &'static str,
        from_code: fn(&str) -> Option<R>,
        index: fn(R) -> usize,
    ) {
        let mut seen = HashSet::new();
        for (i, &reason) in all.iter().enumerate() {
            assert_eq!(index(reason), i);
            assert_eq!(from_code(code(reason)), Some(reason));
            assert!(seen.insert(code(reason)), "{reason:?} twice");
            assert!(code(reason).bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
            assert!(meaning(reason).ends_with('.') && !meaning(reason).starts_with(' '));
            // The code is the variant's name, so that a search finds both.
            let name = format!("{reason:?}").to_lowercase();
            assert_eq!(code(reason).replace('_', ""), name);
        }
        assert_eq!(from_code("nonsense"), None);
    }
    check(DropReason::ALL, DropReason::code, DropReason::meaning, DropReason::from_code, DropReason::index);
    check(PuntReason::ALL, PuntReason::code, PuntReason::meaning, PuntReason::from_code, PuntReason::index);
    check(
        ConsumeReason::ALL,
        ConsumeReason::code,
        ConsumeReason::meaning,
        ConsumeReason::from_code,
        ConsumeReason::index,
    );
    check(
        CreateReason::ALL,
        CreateReason::code,
        CreateReason::meaning,
        CreateReason::from_code,
        CreateReason::index,
    );
    assert_eq!(format!("{:>12}", DropReason::NoRoute), "    no_route");
}

/// One event: which column, which reason, how many frames.
type Event = (u8, prop::sample::Index, u64);

fn book(ledger: &mut Ledger, (column, which, frames): &Event) -> i64 {
    let c = count(*frames);
    let n = *frames as i64;
    match column {
        0 => ledger.entered.port += c,
        1 => ledger.entered.host_path += c,
        2 => ledger.entered.worker += c,
        3 => ledger.entered.punted += c,
        4 => ledger.create(*which.get(CreateReason::ALL), c),
        5 => ledger.left.port += c,
        6 => ledger.left.returned += c,
        7 => ledger.left.worker += c,
        8 => ledger.punt(*which.get(PuntReason::ALL), c),
        9 => ledger.drop(*which.get(DropReason::ALL), c),
        10 => ledger.consume(*which.get(ConsumeReason::ALL), c),
        _ => ledger.held += frames,
    }
    if *column < 5 { n } else { -n }
}

proptest! {
    #[test]
    fn the_law_is_a_plain_sum_and_merging_adds(
        a in prop::collection::vec((0u8..12, any::<prop::sample::Index>(), 0u64..1000), 0..100),
        b in prop::collection::vec((0u8..12, any::<prop::sample::Index>(), 0u64..1000), 0..100),
    ) {
        let (mut one, mut two, mut both) = (Ledger::new(), Ledger::new(), Ledger::new());
        let sum_a: i64 = a.iter().map(|e| book(&mut one, e)).sum();
        let sum_b: i64 = b.iter().map(|e| book(&mut two, e)).sum();
        a.iter().chain(&b).for_each(|e| { book(&mut both, e); });
        prop_assert_eq!(one.unaccounted(), sum_a);
        prop_assert_eq!(two.unaccounted(), sum_b);
        one.merge(&two);
        prop_assert_eq!(&one, &both);
        prop_assert_eq!(both.unaccounted(), sum_a + sum_b);
        let named: Count = both.drops().map(|(_, c)| c).chain(both.consumed().map(|(_, c)| c))
            .chain(both.punts().map(|(_, c)| c)).sum();
        prop_assert_eq!(named + both.left.port + both.left.returned + both.left.worker, both.total_left());
    }
}
