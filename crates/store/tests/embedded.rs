//! What a store promises, on the file and in memory.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use store::{Change, Embedded, Memory, Store, StoreError};

const CHILD: &str = "SOFTDPU_STORE_CHILD";

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("softdpu-store-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.redb")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn number(store: &impl Store, key: &str) -> u64 {
    let value = store.get(key).unwrap();
    value.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()))
}

#[test]
#[ignore = "the child of killed_at_any_point_it_keeps_whole_batches"]
fn child_writes_for_ever() {
    let mut store = Embedded::open(std::env::var(CHILD).unwrap()).unwrap();
    let mut n = number(&store, "a");
    loop {
        let (old, new) = (format!("at/{n}"), format!("at/{}", n + 1));
        n += 1;
        let bytes = n.to_le_bytes();
        let batch: [Change<'_>; 4] =
            [("a", Some(&bytes)), (&old, None), (&new, Some(&bytes)), ("b", Some(&bytes))];
        store.put_batch(&batch).unwrap();
        println!("done {n}");
    }
}

#[test]
fn killed_at_any_point_it_keeps_whole_batches() {
    let scratch = Scratch::new("kill");
    let mut known = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "child_writes_for_ever"])
            .env(CHILD, scratch.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let acknowledged = |line: &String| line.strip_prefix("done ").and_then(|n| n.parse().ok());
        let seen: Vec<u64> =
            (&mut lines).map_while(Result::ok).filter_map(|l| acknowledged(&l)).take(1 + round).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let rest = lines.map_while(Result::ok).filter_map(|l| acknowledged(&l));
        let last: u64 = seen.into_iter().chain(rest).max().expect("the child wrote");
        assert!(last > known, "round {round}: no progress");
        known = last;

        let store = Embedded::open(scratch.file()).unwrap();
        let n = number(&store, "a");
        assert!(n >= known, "round {round}: batch {known} was acknowledged, {n} is there");
        assert_eq!(number(&store, "b"), n, "round {round}: half a batch");
        let at = store.scan("at/").unwrap();
        assert_eq!(at, [(format!("at/{n}"), n.to_le_bytes().to_vec())]);
    }
}

#[test]
fn a_second_opener_is_told_who_stands_in_the_way() {
    let scratch = Scratch::new("locked");
    let first = Embedded::open(scratch.file()).unwrap();
    let error = Embedded::open(scratch.file()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "{}: another process has the store open; stop it (`softdpu stop`) or name another state directory",
            scratch.file().display()
        )
    );
    drop(first);
    Embedded::open(scratch.file()).unwrap();
}

#[test]
fn what_is_no_store_is_not_overwritten() {
    let scratch = Scratch::new("foreign");
    let text = "this is a letter\n".repeat(500);
    std::fs::write(scratch.file(), &text).unwrap();
    let error = Embedded::open(scratch.file()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(scratch.file()).unwrap(), text);
}

#[test]
fn a_missing_directory_is_named() {
    let scratch = Scratch::new("missing");
    let error = Embedded::open(scratch.0.join("no/state.redb")).unwrap_err();
    assert!(matches!(error, StoreError::NoDirectory { .. }), "{error}");
}

#[test]
fn a_forbidden_directory_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("forbidden");
    let dir = scratch.0.join("closed");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o500)).unwrap();
    if std::fs::write(dir.join("probe"), "").is_ok() {
        println!("skipped: this user may write everywhere");
        return;
    }
    let error = Embedded::open(dir.join("state.redb")).unwrap_err();
    assert!(matches!(error, StoreError::Permission { .. }), "{error}");
}

type Batch = Vec<(String, Option<Vec<u8>>)>;

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let change = ("[ab/]{0,3}", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..4)));
    proptest::collection::vec(proptest::collection::vec(change, 0..6), 0..6)
}

fn check(store: &mut impl Store, batches: &[Batch], prefix: &str) {
    let mut expected = BTreeMap::new();
    for batch in batches {
        let changes: Vec<Change<'_>> = batch.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        store.put_batch(&changes).unwrap();
        for (key, value) in batch.clone() {
            match value {
                Some(value) => expected.insert(key, value),
                None => expected.remove(&key),
            };
        }
    }
    for key in ["", "a", "ab", "a/", "b/a"] {
        assert_eq!(store.get(key).unwrap().as_ref(), expected.get(key), "{key:?}");
    }
    let wanted: Vec<_> = expected.into_iter().filter(|(k, _)| k.starts_with(prefix)).collect();
    assert_eq!(store.scan(prefix).unwrap(), wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_batches_read_back(batches in batches(), prefix in "[ab/]{0,2}") {
        check(&mut Memory::default(), &batches, &prefix);
        let scratch = Scratch::new("any");
        let _ = std::fs::remove_file(scratch.file());
        check(&mut Embedded::open(scratch.file()).unwrap(), &batches, &prefix);
    }
}
