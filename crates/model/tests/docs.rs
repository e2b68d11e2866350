//! `docs/configuration.md` is as the code is. `SOFTDPU_BLESS=1 cargo test -p softdpu-model --test docs` writes its generated parts.

use std::fmt::{Display, Write};
use std::fs;

use model::schema::{self, Kind};
use model::{
    AclAction, Config, IpVersion, MissPolicy, Offload, PortKind, Profile, Protocol, ResetPolicy, RouteAction,
    TABLES,
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

fn profiles() -> String {
    let [unlimited, tiny] = ["unlimited", "tiny"].map(|name| Profile::built_in(name).expect("there"));
    let mut text = String::new();
    for table in TABLES {
        let limit = |p: &Profile| p.limit(table).map_or("no limit".into(), |limit| limit.to_string());
        let _ = writeln!(text, "| {table} | {} | {} |", limit(&unlimited), limit(&tiny));
    }
    let _ = writeln!(text, "| command queue | {} | {} |", unlimited.queue, tiny.queue);
    text
}

/// The document with what stands from the line `mark` to the next empty line, or to the end, replaced.
fn replaced(doc: &str, mark: &str, to_the_end: bool, text: &str) -> String {
    let (before, after) = doc.split_once(mark).unwrap_or_else(|| panic!("{mark} stands in the document"));
    let rest = if to_the_end { "" } else { after.split_once("\n\n").map_or("", |(_, rest)| rest) };
    format!("{before}{mark}\n{}{}{rest}", text.trim_end(), if to_the_end { "\n" } else { "\n\n" })
}

#[test]
fn the_reference_is_up_to_date() {
    let doc = fs::read_to_string(PATH).expect("docs/configuration.md is there");
    let fresh = replaced(&doc, "| table | unlimited | tiny |\n| --- | --- | --- |", false, &profiles());
    let fresh = replaced(&fresh, "<!-- keys -->\n", true, &schema::markdown());
    if std::env::var_os("SOFTDPU_BLESS").is_some() {
        fs::write(PATH, &fresh).expect("docs/configuration.md is writable");
    } else {
        assert!(
            doc == fresh,
            "docs/configuration.md is stale: SOFTDPU_BLESS=1 cargo test -p softdpu-model --test docs"
        );
    }
}

#[test]
fn the_examples_are_valid() {
    let doc = fs::read_to_string(PATH).expect("docs/configuration.md is there");
    let blocks = |language: &str| -> Vec<String> {
        let fence = format!("\n```{language}\n");
        doc.split(&fence)
            .skip(1)
            .map(|p| p.split_once("\n```").expect("a block ends").0.to_string())
            .collect()
    };
    let [config, profile] = &blocks("toml")[..] else { panic!("two TOML blocks") };
    assert_eq!(Config::parse(config, "example").expect("valid").warnings, []);
    assert_eq!(Profile::parse(profile, "example").expect("valid").limit("acl"), Some(4096));
    let [json] = &blocks("json")[..] else { panic!("one JSON block") };
    let from_json = Config::parse(json, "example").expect("valid").desired;
    assert_eq!(from_json.enis.len(), 1);
}

#[test]
fn every_word_of_the_code_is_documented() {
    fn quoted<T: Display + Copy>(words: &[(&str, T)]) -> Vec<String> {
        words.iter().map(|(word, _)| format!("{word:?}")).collect()
    }
    let cases = [
        ("[[port]]", "kind", quoted(PortKind::WORDS)),
        ("[device]", "miss_policy", quoted(MissPolicy::WORDS)),
        ("[device]", "reset_policy", quoted(ResetPolicy::WORDS)),
        ("[device]", "profile", quoted(&Profile::BUILT_IN)),
        ("[[acl_group]]", "ip_version", quoted(IpVersion::WORDS)),
        ("[[acl_group.rule]]", "action", quoted(AclAction::WORDS)),
        ("[[acl_group.rule]]", "offload", quoted(Offload::WORDS)),
        ("[[acl_group.rule]]", "protocol", quoted(&Protocol::NAMES)),
        ("[[route]]", "action_type", quoted(RouteAction::WORDS)),
    ];
    for (header, key, words) in cases {
        let object = schema::describe().iter().find(|o| o.header == header).expect("there");
        let (Kind::One(text) | Kind::List(text)) = object.key(key).expect("there").kind else {
            panic!("{key}")
        };
        let listed: Vec<_> = text.split('"').skip(1).step_by(2).map(|word| format!("{word:?}")).collect();
        assert_eq!(listed, words, "{header} {key}");
    }
}
