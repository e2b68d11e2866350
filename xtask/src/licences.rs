//! Licences of all dependencies, against the list in `deny.toml`.

use std::path::Path;
use std::process::Command;

/// Packages whose licence is not allowed, a line each.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let deny: toml::Table = text.parse().map_err(|e| format!("{}: {e}", path.display()))?;
    let allowed: Vec<&str> = deny
        .get("licenses")
        .and_then(|l| l.get("allow")?.as_array())
        .map(|list| list.iter().filter_map(toml::Value::as_str).collect())
        .ok_or_else(|| format!("{}: licenses.allow is missing", path.display()))?;

    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(program)
        .current_dir(root)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        let licence = package["license"].as_str().unwrap_or("");
        if !permits(licence, &allowed) {
            wrong.push(format!(
                "{name} {}: licence \"{licence}\" is not allowed by deny.toml",
                package["version"]
            ));
        }
    }
    Ok(wrong)
}

/// Whether an SPDX expression can be met by allowed licences alone. Older ones write `/` for `OR`.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len() && !words.is_empty()
}

fn any(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    if words.get(*at) == Some(&"(") {
        *at += 1;
        let met = any(words, at, allowed);
        *at += 1;
        return met;
    }
    let Some(name) = words.get(*at) else { return false };
    *at += 1;
    if words.get(*at) == Some(&"WITH") {
        let with = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return allowed.contains(&with.as_str()) || allowed.contains(name);
    }
    allowed.contains(name)
}

#[cfg(test)]
mod tests {
    use super::permits;

    #[test]
    fn expressions() {
        let allowed = ["MIT", "Apache-2.0", "BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"];
        for (expression, met) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND BSD-3-Clause", true),
            ("(MIT AND GPL-3.0) OR MPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR MPL-2.0", true),
            ("", false),
        ] {
            assert_eq!(permits(expression, &allowed), met, "{expression}");
        }
    }
}
