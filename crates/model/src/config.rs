//! Reading a whole configuration: desired state, the profile that it names, and warnings.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::{ConfigError, ConfigErrorKind, ConfigWarning, Fault, nearest};
use crate::report::{Lines, Report};
use crate::{Desired, Profile, check, decode, tree};

/// The largest file that is read, in bytes: what names `/dev/zero` must end.
const LARGEST_FILE: u64 = 256 << 20;

/// A configuration without errors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// What it states.
    pub desired: Desired,
    /// The profile that `device.profile` names.
    pub profile: Profile,
    /// What is allowed and seldom meant, in the order of the file.
    pub warnings: Vec<ConfigWarning>,
}

impl Config {
    /// Reads TOML, or JSON when the text starts with a brace; `file` names it in errors. Reads nothing else: a profile that is a file
    /// needs [`load`](Config::load).
    ///
    /// # Errors
    /// All errors of the text, in its order. When it is no TOML or JSON at all, only why.
    pub fn parse(text: &str, file: &str) -> Result<Config, Vec<ConfigError>> {
        Config::parse_with(text, file, |profile| {
            Err(format!("profile {profile:?} is a file, and this configuration is not read from a file"))
        })
    }

    /// Reads a file, and the profile file that it may name, relative to it.
    ///
    /// # Errors
    /// All errors of both files; `Unreadable` when one cannot be read.
    pub fn load(path: &Path) -> Result<Config, Vec<ConfigError>> {
        Config::parse_at(&read(path, &path.display().to_string())?, path)
    }

    /// Reads the text that was in a file, and the profile file that it may name, relative to that file's path.
    ///
    /// # Errors
    /// All errors of both.
    pub fn parse_at(text: &str, path: &Path) -> Result<Config, Vec<ConfigError>> {
        let file = path.display().to_string();
        Config::parse_with(text, &file, |profile| {
            let path = path.parent().unwrap_or(Path::new("")).join(profile);
            let file = path.display().to_string();
            Ok(read(&path, &file).and_then(|text| Profile::parse(&text, &file)))
        })
    }

    /// `read_profile` gives the profile of a path, or why there can be none.
    fn parse_with(
        text: &str,
        file: &str,
        read_profile: impl FnOnce(&str) -> Result<Result<Profile, Vec<ConfigError>>, String>,
    ) -> Result<Config, Vec<ConfigError>> {
        let mut report = Report::new(file, text);
        let (desired, profile) = match tree::parse(text) {
            Ok(root) => {
                let desired = decode::desired(&mut report, &root);
                let profile = profile(&mut report, &root, &desired.device.profile, read_profile);
                check::check(&mut report, &root, &desired);
                (desired, profile)
            }
            Err(errors) => {
                report.syntax(errors);
                Default::default()
            }
        };
        report.finish().map(|warnings| Config { desired, profile, warnings })
    }
}

fn profile(
    report: &mut Report,
    root: &tree::Node,
    name: &str,
    read_profile: impl FnOnce(&str) -> Result<Result<Profile, Vec<ConfigError>>, String>,
) -> Profile {
    if let Some(profile) = Profile::built_in(name) {
        return profile;
    }
    let names = Profile::BUILT_IN.map(|(name, _)| name);
    let fault = if name.contains('/') || name.ends_with(".toml") {
        match read_profile(name) {
            Ok(Ok(profile)) => return profile,
            Ok(Err(errors)) => {
                report.extend(errors);
                return Profile::default();
            }
            Err(why) => Fault::new(ConfigErrorKind::UnknownReference, why),
        }
    } else {
        Fault::new(ConfigErrorKind::UnknownReference, format!("unknown profile {name:?}"))
            .nearest(nearest(name, names))
    };
    let expected =
        format!("{} or the path of a profile file (with a / or ending in .toml)", names.join(", "));
    let path = "device.profile";
    report.error(root.locate(path), path.into(), fault.expected(expected));
    Profile::default()
}

fn read(path: &Path, file: &str) -> Result<String, Vec<ConfigError>> {
    let error = |line, column, what| {
        vec![ConfigError {
            kind: ConfigErrorKind::Unreadable,
            file: file.to_string(),
            line,
            column,
            path: String::new(),
            what,
            expected: None,
            nearest: None,
        }]
    };
    let bytes = bytes(path).map_err(|e| error(0, 0, format!("cannot read the file: {e}")))?;
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&e.as_bytes()[..valid]);
        let span = Lines::new(&text).span(valid);
        error(span.line, span.column, "not UTF-8 text".into())
    })
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other("larger than 256 MiB"));
    }
    Ok(bytes)
}
