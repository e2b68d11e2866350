//! What a device is built from. It cannot change while the device runs, so a configuration that says otherwise is not taken: it
//! would be in force by name only.

use crate::ask;
use crate::failure::{Failure, Result};
use contract::report::{Answer, PortReport, Query, Status};
use model::Config;
use std::path::Path;

/// Refuses a configuration whose device or ports are not those of the device that runs.
pub fn check(config: &Config, run_dir: &Path) -> Result {
    let (Answer::Status(status), Answer::Ports(ports)) =
        (ask::device(run_dir, &Query::Status)?, ask::device(run_dir, &Query::Ports)?)
    else {
        return Err(Failure::new(
            "the device answers something else than was asked: is it of another version?",
        ));
    };
    match difference(config, &status, &ports) {
        None => Ok(()),
        Some(what) => Err(Failure::new(format!(
            "{what}; this is fixed while the device runs: stop it and run it with this configuration"
        ))),
    }
}

/// The first difference in words.
fn difference(config: &Config, status: &Status, ports: &[PortReport]) -> Option<String> {
    let device = &config.desired.device;
    let workers = status.threads.iter().filter(|t| t.name.starts_with("worker-")).count();
    let settings = [
        ("profile", config.profile.name.clone(), status.profile.clone()),
        ("miss_policy", device.miss_policy.to_string(), status.miss_policy.clone()),
        ("reset_policy", device.reset_policy.to_string(), status.reset_policy.clone()),
        ("workers", device.workers.to_string(), workers.to_string()),
    ];
    for (name, wanted, actual) in settings {
        if wanted != actual {
            return Some(format!("the configuration says {name} = {wanted}, the device has {actual}"));
        }
    }
    for table in &status.tables {
        let wanted = config.profile.limit(&table.name).map(u64::from);
        if wanted != table.limit {
            let words =
                |limit: Option<u64>| limit.map_or("no limit".to_owned(), |l| format!("a limit of {l}"));
            return Some(format!(
                "profile {} gives table {} {}, the device has {}",
                config.profile.name,
                table.name,
                words(wanted),
                words(table.limit)
            ));
        }
    }
    let wanted = config
        .desired
        .ports
        .iter()
        .map(|p| format!("{} ({} on {}, MTU {})", p.name, p.kind, p.interface, p.mtu));
    let actual = ports.iter().map(|p| format!("{} ({} on {}, MTU {})", p.name, p.kind, p.interface, p.mtu));
    let (wanted, actual): (Vec<_>, Vec<_>) = (wanted.collect(), actual.collect());
    (wanted != actual).then(|| {
        format!("the configuration has the ports {}, the device {}", wanted.join(", "), actual.join(", "))
    })
}
