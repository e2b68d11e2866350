//! What each error says, and where. A row changes one place of a valid configuration and names every line that must come of it.

use model::{Config, ConfigErrorKind};

const BASE: &str = include_str!("data/base.toml");

/// The lines of all errors of `text`, without the file.
fn errors(text: &str) -> Vec<String> {
    match Config::parse(text, "f") {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .iter()
            .map(|e| e.to_string().strip_prefix("f:").expect("starts with the file").to_string())
            .collect(),
    }
}

fn edited(from: &str, to: &str) -> String {
    assert_eq!(BASE.matches(from).count(), 1, "{from:?} must occur once");
    BASE.replace(from, to)
}

#[test]
fn base_is_valid_and_without_warnings() {
    let config = Config::parse(BASE, "f").expect("valid");
    assert_eq!(config.warnings, []);
}
