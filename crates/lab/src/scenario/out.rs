//! What a scenario prints, and the checks that it has made.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

/// One thing that was expected, and what was observed.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    step: usize,
    what: String,
    expected: String,
    observed: String,
    ok: bool,
}

/// Where a scenario prints to. A reader that has gone away does not end it.
#[derive(Debug)]
pub(crate) struct Out {
    terminal: bool,
    step: usize,
    began: Instant,
    checks: Vec<Check>,
    times: Vec<(usize, &'static str, Duration)>,
    shown: Option<u64>,
}

impl Out {
    pub(crate) fn new() -> Self {
        Out {
            terminal: stdout().is_terminal(),
            step: 0,
            began: Instant::now(),
            checks: Vec::new(),
            times: Vec::new(),
            shown: None,
        }
    }

    /// Prints a line.
    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        let mut out = stdout().lock();
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }

    /// Begins a step.
    pub(crate) fn begin(&mut self, step: usize, of: usize, title: &str) {
        self.step = step;
        self.say(format!("\nStep {step} of {of}: {title}"));
    }

    /// Ends a step that took `time`.
    pub(crate) fn end(&mut self, title: &'static str, time: Duration) {
        self.times.push((self.step, title, time));
    }

    /// A detail that is no check.
    pub(crate) fn note(&self, line: impl std::fmt::Display) {
        self.say(format!("       {line}"));
    }

    /// Records a check and prints it: `from` names the counters or receivers that tell.
    pub(crate) fn check(
        &mut self,
        ok: bool,
        what: impl Into<String>,
        expected: impl Into<String>,
        observed: impl Into<String>,
        from: &str,
    ) {
        let check = Check {
            step: self.step,
            what: what.into(),
            expected: expected.into(),
            observed: observed.into(),
            ok,
        };
        let mark = if ok { "ok    " } else { "FAILED" };
        self.say(format!("{mark} {}", check.what));
        self.say(format!("       expected: {}", check.expected));
        let from = if from.is_empty() { String::new() } else { format!("   ({from})") };
        self.say(format!("       observed: {}{from}", check.observed));
        self.checks.push(check);
    }

    /// Shows how far a long work has come: a line that counts on a terminal, else a line for every quarter.
    pub(crate) fn progress(&mut self, what: &str, done: u64, total: u64) {
        let percent = done.min(total) * 100 / total.max(1);
        let shown = if self.terminal { percent } else { percent / 25 * 25 };
        if self.shown == Some(shown) || (!self.terminal && shown == 0) {
            return;
        }
        self.shown = if percent == 100 { None } else { Some(shown) };
        if self.terminal {
            let end = if percent == 100 { "\n" } else { "" };
            let mut out = stdout().lock();
            let _ = write!(out, "\r       {what}: {percent} %{end}");
            let _ = out.flush();
        } else {
            self.note(format!("{what}: {shown} %"));
        }
    }

    /// Whether every check so far held, and there was one.
    pub(crate) fn good(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|c| c.ok)
    }

    /// The table of all checks, and the times.
    pub(crate) fn summary(&self) {
        let rows: Vec<[String; 5]> = self
            .checks
            .iter()
            .map(|c| {
                let ok = if c.ok { "ok" } else { "FAILED" };
                [c.step.to_string(), clip(&c.what), clip(&c.expected), clip(&c.observed), ok.into()]
            })
            .collect();
        self.say("");
        self.table(["STEP", "CHECK", "EXPECTED", "OBSERVED", "OK"], &rows);
        self.say("");
        for (step, title, time) in &self.times {
            self.say(format!("{:>6.1} s  step {step}: {title}", time.as_secs_f64()));
        }
        self.say(format!("{:>6.1} s  in all", self.began.elapsed().as_secs_f64()));
        let failed = self.checks.iter().filter(|c| !c.ok).count();
        self.say(match (failed, self.checks.len()) {
            (0, all) => format!("\nAll {all} checks held."),
            (failed, all) => format!("\n{failed} of {all} checks FAILED."),
        });
    }

    /// Prints a table, each column as wide as its widest cell.
    pub(crate) fn table<const N: usize>(&self, header: [&str; N], rows: &[[String; N]]) {
        let width = |column: usize| {
            let cells = rows.iter().map(|r| r[column].chars().count());
            cells.chain([header[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        let line = |cells: [&str; N]| {
            let padded: Vec<String> = cells.iter().zip(widths).map(|(c, w)| format!("{c:w$}")).collect();
            self.say(padded.join("  ").trim_end());
        };
        line(header);
        for row in rows {
            line(std::array::from_fn(|i| row[i].as_str()));
        }
    }
}

/// The start of a text that was printed in full before.
fn clip(text: &str) -> String {
    const MOST: usize = 64;
    if text.chars().count() <= MOST {
        return text.into();
    }
    let start: String = text.chars().take(MOST - 3).collect();
    format!("{}...", start.trim_end())
}

/// Nanoseconds in milliseconds, for people.
pub(crate) fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// Bits per second, for people.
pub(crate) fn rate(bits: f64) -> String {
    if bits >= 1e9 { format!("{:.2} Gbit/s", bits / 1e9) } else { format!("{:.0} Mbit/s", bits / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_check_is_enough_and_no_check_is_not_good() {
        let mut out = Out::new();
        assert!(!out.good());
        out.check(true, "a", "1", "1", "");
        assert!(out.good());
        out.check(false, "b", "1", "2", "");
        out.check(true, "c", "1", "1", "");
        assert!(!out.good());
    }

    #[test]
    fn long_cells_are_clipped() {
        assert_eq!(clip("short"), "short");
        assert_eq!(clip(&"x".repeat(64)).len(), 64);
        assert_eq!(clip(&"ü".repeat(65)), format!("{}...", "ü".repeat(61)));
    }

    #[test]
    fn amounts_for_people() {
        assert_eq!(ms(1_250_000), "1.2 ms");
        assert_eq!(rate(2.5e9), "2.50 Gbit/s");
        assert_eq!(rate(2e8), "200 Mbit/s");
    }
}
