//! The rules between crates (ARCHITECTURE.md): who may depend on whom.

use std::collections::BTreeMap;
use std::path::Path;

/// Crates of ours that each may depend on, directly, outside of its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("packet", &["wire"]),
    ("ports", &["packet", "wire"]),
    ("tables", &[]),
    ("pipeline", &["wire", "packet", "tables"]),
    ("functions", &["wire", "packet", "tables", "pipeline"]),
    ("contract", &[]),
    ("model", &[]),
    ("device", &["wire", "packet", "ports", "tables", "pipeline", "functions", "contract", "model"]),
    ("store", &[]),
    ("control", &["contract", "model", "store"]),
    ("lab", &["wire", "contract", "model", "control"]),
];

/// Crates that see all others: the composition root, and what only tests depend on.
const UNBOUND: &[&str] = &["softdpu", "testkit"];

/// What no data crate may depend on, be it ever so useful.
const NOT_IN_DATA: &[&str] = &["tokio", "hyper", "axum", "tonic", "redb", "etcd-client"];
const DATA: &[&str] = &["wire", "packet", "ports", "tables", "pipeline", "functions", "device"];

/// Everything that is against the rules, a line each.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for (name, manifest) in manifests(root)? {
        let Some(allowed) = ALLOWED.iter().find(|(n, _)| *n == name).map(|(_, allowed)| *allowed) else {
            if !UNBOUND.contains(&name.as_str()) {
                wrong.push(format!("crates/{name}: there is no rule for it in xtask/src/check_deps.rs"));
            }
            continue;
        };
        let ours = |dep: &str| ALLOWED.iter().any(|(n, _)| *n == dep) || UNBOUND.contains(&dep);
        for dep in dependencies(&manifest, "dependencies") {
            if ours(&dep) && !allowed.contains(&dep.as_str()) {
                wrong
                    .push(format!("crates/{name} depends on {dep}, and may only on: {}", allowed.join(", ")));
            }
            if DATA.contains(&name.as_str()) && NOT_IN_DATA.contains(&dep.as_str()) {
                wrong.push(format!("crates/{name} depends on {dep}: a data crate knows nothing of it"));
            }
        }
        if dependencies(&manifest, "dev-dependencies").iter().any(|dep| dep == "softdpu") {
            wrong.push(format!("crates/{name}: nothing depends on the binary"));
        }
    }
    wrong.extend(folders_of_functions(root)?);
    Ok(wrong)
}

/// The manifests of `crates/*`, by folder.
fn manifests(root: &Path) -> Result<BTreeMap<String, toml::Table>, String> {
    let crates = root.join("crates");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&crates).map_err(|e| format!("{}: {e}", crates.display()))? {
        let entry = entry.map_err(|e| e.to_string())?;
        let path = entry.path().join("Cargo.toml");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let manifest = text.parse().map_err(|e| format!("{}: {e}", path.display()))?;
        found.insert(entry.file_name().to_string_lossy().into_owned(), manifest);
    }
    Ok(found)
}

fn dependencies(manifest: &toml::Table, section: &str) -> Vec<String> {
    let table = manifest.get(section).and_then(toml::Value::as_table);
    table.map(|t| t.keys().cloned().collect()).unwrap_or_default()
}

/// No function uses another: no `crate::other` in a folder of `functions`.
fn folders_of_functions(root: &Path) -> Result<Vec<String>, String> {
    let src = root.join("crates/functions/src");
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(&src).map_err(|e| format!("{}: {e}", src.display()))? {
        let entry = entry.map_err(|e| e.to_string())?;
        if entry.path().is_dir() {
            folders.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let mut wrong = Vec::new();
    for folder in &folders {
        for file in crate::unsafe_code::rust_files(&src.join(folder))? {
            let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            for other in folders.iter().filter(|other| *other != folder) {
                if text.contains(&format!("crate::{other}::")) {
                    wrong
                        .push(format!("{}: the function {folder} uses the function {other}", file.display()));
                }
            }
        }
    }
    Ok(wrong)
}
