//! Where `unsafe` may be: `packet`, `ports`, `tables` and the namespace file of `lab`, each block with `// SAFETY:` (clippy holds
//! the comment). Everywhere else the crate forbids it.

use std::path::{Path, PathBuf};

const MAY: &[&str] = &["packet", "ports", "tables"];
/// Its one file with `unsafe`.
const LAB: &str = "crates/lab/src/namespace.rs";

/// Everything that is against the rule, a line each.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for file in rust_files(&root.join("crates"))? {
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        let mut parts = name.split('/').skip(1);
        let (owner, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if MAY.contains(&owner) || name == LAB || rest == "tests" {
            continue;
        }
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let word = |w: &str| code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == w);
            if word("unsafe") {
                wrong.push(format!("{name}:{}: unsafe is not allowed here", number + 1));
            }
        }
        let is_root = name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs");
        if is_root && owner != "lab" && !text.contains("#![forbid(unsafe_code)]") {
            wrong.push(format!("{name}: #![forbid(unsafe_code)] is missing"));
        }
    }
    Ok(wrong)
}

/// All Rust files below a folder.
pub fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
