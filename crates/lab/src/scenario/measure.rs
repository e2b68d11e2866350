//! Reading traffic's accounts: gaps, windows, and when goodput was back.

use crate::traffic::{Sample, Series};

/// The longest time without a byte among the whole slots between `from` and `to`, ns.
pub(crate) fn longest_gap(samples: &[Sample], from: u64, to: u64) -> u64 {
    let (mut last, mut longest) = (from, 0);
    for sample in samples.iter().filter(|s| s.bytes > 0 && s.at + Series::SLOT > from && s.at < to) {
        longest = longest.max(sample.at.saturating_sub(last));
        last = sample.at + Series::SLOT;
    }
    longest.max(to.saturating_sub(last))
}

/// The earliest time from `from` on at which goodput reached `wanted` (bits/s) and kept it for `time` (ns), as the mean over that
/// time with no slot empty; `None` if that was not until `to`.
pub(crate) fn back(series: &Series, from: u64, to: u64, wanted: f64, time: u64) -> Option<u64> {
    let samples = series.samples();
    let starts = samples.iter().map(|s| s.at).filter(|at| *at >= from && at + time <= to);
    let good = |at: &u64| {
        let none_empty = |s: &Sample| s.at < *at || s.at + Series::SLOT > at + time || s.bytes > 0;
        series.bits_per_second(*at, at + time) >= wanted && samples.iter().all(none_empty)
    };
    starts.into_iter().find(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn series(slots: &[u64]) -> Series {
        let series = Series::new(0);
        for (i, bytes) in slots.iter().enumerate().filter(|(_, b)| **b > 0) {
            series.record(i as u64 * Series::SLOT, *bytes);
        }
        series
    }

    #[test]
    fn gaps() {
        let samples = series(&[1, 1, 0, 0, 0, 1, 0, 1]).samples();
        assert_eq!(longest_gap(&samples, 0, 400 * MS), 150 * MS);
        assert_eq!(longest_gap(&samples, 0, 700 * MS), 300 * MS);
        assert_eq!(longest_gap(&samples, 250 * MS, 400 * MS), 50 * MS);
        assert_eq!(longest_gap(&[], 0, 70 * MS), 70 * MS);
    }

    #[test]
    fn goodput_is_back_when_it_stays() {
        let line = series(&[10, 10, 0, 0, 10, 0, 10, 10, 10, 10]);
        let wanted = 10.0 * 8.0 * 20.0;
        assert_eq!(back(&line, 50 * MS, 500 * MS, wanted, 150 * MS), Some(300 * MS));
        assert_eq!(back(&line, 0, 500 * MS, wanted, 100 * MS), Some(0));
        assert_eq!(back(&line, 50 * MS, 400 * MS, wanted, 150 * MS), None);
        assert_eq!(back(&line, 0, 500 * MS, wanted * 1.1, 100 * MS), None);
    }
}
