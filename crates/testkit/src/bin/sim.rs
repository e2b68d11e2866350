//! Runs cases of the Rig: `sim [--seed N] [--cases N]`. Exit status 1 with the first failing seed.

use std::process::ExitCode;
use std::time::Instant;
use testkit::rig;

fn main() -> ExitCode {
    let (mut seed, mut cases, mut given) = (None, 1000, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse().ok());
        match (argument.as_str(), value) {
            ("--seed", Some(value)) => seed = Some(value),
            ("--cases", Some(value)) => (cases, given) = (value, true),
            _ => {
                eprintln!(
                    "usage: sim [--seed N] [--cases N]   a seed alone is one case; without one, cases start at seed 0"
                );
                return ExitCode::from(2);
            }
        }
    }
    if seed.is_some() && !given {
        cases = 1;
    }
    let first: u64 = seed.unwrap_or(0);
    let start = Instant::now();
    let mut sum = rig::Summary::default();
    for n in 0..cases {
        match rig::sound(first + n) {
            Ok(summary) => sum.add(&summary),
            Err(failure) => {
                eprintln!("\n{failure}");
                return ExitCode::FAILURE;
            }
        }
        if (n + 1).is_power_of_two() || (n + 1) % 1000 == 0 || n + 1 == cases {
            println!("{} cases in {:.1} s: {sum}", n + 1, start.elapsed().as_secs_f64());
        }
    }
    ExitCode::SUCCESS
}
