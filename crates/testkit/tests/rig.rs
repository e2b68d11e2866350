//! Cases of the Rig, some of every kind; `cargo xtask sim` runs as many as one likes.

use testkit::rig::{self, Summary};

const CASES: u64 = 60;

/// Runs cases from this seed on; what they went through together.
fn cases(first: u64) -> Summary {
    let mut sum = Summary::default();
    for seed in first..first + CASES {
        match rig::sound(seed) {
            Ok(summary) => {
                let Summary { packets, commands, faults, overlap, .. } = summary;
                assert!(
                    packets >= 100 && commands >= 20 && faults >= 1 && overlap.rules >= 20,
                    "seed {seed}: {summary}"
                );
                sum.add(&summary);
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{sum}");
    sum
}

#[test]
fn device_and_host_path_give_the_full_policys_answer() {
    let sum = cases(0);
    assert!(sum.delivered * 10 > sum.packets, "{sum}");
    assert!(sum.software > 0 && sum.confirmed > 0, "some rules fit and some do not: {sum}");
    assert!(sum.hits >= CASES, "{sum}");
}

#[test]
fn and_under_other_seeds() {
    cases(1_000);
}

#[test]
fn and_under_others_again() {
    cases(2_000);
}
