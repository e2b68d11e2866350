//! `Classifier` against the linear oracle, on rules and keys that meet often.

use proptest::prelude::*;
use tables::classifier::{Classifier, Consulted, Key, PortRange, Rule};
use tables::reference::LinearClassifier;

fn word() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1, 2, 0x0a00_0001, 0x0a00_0002, 0x0a01_0001 << 32, u64::MAX])
}

fn mask() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        2 => Just(u64::MAX),
        1 => prop::sample::select(vec![0xffff_ff00, 0xffff_0000, 1, !0 << 32]),
    ]
}

fn port() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![0, 1, 79, 80, 81, 443, 1024, 65534, 65535])
}

fn range() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        3 => Just(PortRange::ANY),
        2 => port().prop_map(PortRange::exact),
        // Some of them inverted: they match nothing.
        2 => (port(), port()).prop_map(|(lo, hi)| PortRange { lo, hi }),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    (prop::array::uniform5(word()), prop::array::uniform2(port()))
        .prop_map(|(words, ports)| Key { words, ports })
}

/// Any masks: about one tuple per rule, so the rules are scanned.
fn many_shapes() -> BoxedStrategy<[u64; 5]> {
    prop::array::uniform5(mask()).boxed()
}

/// Three masks, one within another: many rules per tuple, so the tuples are probed.
fn few_shapes() -> BoxedStrategy<[u64; 5]> {
    prop::sample::select(vec![[0; 5], [u64::MAX, 0, 0, 0, 0], [u64::MAX, 0, 0xffff_ff00, 0, 1]]).boxed()
}

/// Few priorities, so that many are equal; `data` below `names`, so that many are replaced.
fn rule(names: u32, masks: BoxedStrategy<[u64; 5]>) -> impl Strategy<Value = Rule> {
    let words = (prop::array::uniform5(word()), masks);
    (words, prop::array::uniform2(range()), 0u32..4, 0..names)
        .prop_map(|((value, mask), ranges, priority, data)| Rule { value, mask, ranges, priority, data })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Rule),
    Remove(u32),
}

fn steps(names: u32, count: usize, masks: BoxedStrategy<[u64; 5]>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => rule(names, masks).prop_map(Step::Insert),
        1 => (0..names).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..count)
}

fn run(steps: &[Step]) -> Result<(Classifier, LinearClassifier), TestCaseError> {
    let mut fast = Classifier::new();
    let mut oracle = LinearClassifier::default();
    for step in steps {
        match step {
            Step::Insert(rule) => {
                let replaced = fast.insert(*rule);
                prop_assert_eq!(replaced.is_some(), oracle.remove(rule.data));
                oracle.insert(*rule);
            }
            Step::Remove(data) => {
                let removed = fast.remove(*data);
                prop_assert_eq!(removed.map(|rule| rule.data), oracle.remove(*data).then_some(*data));
            }
        }
    }
    Ok((fast, oracle))
}

fn check(steps: &[Step], keys: &[Key]) -> Result<(), TestCaseError> {
    let (fast, oracle) = run(steps)?;
    let fast = fast.clone();
    for key in keys {
        prop_assert_eq!(fast.lookup(key).map(|rule| rule.data), oracle.lookup(key));
    }
    prop_assert!(fast.iter().all(|rule| fast.lookup(&inside(rule)).is_some() || is_empty(rule)));
    prop_assert_eq!(fast.len(), fast.iter().count());
    prop_assert!(fast.iter().is_sorted_by_key(Rule::precedence));
    Ok(())
}

/// A key that the rule matches, if any does.
fn inside(rule: &Rule) -> Key {
    Key { words: rule.value, ports: rule.ranges.map(|range| range.lo) }
}

fn is_empty(rule: &Rule) -> bool {
    rule.ranges.iter().any(|range| range.lo > range.hi)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn answers_as_the_oracle_with_few_shapes(
        steps in steps(400, 600, few_shapes()),
        keys in prop::collection::vec(key(), 100),
    ) {
        check(&steps, &keys)?;
    }

    #[test]
    fn answers_as_the_oracle_with_many_shapes(
        steps in steps(50, 100, many_shapes()),
        keys in prop::collection::vec(key(), 100),
    ) {
        check(&steps, &keys)?;
    }

    /// A key that differs only where nothing was consulted gets the same answer.
    #[test]
    fn what_was_not_consulted_does_not_matter(
        steps in prop_oneof![steps(20, 20, many_shapes()), steps(400, 600, few_shapes())],
        pairs in prop::collection::vec((key(), key(), prop::array::uniform5(any::<u64>())), 50),
    ) {
        let (fast, _) = run(&steps)?;
        for (key, other, noise) in pairs {
            let mut consulted = Consulted::default();
            let found = fast.lookup_traced(&key, &mut consulted);
            prop_assert_eq!(found, fast.lookup(&key));
            for noise in [[0; 5], noise] {
                let word = |i: usize| {
                    let fixed = consulted.words[i];
                    (key.words[i] & fixed) | ((other.words[i] ^ noise[i]) & !fixed)
                };
                let port = |i: usize| if consulted.ports[i] { key.ports[i] } else { other.ports[i] };
                let changed = Key { words: std::array::from_fn(word), ports: std::array::from_fn(port) };
                prop_assert_eq!(fast.lookup(&changed), found);
            }
        }
    }
}

const ANY: Rule = Rule { value: [0; 5], mask: [0; 5], ranges: [PortRange::ANY; 2], priority: 0, data: 0 };

#[test]
fn precedence_in_rows() {
    let rows = [
        ("lower priority number", vec![(5, 1), (4, 2)], 2),
        ("equal priority, lower data", vec![(5, 3), (5, 1), (5, 2)], 1),
        ("priority before data", vec![(5, 1), (4, 9)], 9),
    ];
    for (name, rules, expected) in rows {
        let mut table = Classifier::new();
        for (priority, data) in rules {
            table.insert(Rule { priority, data, ..ANY });
        }
        assert_eq!(table.lookup(&Key::default()).map(|rule| rule.data), Some(expected), "{name}");
    }
}

#[test]
fn consults_nothing_where_nothing_can_differ() {
    for rules in [1, 100] {
        let mut table = Classifier::new();
        for data in 0..rules {
            table.insert(Rule { priority: data, data, ..ANY });
        }
        let mut consulted = Consulted::default();
        assert_eq!(table.lookup_traced(&Key::default(), &mut consulted).map(|rule| rule.data), Some(0));
        assert_eq!(consulted, Consulted::default());
    }
}

/// Later tuples are not visited, and so not consulted, once a better rule is found.
#[test]
fn stops_at_the_best_rule() {
    let mut table = Classifier::new();
    let first = Rule { value: [7, 0, 0, 0, 0], mask: [u64::MAX, 0, 0, 0, 0], ..ANY };
    table.insert(first);
    for data in 1..100u32 {
        let value = [0, 0, data.into(), 0, 0];
        table.insert(Rule { value, mask: [0, 0, u64::MAX, 0, 0], priority: 1, data, ..ANY });
    }
    let mut consulted = Consulted::default();
    let key = Key { words: [7, 0, 5, 0, 0], ports: [0; 2] };
    assert_eq!(table.lookup_traced(&key, &mut consulted), Some(&first));
    assert_eq!(consulted, Consulted { words: first.mask, ports: [false; 2] });

    let missed = Key { words: [8, 0, 5, 0, 0], ports: [0; 2] };
    assert_eq!(table.lookup_traced(&missed, &mut consulted).map(|rule| rule.data), Some(5));
    assert_eq!(consulted, Consulted { words: [u64::MAX, 0, u64::MAX, 0, 0], ports: [false; 2] });

    // Without its best rules the other tuple comes last.
    let second = Rule { data: 1000, priority: 1, ..first };
    table.insert(second);
    table.remove(first.data);
    let mut consulted = Consulted::default();
    assert_eq!(table.lookup_traced(&key, &mut consulted).map(|rule| rule.data), Some(5));
    assert_eq!(consulted, Consulted { words: [0, 0, u64::MAX, 0, 0], ports: [false; 2] });
}

/// A tuple that lost its rules is probed no more, and one that gained a worse rule keeps its place.
#[test]
fn consults_only_tuples_that_matter() {
    let mut table = Classifier::new();
    let by_source = |data: u32, priority| Rule {
        value: [data.into(), 0, 0, 0, 0],
        mask: [u64::MAX, 0, 0, 0, 0],
        priority,
        data,
        ..ANY
    };
    let by_protocol = |data: u32, priority| Rule {
        value: [0, 0, 0, 0, data.into()],
        mask: [0, 0, 0, 0, 0xff],
        priority,
        data,
        ..ANY
    };
    for data in 0..100 {
        table.insert(by_source(data, 1));
    }
    let key = Key { words: [7, 0, 0, 0, 200], ports: [0; 2] };
    let source_only = Consulted { words: [u64::MAX, 0, 0, 0, 0], ports: [false; 2] };
    let consulted = |table: &Classifier| {
        let mut consulted = Consulted::default();
        assert_eq!(table.lookup_traced(&key, &mut consulted).map(|rule| rule.data), Some(7));
        consulted
    };
    table.insert(by_protocol(201, 0));
    assert_eq!(consulted(&table).words, [u64::MAX, 0, 0, 0, 0xff]);
    table.remove(201);
    assert_eq!(consulted(&table), source_only, "the tuple is empty");

    table.insert(by_protocol(202, 2));
    table.insert(by_source(203, 3));
    assert_eq!(consulted(&table), source_only, "its own tuple still has the best rule");
}
