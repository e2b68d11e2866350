//! Configurations and profiles, in TOML or JSON.
#![no_main]

use model::{Config, ConfigError, Profile};

fn check(text: &str, errors: Vec<ConfigError>) {
    assert!(!errors.is_empty(), "a refusal says why");
    for error in errors {
        assert!(error.line as usize <= text.split('\n').count(), "{error}");
        assert!(error.to_string().starts_with("input"), "{error}");
    }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(errors) = Config::parse(text, "input") {
        check(text, errors);
    }
    if let Err(errors) = Profile::parse(text, "input") {
        check(text, errors);
    }
});
