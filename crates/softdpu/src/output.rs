//! Printing what was read: tables for people, JSON and YAML for programs.

use crate::args::Output;
use crate::failure::{Failure, Result};
use comfy_table::Table;
use comfy_table::presets;
use serde::Serialize;
use serde_yaml_ng::with::singleton_map_recursive;
use std::io::{ErrorKind, Write};

/// Prints `value` as JSON or YAML, or as the text that `table` makes of it.
pub fn print<T: Serialize>(output: Output, value: &T, table: impl FnOnce(&T) -> String) -> Result {
    let text = match output {
        Output::Table => table(value),
        Output::Json => serde_json::to_string_pretty(value).map_err(Failure::new)?,
        Output::Yaml => yaml(value).map_err(Failure::new)?,
    };
    say(text.trim_end())
}

/// The same tree as the JSON: no tags of YAML's own.
fn yaml<T: Serialize>(value: &T) -> std::result::Result<String, serde_yaml_ng::Error> {
    let mut text = Vec::new();
    singleton_map_recursive::serialize(value, &mut serde_yaml_ng::Serializer::new(&mut text))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Prints a line; a reader that has gone away ends the command quietly.
pub fn say(text: &str) -> Result {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure { message: String::new(), status: 0 }),
        other => other.map_err(Failure::new),
    }
}

/// A table of rows under a header; or one line that says that there is nothing.
pub fn rows<const N: usize>(header: [&str; N], rows: Vec<[String; N]>, nothing: &str) -> String {
    if rows.is_empty() {
        return nothing.into();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    trim(&table.to_string())
}

/// Names and values, one pair a line.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

fn trim(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim().trim_end())).collect()
}

/// A duration in the unit that reads best.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
