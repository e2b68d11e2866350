//! What a laboratory is made of: `lab.toml`, with hosts, the ports that they hang on, and the device's configuration.

use crate::error::LabError;
use crate::lab::check_name;
use model::{Config, Desired, IpPrefix};
use serde::Deserialize;
use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A laboratory as its directory describes it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Its name; one laboratory per name and user.
    pub name: String,
    /// The scenario that is run in it.
    pub scenario: Scenario,
    /// The device's configuration file.
    pub device_file: PathBuf,
    /// What that file says.
    pub device: Desired,
    /// The hosts, in the order of the file.
    pub hosts: Vec<HostPlan>,
}

/// The scenarios that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Two tenants on one device, eight steps.
    TwoTenants,
}

/// A host to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// Its name.
    pub name: String,
    /// The port of the device that it hangs on.
    pub port: String,
    /// Its interface's name: that of the port.
    pub interface: String,
    /// Its interface's MAC address: that of the ENI behind the port.
    pub mac: [u8; 6],
    /// MTU in bytes of IP, the port's.
    pub mtu: u32,
    /// Addresses, each with the length of its network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The next hop for everything else, if there is one.
    pub gateways: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Spanned<u32>,
    name: Spanned<String>,
    scenario: Scenario,
    device: Spanned<String>,
    #[serde(rename = "host")]
    hosts: Vec<HostEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: Spanned<String>,
    port: Spanned<String>,
    addresses: Vec<Spanned<String>>,
    #[serde(default)]
    gateways: Vec<IpAddr>,
}

/// A text and its name, for errors with their place.
struct Source<'a> {
    file: String,
    text: &'a str,
}

impl Source<'_> {
    /// `file:line:column: what`, the column in characters from 1.
    fn error(&self, at: Range<usize>, what: impl std::fmt::Display) -> LabError {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        LabError::Topology(format!("{}:{line}:{column}: {what}", self.file))
    }
}

impl Topology {
    /// Reads `lab.toml` of a directory and the device's configuration that it names.
    ///
    /// # Errors
    /// [`LabError::Topology`], each error with file, line and column.
    pub fn load(directory: &Path) -> Result<Topology, LabError> {
        let path = directory.join("lab.toml");
        let text = fs::read_to_string(&path).map_err(|e| {
            LabError::Topology(format!(
                "{}: {e}; expected a laboratory's directory, such as examples/two-tenants",
                path.display()
            ))
        })?;
        Self::parse(&text, &path)
    }

    fn parse(text: &str, path: &Path) -> Result<Topology, LabError> {
        let source = Source { file: path.display().to_string(), text };
        let file: File = toml::from_str(text).map_err(|e| {
            let message = e.message().trim().replace('\n', ", ");
            source.error(e.span().unwrap_or(0..0), with_nearest(&message))
        })?;
        if *file.schema.get_ref() != 1 {
            return Err(
                source.error(file.schema.span(), format!("schema is {}; expected 1", file.schema.get_ref()))
            );
        }
        check_name(file.name.get_ref()).map_err(|e| source.error(file.name.span(), e))?;
        let device_file = path.parent().unwrap_or(Path::new("")).join(file.device.get_ref());
        let config = Config::load(&device_file).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            LabError::Topology(lines.join("\n"))
        })?;
        let mut hosts: Vec<HostPlan> = Vec::new();
        for entry in &file.hosts {
            let (name, port) = (entry.name.get_ref(), entry.port.get_ref());
            if hosts.iter().any(|h| h.name == *name) {
                return Err(source.error(entry.name.span(), format!("host {name:?} is there already")));
            }
            if let Some(other) = hosts.iter().find(|h| h.port == *port) {
                let what = format!("port {port:?} is taken by host {:?}", other.name);
                return Err(source.error(entry.port.span(), what));
            }
            hosts.push(host(&source, entry, &config.desired)?);
        }
        if let Some(port) = config.desired.ports.iter().find(|p| !hosts.iter().any(|h| h.port == p.name)) {
            let what = format!("port {:?} of {} has no host", port.name, device_file.display());
            return Err(source.error(file.device.span(), what));
        }
        Ok(Topology {
            name: file.name.into_inner(),
            scenario: file.scenario,
            device_file,
            device: config.desired,
            hosts,
        })
    }
}

fn host(source: &Source<'_>, entry: &HostEntry, device: &Desired) -> Result<HostPlan, LabError> {
    check_name(entry.name.get_ref()).map_err(|e| source.error(entry.name.span(), e))?;
    if entry.name.get_ref() == crate::lab::DPU {
        return Err(source.error(entry.name.span(), "this name is the device's own host"));
    }
    let name = entry.port.get_ref();
    let port = device.port(name).ok_or_else(|| {
        let names: Vec<&str> = device.ports.iter().map(|p| p.name.as_str()).collect();
        let hint = hint(name, names.iter().copied());
        let what = format!("the device has no port {name:?}; expected one of {}{hint}", names.join(", "));
        source.error(entry.port.span(), what)
    })?;
    let eni = device.enis.iter().find(|e| e.port == *name).ok_or_else(|| {
        source.error(entry.port.span(), format!("no ENI of the device is on port {name:?}"))
    })?;
    let mut addresses = Vec::new();
    for text in &entry.addresses {
        let parsed = address(text.get_ref());
        addresses.push(parsed.ok_or_else(|| {
            let what = format!(
                "{:?} is no address with a prefix length; expected one like \"10.0.0.1/24\"",
                text.get_ref()
            );
            source.error(text.span(), what)
        })?);
        let (address, _) = addresses[addresses.len() - 1];
        if eni.anti_spoof && !eni.addresses.iter().any(|p| covers(*p, address)) {
            let what =
                format!("{address} is not an address of ENI {:?}, whose packets are checked", eni.name);
            return Err(source.error(text.span(), what));
        }
    }
    Ok(HostPlan {
        name: entry.name.get_ref().clone(),
        port: name.clone(),
        interface: port.interface.clone(),
        mac: eni.mac_address.0,
        mtu: port.mtu,
        addresses,
        gateways: entry.gateways.clone(),
    })
}

fn address(text: &str) -> Option<(IpAddr, u8)> {
    let (address, len) = text.split_once('/')?;
    let (address, len) = (address.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (1..=most).contains(&len).then_some((address, len))
}

fn covers(prefix: IpPrefix, address: IpAddr) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len())).unwrap_or(0);
    prefix.addr().is_ipv4() == address.is_ipv4() && (bits(prefix.addr()) ^ bits(address)) & mask == 0
}

/// Adds the nearest word to an error that names an unknown one and those that are known, all in backquotes.
fn with_nearest(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    match words.next().filter(|_| message.starts_with("unknown")) {
        Some(unknown) => format!("{message}{}", hint(unknown, words)),
        None => message.to_string(),
    }
}

/// The word that was meant, perhaps.
fn hint<'a>(unknown: &str, words: impl Iterator<Item = &'a str>) -> String {
    let nearest = words.map(|w| (strsim::osa_distance(w, unknown), w)).min();
    match nearest.filter(|(distance, word)| *distance <= word.len().max(unknown.len()).div_ceil(3)) {
        Some((_, word)) => format!("; did you mean `{word}`?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants")
    }

    #[test]
    fn the_example_reads() {
        let lab = Topology::load(&example()).expect("reads");
        assert_eq!(lab.hosts.len(), 4);
        let first = &lab.hosts[0];
        assert_eq!((first.name.as_str(), first.mac, first.mtu), ("blue-1", [2, 0, 0, 0x0b, 0, 1], 1500));
        assert_eq!(first.addresses[0], (IpAddr::from([10, 0, 0, 1]), 24));
    }

    #[test]
    fn errors_say_where_and_what() {
        let text = fs::read_to_string(example().join("lab.toml")).expect("the example");
        for (from, to, place, what) in [
            ("port = \"blue-1\"", "prot = \"blue-1\"", "9:1", "did you mean `port`?"),
            ("schema = 1", "schema = 2", "2:10", "expected 1"),
            ("port = \"red-2\"", "port = \"red-7\"", "25:8", "did you mean `red-1`?"),
            ("port = \"red-2\"", "port = \"red-7\"", "25:8", "no port \"red-7\""),
            ("port = \"red-2\"", "port = \"red-1\"", "25:8", "taken by host \"red-1\""),
            ("name = \"red-2\"", "name = \"red-1\"", "24:8", "there already"),
            ("\"10.0.0.3/24\"", "\"10.0.0.3\"", "26:14", "like \"10.0.0.1/24\""),
            ("\"10.0.0.3/24\"", "\"10.0.0.4/24\"", "26:14", "not an address of ENI \"red-2\""),
            (
                "scenario = \"two-tenants\"",
                "scenario = \"two-tenant\"",
                "4:12",
                "did you mean `two-tenants`?",
            ),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let error = Topology::parse(&changed, &example().join("lab.toml")).expect_err(to).to_string();
            let start = format!("{}:{place}: ", example().join("lab.toml").display());
            assert!(error.starts_with(&start) && error.contains(what), "{to}: {error}");
        }
    }
}
