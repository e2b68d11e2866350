//! Step 5: more rules than the device holds. Every packet gets the verdict that the whole policy gives.

use super::Step;
use super::policy::{self, GROUP, matching};
use super::probes::{self, Fate, Probe};
use super::world::World;
use crate::error::LabError;
use contract::report::{Answer, Query};
use control::{RuleReport, RuleState};
use model::{AclAction, AclRule, MissPolicy, ResetPolicy};
use std::collections::BTreeMap;

pub(super) const STEP: Step = Step {
    title: "a tiny device: rules that do not fit, and the same verdicts",
    explanation: "The profile tiny has room for 12 ACL entries. First come 12 allows, which fill it; then 28 rules on top of them,
        most of them denies, which find no room. A device that went on with what it has would let packets through that
        the policy denies. So what a rule without room overrides must leave the device, or a punt entry must stand
        before it: the host path decides there. The same packets are sent through an unlimited device and the tiny one.",
    run,
};

/// A rule's verdict on a probe, from the plain scan.
fn allowed(rules: &[AclRule], probe: Probe) -> bool {
    matching(rules, probe).first().is_some_and(|r| r.action == AclAction::Allow)
}

fn run(world: &mut World) -> Result<(), LabError> {
    let rules: Vec<AclRule> = [policy::allows(), policy::on_top()].concat();
    let probes = policy::probes();

    let unlimited =
        load(world, "unlimited, miss policy fallback", "unlimited", MissPolicy::Fallback, ResetPolicy::Host)?;
    confirm_all(world, &unlimited);
    let wanted = probes::send(world, "blue-1", "blue-2", &probes)?;
    let right = probes.iter().filter(|p| wanted[p] == fate(allowed(&rules, **p))).count();
    world.out.check(
        right == probes.len(),
        "the unlimited device gives the policy's verdicts",
        format!("{} of {} packets as a plain scan of the rules says", probes.len(), probes.len()),
        format!("{right} of {}", probes.len()),
        "blue-2's receivers, echoes at blue-1",
    );

    let tiny = load(world, "tiny, miss policy fallback", "tiny", MissPolicy::Fallback, ResetPolicy::Host)?;
    states(world, &tiny)?;
    claims(world, &rules, &probes, &tiny);
    let before = world.daemon()?.status()?;
    let got = probes::send(world, "blue-1", "blue-2", &probes)?;
    let after = world.daemon()?.status()?;
    let differing: Vec<String> =
        probes.iter().filter(|p| got[p] != wanted[p]).map(|p| format!("{p:?}")).collect();
    let denied = probes.iter().filter(|p| !got[p].delivered).count();
    world.out.check(
        differing.is_empty(),
        "every packet gets the same verdict from the tiny device",
        format!("{} of {} the same, delivery and answer", probes.len(), probes.len()),
        if differing.is_empty() {
            let punted = after.punted - before.punted;
            format!(
                "{} the same, {denied} of them denied; {punted} frames went to the host path",
                probes.len()
            )
        } else {
            format!("{} differ: {}", differing.len(), differing.join(", "))
        },
        "blue-2's receivers, echoes at blue-1",
    );
    replies(world, &got)?;

    let dropping = load(world, "tiny, miss policy drop", "tiny", MissPolicy::Drop, ResetPolicy::Host)?;
    drop_misses(world, &rules, &probes, &dropping)
}

fn fate(allowed: bool) -> Fate {
    Fate { delivered: allowed, answered: allowed }
}

/// What the rules of a device were, before and after the second change.
pub(super) struct Loaded {
    /// States when only the allows were there.
    first: BTreeMap<String, RuleReport>,
    /// States when all are.
    all: BTreeMap<String, RuleReport>,
}

impl Loaded {
    fn is_in(reports: &BTreeMap<String, RuleReport>, rule: &AclRule) -> bool {
        let report = reports.get(&rule.id);
        report.is_some_and(|r| matches!(r.state, RuleState::Confirmed | RuleState::Proven))
    }

    /// It is in the device.
    pub(super) fn is_in_now(&self, rule: &AclRule) -> bool {
        Self::is_in(&self.all, rule)
    }

    /// It is not in the device for want of room: no entry of it.
    pub(super) fn did_not_fit(&self, rule: &AclRule) -> bool {
        self.all.get(&rule.id).is_some_and(|r| {
            let full = r.reason.as_deref().is_some_and(|reason| reason.starts_with("table_full"));
            r.state == RuleState::Software && full && r.entries.starts_with("0/")
        })
    }
}

/// Starts a device with the allows, then applies all rules.
pub(super) fn load(
    world: &mut World,
    label: &str,
    profile: &str,
    miss: MissPolicy,
    reset: ResetPolicy,
) -> Result<Loaded, LabError> {
    let base = world.topology.device.clone();
    let with = |rules: Vec<AclRule>| {
        let mut device = policy::device(&base, profile, rules)?;
        device.device.miss_policy = miss;
        device.device.reset_policy = reset;
        Ok::<_, LabError>(device)
    };
    world.start(label, &with(policy::allows())?)?;
    let first = reports(world)?;
    world.apply(&with([policy::allows(), policy::on_top()].concat())?)?;
    let all = reports(world)?;
    Ok(Loaded { first, all })
}

/// The generated rules, by their ids.
fn reports(world: &World) -> Result<BTreeMap<String, RuleReport>, LabError> {
    let start = format!("acl/{GROUP}/");
    let rules = world.daemon()?.rules()?;
    Ok(rules.into_iter().filter_map(|r| Some((r.id.strip_prefix(&start)?.to_string(), r))).collect())
}

fn confirm_all(world: &mut World, loaded: &Loaded) {
    let confirmed = loaded.all.values().filter(|r| r.state == RuleState::Confirmed).count();
    world.out.note(format!("unlimited: {confirmed} of {} rules confirmed in the device", loaded.all.len()));
}

/// The states of the rules in the tiny device, counted and by example.
fn states(world: &mut World, tiny: &Loaded) -> Result<(), LabError> {
    let fitted = tiny.first.values().filter(|r| r.state == RuleState::Confirmed).count();
    world.out.check(
        fitted == policy::allows().len(),
        "the 12 allows fit, and fill the table",
        "12 of 12 confirmed",
        format!("{fitted} of {} confirmed", tiny.first.len()),
        "rule list",
    );
    let mut counts: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut covered = Vec::new();
    for (id, rule) in &tiny.all {
        let reason = rule.reason.clone().unwrap_or_default();
        let code = reason.split('{').next().unwrap_or("").to_string();
        let key = if code.is_empty() {
            rule.state.word().into()
        } else {
            format!("{} ({code})", rule.state.word())
        };
        let example = format!("{}: {} {reason}", rule.id, rule.state.word());
        counts.entry(key).or_insert((0, example)).0 += 1;
        if rule.state == RuleState::Software {
            let detail = world.daemon()?.rule(&rule.id)?;
            let punts = detail.places.iter().filter(|p| p.place == "punt").count();
            covered.extend((punts > 0).then(|| id.clone()));
        }
    }
    for (state, (count, example)) in &counts {
        world.out.note(format!("{count:3} {state}, for example {}", example.trim_end()));
    }
    world.out.note(format!("{:3} of them covered by a punt entry: {}", covered.len(), covered.join(", ")));
    let full = tiny
        .all
        .values()
        .filter(|r| r.reason.as_deref().is_some_and(|x| x.starts_with("table_full")))
        .count();
    let blocked = tiny
        .all
        .values()
        .filter(|r| r.reason.as_deref().is_some_and(|x| x.starts_with("blocked_by")))
        .count();
    let stayed = policy::allows().iter().filter(|r| tiny.is_in_now(r)).count();
    let software = tiny.all.values().filter(|r| r.state == RuleState::Software).count();
    world.out.check(
        full > 0 && blocked > 0 && !covered.is_empty() && stayed > 0 && software == full + blocked,
        "rules beyond capacity are software, for a reason; earlier rules stay, or give way",
        "software (table_full) and software (blocked_by), punt entries, and allows that stay",
        format!(
            "{full} table_full, {blocked} blocked_by, {} punt entries, {stayed} of 12 allows stay",
            covered.len()
        ),
        "rule list, rule show",
    );
    Ok(())
}

/// That the packets put the promise to the test, from the rules and their states.
fn claims(world: &mut World, rules: &[AclRule], probes: &[Probe], tiny: &Loaded) {
    let contested = probes.iter().filter(|p| {
        let found = matching(rules, **p);
        found.iter().any(|r| r.action != found[0].action)
    });
    let contested = contested.count();
    world.out.check(
        contested * 2 >= probes.len() && probes.len() >= 40,
        "the packets are contested",
        "at least half match rules with different answers",
        format!("{contested} of {}", probes.len()),
        "the rules",
    );
    let (mut denied, mut unfit, mut above, mut inside) = (0, 0, 0, 0);
    for probe in probes.iter().filter(|p| !allowed(rules, **p)) {
        let found = matching(rules, *probe);
        let Some((decides, below)) = found.split_first() else { continue };
        let mut allows = below.iter().filter(|r| r.action == AclAction::Allow);
        denied += 1;
        unfit += usize::from(tiny.did_not_fit(decides));
        above += usize::from(allows.clone().any(|r| Loaded::is_in(&tiny.first, r)));
        inside += usize::from(allows.any(|r| tiny.is_in_now(r)));
    }
    world.out.check(
        denied > 0 && unfit == denied && above == denied && inside * 2 >= denied,
        "the denied ones are denied by a rule that did not fit, above an allow that did",
        format!("{denied} of {denied}"),
        format!(
            "{unfit} by a rule that did not fit, {above} above an allow that did: in {inside} cases it is in the device still, \
             behind a punt entry, in {} it gave way (blocked_by)",
            above - inside.min(above)
        ),
        "the rules, rule list",
    );
}

/// Answers of connections that the host path owns came back.
fn replies(world: &mut World, got: &BTreeMap<Probe, Fate>) -> Result<(), LabError> {
    let Answer::Flows(flows) = world.daemon()?.device(&Query::Flows { limit: 10_000 })? else {
        return Err(LabError::Daemon {
            what: "was asked for flows".into(),
            cause: "it answered something else".into(),
        });
    };
    let mut answered = 0;
    for flow in flows.iter().filter(|f| f.tier == "host" && f.port == "blue-1") {
        let probe = match flow.protocol.as_str() {
            "udp" => Probe::Udp(flow.dst_port),
            "tcp" => Probe::Tcp(flow.dst_port),
            _ => Probe::Ping,
        };
        answered += usize::from(got.get(&probe).is_some_and(|f| f.answered));
    }
    world.out.check(
        answered >= 5,
        "replies of connections that the host path owns are among them",
        "at least 5 connections of the host path with an answer",
        format!(
            "{answered} of {} host path connections were answered",
            flows.iter().filter(|f| f.tier == "host").count()
        ),
        "flow list, echoes at blue-1",
    );
    Ok(())
}

/// With the miss policy `drop`, what needs the host path is dropped, under that name.
fn drop_misses(
    world: &mut World,
    rules: &[AclRule],
    probes: &[Probe],
    loaded: &Loaded,
) -> Result<(), LabError> {
    // The device decides a packet if a rule in it matches, and no rule that is not in it comes before.
    let decides = |p: &Probe| matching(rules, *p).first().is_some_and(|r| loaded.is_in_now(r));
    let needing = probes.iter().filter(|p| !decides(p)).count() as u64;
    let before = world.drops()?.of("miss_policy_drop");
    let got = probes::send(world, "blue-1", "blue-2", probes)?;
    let dropped = world.drops()?.of("miss_policy_drop") - before;
    let delivered = probes.iter().filter(|p| got[p].delivered);
    let wrong = delivered.clone().filter(|p| !allowed(rules, **p)).count();
    let served = probes.iter().filter(|p| decides(p)).all(|p| got[p] == fate(allowed(rules, *p)));
    world.out.check(
        dropped == needing
            && wrong == 0
            && served
            && delivered.clone().count() as u64 + dropped == probes.len() as u64,
        "miss policy drop: packets that need the host path drop under their own name",
        format!(
            "{needing} packets dropped as miss_policy_drop, the other {} served by the device",
            probes.len() as u64 - needing
        ),
        format!(
            "miss_policy_drop +{dropped}, {} delivered, {wrong} of them denied by the policy",
            delivered.count()
        ),
        "drops, blue-2's receivers",
    );
    Ok(())
}
