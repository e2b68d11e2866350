//! One case: a random policy on a random device, faults on the line, changes, resets and restarts, and packets all the time.

use super::{Question, Rig, Weather, states};
use crate::random::{Overlap, Random, Sent, change, desired, profile};
use crate::reference::What;
use contract::schema::PUNT;
use contract::{Command, EntryId, Reply, ResetScope, Target};
use control::RuleState;
use model::{Desired, MissPolicy, Offload, ResetPolicy};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

const MS: u64 = 1_000_000;
/// Packets of a case, at least.
const PACKETS: u64 = 120;
/// After so much time of a storm it calms down, so that the controller can come to an end.
const STORM: u64 = 400 * MS;
/// In calm weather the controller must come to an end within this time.
const SETTLE: u64 = 3_000 * MS;

/// What a case went through.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Packets sent.
    pub packets: u64,
    /// Packets that left.
    pub delivered: u64,
    /// Commands that the controller sent.
    pub commands: u64,
    /// Faults on the line.
    pub faults: u64,
    /// Changes of the policy that were confirmed.
    pub changed: u64,
    /// Changes that were refused, or overtaken by others.
    pub refused: u64,
    /// Rules that were in software at the end.
    pub software: u64,
    /// Rules that were confirmed at the end.
    pub confirmed: u64,
    /// How often all rule hits were compared.
    pub hits: u64,
    /// How much the rules overlap.
    pub overlap: Overlap,
}

impl Summary {
    /// Adds another case.
    pub fn add(&mut self, other: &Summary) {
        self.packets += other.packets;
        self.delivered += other.delivered;
        self.commands += other.commands;
        self.faults += other.faults;
        self.changed += other.changed;
        self.refused += other.refused;
        self.software += other.software;
        self.confirmed += other.confirmed;
        self.hits += other.hits;
        self.overlap += other.overlap;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { packets, delivered, commands, faults, changed, refused, .. } = self;
        let Summary { software, confirmed, hits, overlap, .. } = self;
        write!(
            f,
            "{packets} packets ({delivered} delivered), {commands} commands, {faults} faults; {changed} changes \
             confirmed, {refused} refused or overtaken; at the end {confirmed} rules \
             confirmed, {software} in software; {hits} times all rule hits compared; {overlap}"
        )
    }
}

/// A case that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// What happened before.
    pub log: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, what, log } = self;
        write!(f, "{log}seed {seed}: {what}\nrepeat: cargo xtask sim --seed {seed}")
    }
}

/// Runs the case of a seed; a panic in it is a failure too.
///
/// # Errors
/// What went wrong.
pub fn sound(seed: u64) -> Result<Summary, Failure> {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        let what = format!("panic: {}", text.unwrap_or_default());
        Err(Failure { seed, what, log: String::new() })
    })
}

/// Runs the case of a seed.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64) -> Result<Summary, Failure> {
    let mut random = Random::new(seed);
    let mut desired = desired(&mut random);
    desired.device.miss_policy = if random.chance(75) { MissPolicy::Fallback } else { MissPolicy::Drop };
    desired.device.reset_policy = if random.chance(60) { ResetPolicy::Host } else { ResetPolicy::Deny };
    let profile = profile(&mut random, &desired);
    let mut config = Rig::config(&desired, profile);
    config.seed = random.next_u64();
    let mut rig = Rig::new(random.next_u64(), config, &desired);
    let tables = format!("{:?}", rig.config.profile.tables);
    rig.note(|| format!("{} workers, {:?}, limits {tables}", desired.device.workers, desired.device));
    let overlap = Overlap::of(&desired);
    match course(&mut rig, &mut random, desired) {
        Ok(mut summary) => {
            summary.overlap = overlap;
            Ok(summary)
        }
        Err(what) => {
            let log = rig.log();
            // Frames may be under way in it, and their end would be a panic that hides this failure.
            std::mem::forget(rig);
            Err(Failure { seed, what, log })
        }
    }
}

fn course(rig: &mut Rig, random: &mut Random, first: Desired) -> Result<Summary, String> {
    let mut compared = 0;
    storm(rig, random);
    rig.apply(&first)?;
    settle_under_traffic(rig, random)?;
    compared += stable(rig, random, 30)?;
    let mut rounds = random.within(2..=4);
    while rounds > 0 || rig.packets < PACKETS || rig.line.faults == 0 {
        rounds = rounds.saturating_sub(1);
        storm(rig, random);
        let complete = std::mem::take(&mut rig.complete);
        match random.below(10) {
            0..=4 => {
                let desired = changed(rig, random, &first);
                rig.apply(&desired)?;
                if random.chance(20) {
                    rig.pass(random.below(20 * MS));
                    rig.restart_controller()?;
                } else if random.chance(25) {
                    rig.pass(random.below(8 * MS));
                    let desired = changed(rig, random, &first);
                    rig.apply(&desired)?;
                }
            }
            5 => {
                rig.note(|| "warm reset".into());
                rig.controller.reset(ResetScope::Warm);
            }
            6 | 7 => rig.reset_device(),
            8 => rig.restart_controller()?,
            _ => {
                calm(rig);
                rig.pass(2_500 * MS);
                rig.note(|| "time passes".into());
                // Every connection was judged again by then, at least where the device needed nobody's help for it.
                if complete && rig.controller.is_settled() {
                    rig.reference.judged_again();
                }
            }
        }
        settle_under_traffic(rig, random)?;
        compared += stable(rig, random, 25)?;
    }
    check_rules(rig)?;
    let rules = rig.controller.rules();
    let count = |states: &[RuleState]| rules.iter().filter(|r| states.contains(&r.state)).count() as u64;
    Ok(Summary {
        packets: rig.packets,
        delivered: rig.delivered,
        commands: rig.line.commands,
        faults: rig.line.faults,
        changed: rig.changes[0],
        refused: rig.changes[1],
        software: count(&[RuleState::Software]),
        confirmed: count(&[RuleState::Confirmed, RuleState::Proven]),
        hits: compared,
        overlap: Overlap::default(),
    })
}

fn storm(rig: &mut Rig, random: &mut Random) {
    let mut percent =
        |most: u64, chance: u64| if random.chance(chance) { random.within(1..=most) } else { 0 };
    rig.line.weather = Weather {
        refused: percent(20, 50),
        rejected: percent(2, 25),
        lost: percent(2, 25),
        unanswered: percent(2, 25),
        twice: percent(10, 40),
        late: percent(2, 25),
        full: percent(20, 30),
        delay: percent(3, 70) * MS + 50_000,
    };
}

fn calm(rig: &mut Rig) {
    rig.line.weather = Weather { delay: 50_000, ..Weather::default() };
}

/// A change of the newest policy; sometimes with a rule that must be in the device. The first one comes again where nothing is in force,
/// because it was refused.
fn changed(rig: &Rig, random: &mut Random, first: &Desired) -> Desired {
    let newest = rig.reference.policies().last().map(|p| p.desired());
    let mut desired = change(random, newest.filter(|d| !d.enis.is_empty()).unwrap_or(first));
    if random.chance(30) {
        let group = random.below(desired.acl_groups.len() as u64) as usize;
        let rules = &mut desired.acl_groups[group].rules;
        // The last ones are those that find no room.
        if let Some(rule) = rules.iter_mut().max_by_key(|r| r.priority) {
            rule.offload = Offload::HardwareOnly;
        }
    } else {
        let rules = desired.acl_groups.iter_mut().flat_map(|g| &mut g.rules);
        rules.for_each(|r| r.offload = Offload::Any);
    }
    desired
}

/// Packets while the controller is at work.
fn settle_under_traffic(rig: &mut Rig, random: &mut Random) -> Result<(), String> {
    let storm_ends = rig.stand.now + STORM;
    let mut left = 40;
    while rig.stand.now < storm_ends && left > 0 {
        if rig.pending.is_empty() && rig.controller.is_settled() {
            break;
        }
        // Some packets close together, some far apart.
        for _ in 0..random.below(*random.clone().pick(&[4, 40, 400])) {
            rig.step();
        }
        packets(rig, random)?;
        left -= 1;
    }
    calm(rig);
    rig.note(|| "calm".into());
    rig.settle(SETTLE)?;
    check_rules(rig)
}

/// Packets while nothing changes; then the hits of rules are exact.
fn stable(rig: &mut Rig, random: &mut Random, count: u64) -> Result<u64, String> {
    rig.pass(40 * MS);
    rig.settle(SETTLE)?;
    let before = hits(rig);
    rig.reference.hits.clear();
    rig.reference.exact = true;
    for _ in 0..count {
        packets(rig, random)?;
    }
    rig.pass(60 * MS);
    if !rig.reference.exact || !rig.controller.is_settled() {
        return Ok(0);
    }
    let after = hits(rig);
    let known = |name: &str| before.contains_key(name);
    for (rule, expected) in rig.reference.hits.iter().filter(|(name, _)| known(name)) {
        let got = after.get(rule).copied().unwrap_or(0) - before[rule];
        if got != *expected {
            return Err(format!("rule {rule} was hit by {expected} frames, and its counters say {got}"));
        }
    }
    for (rule, value) in &after {
        let counted = ["acl/", "route/", "mapping/"].iter().any(|p| rule.starts_with(p));
        if counted && !rig.reference.hits.contains_key(rule) && known(rule) && before[rule] != *value {
            return Err(format!("rule {rule} was hit by no frame, and its counters rose"));
        }
    }
    Ok(1)
}

fn hits(rig: &Rig) -> BTreeMap<String, u64> {
    rig.controller.rules().into_iter().map(|r| (r.id, r.hits_device + r.hits_host)).collect()
}

/// One packet, some together, or a neighbour's question.
fn packets(rig: &mut Rig, random: &mut Random) -> Result<(), String> {
    match random.below(20) {
        0 | 1 => {
            let desired = rig.reference.policies().last().map(|p| p.desired().clone()).unwrap_or_default();
            if desired.enis.is_empty() {
                return Ok(());
            }
            let question = Question::random(random, &desired);
            rig.ask(&question)
        }
        2..=4 => {
            let first = rig.traffic.next_packet();
            let mut burst = vec![first.clone()];
            for _ in 0..random.within(1..=5) {
                burst.extend(rig.traffic.again(&first));
            }
            rig.send(&burst)?;
            in_order(rig, &burst)
        }
        5..=7 => {
            let mut burst: Vec<Sent> = Vec::new();
            for _ in 0..random.within(2..=8) {
                let next = rig.traffic.next_packet();
                if burst.iter().all(|b| !meet(b, &next)) {
                    burst.push(next);
                }
            }
            rig.send(&burst)
        }
        8..=10 if rig.pending.is_empty() && rig.controller.is_settled() && rig.line.is_calm() => {
            let packet = rig.traffic.next_packet();
            rig.trace_and_send(packet)
        }
        _ => {
            let packet = rig.traffic.next_packet();
            rig.send(&[packet])
        }
    }
}

/// Whether two packets may have to do with one connection.
fn meet(a: &Sent, b: &Sent) -> bool {
    let (a, b) = (a.packet.tuple, b.packet.tuple);
    a == b || a == b.reversed()
}

/// Packets of one conversation left in the order in which they came.
fn in_order(rig: &Rig, burst: &[Sent]) -> Result<(), String> {
    if matches!(burst[0].packet.what, What::Error(_)) {
        return Ok(());
    }
    let order: Vec<usize> = rig.last_order.clone();
    if order.is_sorted() { Ok(()) } else { Err(format!("packets of one conversation left as {order:?}")) }
}

/// A rule that is confirmed is in the device, whole; all rules are in the host path.
fn check_rules(rig: &mut Rig) -> Result<(), String> {
    let rules = rig.controller.rules();
    let mut inside: BTreeMap<(Target, u32), u64> = BTreeMap::new();
    for target in [Target::Device, Target::Host] {
        let mut from = EntryId(0);
        loop {
            let answer = rig.command(Command::Dump { target, from, limit: 100 });
            let Ok(Reply::Entries { entries, next }) = answer else {
                return Err(format!("a dump was answered by {answer:?}"));
            };
            for dumped in entries.iter().filter(|d| d.entry.action.id != PUNT) {
                *inside.entry((target, dumped.entry.rule.rule)).or_default() += 1;
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    for rule in rules.iter().filter(|r| r.state != RuleState::Refused) {
        let wanted: u64 = rule.entries.split('/').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
        let found = |target| inside.get(&(target, rule.number)).copied().unwrap_or(0);
        let confirmed = matches!(rule.state, RuleState::Confirmed | RuleState::Proven);
        let (device, host) = (found(Target::Device), found(Target::Host));
        if host != wanted || (confirmed && device != wanted) {
            let states = states(&rules);
            let (id, state) = (&rule.id, rule.state);
            return Err(format!(
                "{id} is {state:?}: of {wanted} entries the device holds {device}, the host path {host}\n{states}"
            ));
        }
    }
    Ok(())
}
