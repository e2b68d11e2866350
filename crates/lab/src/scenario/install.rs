//! Step 1: rules get into the device, are read back, and are proven by packets.

use super::Step;
use super::out::ms;
use super::world::World;
use crate::error::LabError;
use control::RuleState;
use std::time::Duration;

pub(super) const STEP: Step = Step {
    title: "rules are installed, read back, and proven",
    explanation: "The daemon starts with the laboratory's configuration. The controller turns it into rules and asks the device
        for each of their entries. A rule counts as confirmed only once it was read back from the device, and as
        proven only once a packet was judged by it there.",
    run,
};

/// A rule that denies, and one that allows.
const TO_PROVE: [(&str, &str); 2] = [("acl/blue-out/no-telnet", "deny"), ("acl/blue-in/services", "allow")];

/// How long the controller may take to read the device's counters.
const COUNTED: Duration = Duration::from_secs(3);

fn run(world: &mut World) -> Result<(), LabError> {
    let main = world.topology.device.clone();
    let install = world.start("the laboratory's configuration", &main)?;
    let rules = world.daemon()?.rules()?;
    let confirmed =
        rules.iter().filter(|r| matches!(r.state, RuleState::Confirmed | RuleState::Proven)).count();
    world.out.check(
        !rules.is_empty() && confirmed == rules.len(),
        "every rule is confirmed",
        format!("{} of {} rules read back from the device", rules.len(), rules.len()),
        format!("{confirmed} of {}", rules.len()),
        "rule list",
    );
    if let Some(rule) = rules.first() {
        let detail = world.daemon()?.rule(&rule.id)?;
        let begin = detail.history.first().map_or(0, |c| c.at.uptime_ns);
        let states: Vec<String> = detail
            .history
            .iter()
            .map(|c| format!("{} at {}", c.state.word(), ms(c.at.uptime_ns.saturating_sub(begin))))
            .collect();
        let words: Vec<&str> = detail.history.iter().map(|c| c.state.word()).take(4).collect();
        world.out.check(
            words == ["requested", "validated", "installed", "confirmed"],
            format!("the life of rule {}", rule.id),
            "requested, validated, installed, confirmed",
            states.join(", "),
            "rule show",
        );
    }
    world.out.note(format!(
        "install time: {} for {} rules, from the device's first answer to the last rule confirmed and every ENI armed",
        ms(install.as_nanos() as u64),
        rules.len()
    ));
    let mut proofs = Vec::new();
    for (id, action) in TO_PROVE {
        proofs.push((id, action, world.daemon()?.prove(id)?));
    }
    // The device's own counters, which the controller reads once a second.
    let mut found = Vec::new();
    world.wait(COUNTED, || {
        let rules = world.daemon()?.rules()?;
        let of = |id: &str| {
            rules.iter().find(|r| r.id == id).map_or(("absent", 0), |r| (r.state.word(), r.hits_device))
        };
        found = proofs.iter().map(|(id, ..)| of(id)).collect();
        Ok(found.iter().all(|(_, hits)| *hits > 0))
    })?;
    for ((id, action, proof), (state, hits)) in proofs.into_iter().zip(found) {
        world.out.check(
            proof.proven && state == "proven" && hits > 0,
            format!("the rule {id} ({action}) is proven"),
            "proven, by a probe that the device's own counter of the rule shows",
            format!("{state}, {} probe sent, {hits} counted; {}", proof.probes, proof.detail),
            "rule prove, rule list",
        );
    }
    Ok(())
}
