//! What each error and warning says, and where: the rows of `data/errors.txt` and `data/warnings.txt`.

use std::collections::BTreeSet;
use std::fmt::Write;

use model::{Config, ConfigErrorKind};

const BASE: &str = include_str!("data/base.toml");

/// A change of `base.toml` and what must come of it.
struct Row {
    name: String,
    text: String,
    expected: String,
}

fn rows(file: &str) -> Vec<Row> {
    file.split("\n= ").skip(1).map(row).collect()
}

fn row(block: &str) -> Row {
    let base: Vec<&str> = BASE.lines().collect();
    let (mut text, mut expected, mut at) = (String::new(), String::new(), 0);
    let mut lines = block.lines();
    let name = lines.next().expect("a row has a name").to_string();
    let copy = |text: &mut String, at: &mut usize, to: usize| {
        while *at < to {
            let _ = writeln!(text, "{}", base[*at]);
            *at += 1;
        }
    };
    for line in lines.filter(|l| !l.is_empty()) {
        let (mark, rest) = line.split_at(1);
        match mark {
            "@" => copy(&mut text, &mut at, rest.trim().parse::<usize>().expect("a line number") - 1),
            "-" => {
                assert_eq!(base[at], rest, "row {name:?}");
                at += 1;
            }
            "+" => {
                let _ = writeln!(text, "{rest}");
            }
            "!" => {
                let _ = writeln!(expected, "{}", rest.trim_start());
            }
            _ => panic!("row {name:?}: {line}"),
        }
    }
    copy(&mut text, &mut at, base.len());
    Row { name, text, expected }
}

#[test]
fn base_is_valid_and_without_warnings() {
    let config = Config::parse(BASE, "f").expect("valid");
    assert_eq!(config.warnings, []);
}

#[test]
fn every_error_has_its_words_and_place() {
    let mut kinds = BTreeSet::from([ConfigErrorKind::Unreadable]);
    for row in rows(include_str!("data/errors.txt")) {
        let errors = Config::parse(&row.text, "f").err().unwrap_or_default();
        let mut got = String::new();
        for error in &errors {
            kinds.insert(error.kind);
            let _ = writeln!(got, "{} {}", error.kind, error.to_string().replacen("f:", "", 1));
        }
        assert_eq!(got, row.expected, "row {:?}", row.name);
    }
    let all: BTreeSet<_> = ConfigErrorKind::WORDS.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, all, "each kind has a row; unreadable has a test of its own in load.rs");
}

#[test]
fn every_warning_has_its_words_and_place() {
    for row in rows(include_str!("data/warnings.txt")) {
        let config = Config::parse(&row.text, "f").unwrap_or_else(|e| panic!("row {:?}: {e:?}", row.name));
        let mut got = String::new();
        for warning in &config.warnings {
            let _ = writeln!(got, "{}", warning.to_string().replacen("f:", "", 1));
        }
        assert_eq!(got, row.expected, "row {:?}", row.name);
    }
}

#[test]
fn all_errors_are_told_at_once_in_the_order_of_the_file() {
    let rows = [
        "nothing = 1",
        "schema = 2",
        "[device]",
        "workers = \"two\"",
        "[[port]]",
        "kind = \"tap\"",
        "[[vnet]]",
        "name = \"v\"",
        "vni = -1",
        "[[eni]]",
        "name = \"e\"",
        "port = \"p\"",
        "vnet = \"w\"",
        "mac_address = \"x\"",
        "addresses = [\"10.0.0.1\", \"y\", 3]",
    ];
    let errors = Config::parse(&rows.join("\n"), "f").expect_err("invalid");
    let places: Vec<_> = errors.iter().map(|e| (e.line, e.column, e.path.as_str())).collect();
    // Not the port of the ENI: the port that lacks its name may be it.
    let expected = [
        (1, 1, "nothing"),
        (2, 10, "schema"),
        (4, 11, "device.workers"),
        (5, 1, "port[0].name"),
        (9, 7, "vnet[0].vni"),
        (13, 8, "eni[0].vnet"),
        (14, 15, "eni[0].mac_address"),
        (15, 26, "eni[0].addresses[1]"),
        (15, 31, "eni[0].addresses[2]"),
    ];
    assert_eq!(places, expected);
}

#[test]
fn json_errors_have_their_places() {
    let text =
        "{\"schema\": 1,\n  \"port\": [{\"name\": \"p\", \"kind\": \"tpa\",\n    \"é\": 1, \"mtu\": null}]}";
    let errors = Config::parse(text, "f.json").expect_err("invalid");
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "f.json:2:34: \"kind\" is \"tpa\"; expected \"tap\", \"af_packet\" or \"memory\"; did you mean \"tap\"?",
            "f.json:3:5: unknown key \"é\" in [[port]]; expected one of name, kind, interface, mtu",
        ]
    );
    for (text, line, column, what) in [
        ("{\"schema\": 1,\n \"port\": [}", 2, 11, "expected value"),
        ("{\"schema\": 1,\n \"schema\": 1}", 2, 2, "duplicate key \"schema\""),
    ] {
        let errors = Config::parse(text, "f").expect_err("invalid");
        let got: Vec<_> = errors.iter().map(|e| (e.line, e.column, e.what.as_str())).collect();
        assert_eq!(got, [(line, column, what)]);
    }
}
