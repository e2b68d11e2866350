//! The Rig: a whole device with its controller under one seed.
//!
//! Workers, host path, command queue, the line and the controller run in an order of chance on a virtual clock. Every packet's fate
//! is held against the [`Reference`]: the full policy alone. While a change is under way it may be the old policy's or the new one's
//! answer, never a mixture; when the controller says `confirmed`, the new one's only. At rest the law must hold.

mod case;
mod line;
mod stand;

pub use case::{Failure, Summary, run, sound};
pub use line::{End, Line, Weather};
pub use stand::{Left, Stand, drops, punts, words};

use crate::random::{Random, Sent, Traffic};
use crate::reference::{Exit, Neighbor, Outcome, Policy, Reference};
use contract::report::TraceOutcome;
use contract::{Command, CommandId, Device};
use control::{Controller, Options, RuleState, Submission, Verdict};
use device::{Config, PortDescription};
use model::{Desired, MissPolicy, ResetPolicy};
use packet::{ConsumeReason, DropReason};

use std::collections::VecDeque;
use store::Memory;

/// What is remembered of a case's course, lines.
const LOG: usize = 60;

/// How the controller is set up: as usual, a thousand times faster.
fn options() -> Options {
    Options {
        timeout: 20_000_000,
        watch: 10_000_000,
        audit: 70_000_000,
        backoff: 1_000_000,
        backoff_max: 20_000_000,
        settle_poll: 200_000,
        attempts: 8,
    }
}

/// A device, its controller, and what the reference says of them.
pub struct Rig {
    /// The device.
    pub stand: Stand,
    /// The line between.
    pub line: Line,
    /// The controller.
    pub controller: Controller<Memory>,
    /// What should be.
    pub reference: Reference,
    /// Where packets come from.
    pub traffic: Traffic,
    /// How the device was built.
    pub config: Config,
    /// All chance that is not the line's or the traffic's.
    pub random: Random,
    /// The changes under way: revisions, in the order of the reference's policies behind the first.
    pub pending: Vec<u64>,
    /// Changes that were confirmed, and that were not.
    pub changes: [u64; 2],
    /// Packets sent.
    pub packets: u64,
    /// Packets that left.
    pub delivered: u64,
    /// The numbers of the packets sent last, in the order in which they left.
    pub last_order: Vec<usize>,
    /// The port by which the last packet left.
    last_port: String,
    /// Whether the device holds the whole policy and nothing changes: then it decides everything.
    pub complete: bool,
    /// Whether packets are under way: what ends meanwhile may yet explain what becomes of them.
    watching: bool,
    /// Whether something happened to the device that the controller may not know of yet.
    unaware: bool,
    store: Memory,
    ports: Vec<String>,
    log: VecDeque<String>,
}

impl Rig {
    /// A Rig with a device of this configuration, whose ports are those of the desired state; nothing is applied yet.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(seed: u64, config: Config, desired: &Desired) -> Rig {
        let mut random = Random::new(seed);
        let stand = Stand::new(config.clone());
        let store = Memory::default();
        let controller =
            Controller::open(store.clone(), options(), stand.now, 0).expect("an empty store opens");
        let ports = desired.ports.iter().map(|p| p.name.clone()).collect();
        Rig {
            line: Line::new(random.fork()),
            reference: Reference::new(Policy::default()),
            traffic: Traffic::new(random.fork(), desired),
            stand,
            controller,
            config,
            random,
            pending: Vec::new(),
            changes: [0; 2],
            packets: 0,
            delivered: 0,
            last_order: Vec::new(),
            last_port: String::new(),
            complete: false,
            watching: false,
            unaware: false,
            store,
            ports,
            log: VecDeque::new(),
        }
    }

    /// The configuration of a device with these ports.
    pub fn config(desired: &Desired, profile: model::Profile) -> Config {
        let describe = |p: &model::Port| PortDescription {
            name: p.name.clone(),
            kind: p.kind.word().into(),
            interface: p.interface.clone(),
            mtu: p.mtu,
        };
        let mut config = Config::new(profile, desired.ports.iter().map(describe).collect());
        config.workers = usize::from(desired.device.workers);
        config.miss_policy = desired.device.miss_policy;
        config.reset_policy = desired.device.reset_policy;
        (config.small_buffers, config.large_buffers) = (256, 16);
        config.ring = 256;
        config
    }

    /// Adds a line to the log.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        let at = (self.stand.now - 1_000_000_000) / 1000;
        self.log.push_back(format!("{at:>9} us  {}", line()));
    }

    /// The last lines of the log.
    pub fn log(&self) -> String {
        self.log.iter().map(|l| format!("{l}\n")).collect()
    }

    /// The index of a port.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn port(&self, name: &str) -> usize {
        self.ports.iter().position(|p| p == name).expect("a port of the device")
    }

    /// Asks for a policy.
    ///
    /// # Errors
    /// If the controller does not take it.
    pub fn apply(&mut self, desired: &Desired) -> Result<(), String> {
        let submission = Submission { desired: desired.clone(), text: String::new(), author: "rig".into() };
        let revision =
            self.controller.apply(submission, self.stand.now).map_err(|e| format!("apply: {e}"))?;
        self.note(|| format!("apply revision {revision}"));
        self.pending.push(revision);
        self.reference.change(Policy::new(desired));
        self.traffic.policy(desired);
        Ok(())
    }

    /// The controller dies, and another one starts on what the first one kept.
    ///
    /// # Errors
    /// If the store can't be read.
    pub fn restart_controller(&mut self) -> Result<(), String> {
        self.note(|| "the controller dies and starts again".into());
        self.line.cut();
        self.controller = Controller::open(self.store.clone(), options(), self.stand.now, 0)
            .map_err(|e| format!("restart: {e}"))?;
        Ok(())
    }

    /// The device is reset, and nobody asked its controller.
    pub fn reset_device(&mut self) {
        self.note(|| "the device is reset by someone else".into());
        self.unaware = true;
        self.command(Command::Reset(contract::ResetScope::Warm)).ok();
    }

    /// Carries out a command beside the line.
    ///
    /// # Panics
    /// If the device does not answer.
    pub fn command(&mut self, command: Command) -> contract::Outcome {
        let id = loop {
            match self.stand.device.submit(command.clone()) {
                Ok(id) => break id,
                Err(_) => self.stand.device.poll(self.stand.now),
            }
        };
        for _ in 0..10_000 {
            self.stand.now += 1000;
            self.stand.device.poll(self.stand.now);
            (0..self.stand.threads()).for_each(|n| {
                self.stand.step(n);
            });
            self.line.run(&mut self.stand.device, self.stand.now);
            if let Some(at) = self.line.own.iter().position(|c| c.id == id) {
                return self.line.own.swap_remove(at).outcome;
            }
            self.line.own.retain(|c| c.id != CommandId(0));
        }
        panic!("the device does not answer");
    }

    /// One step of someone; time goes on. Whether a thread that handles packets had anything to do.
    pub fn step(&mut self) -> bool {
        let stand = &mut self.stand;
        stand.now += 1 + self.random.below(30_000);
        let threads = stand.threads() as u64;
        match self.random.below(threads + 2) {
            n if n < threads => return stand.step(n as usize),
            n if n == threads => stand.device.poll(stand.now),
            _ => {
                self.line.run(&mut stand.device, stand.now);
                let mut end = End { line: &mut self.line, device: &mut stand.device };
                // A device that is there is never gone.
                let _ = self.controller.poll(&mut end, stand.now);
            }
        }
        self.progress();
        false
    }

    /// Takes note of how the changes under way ended.
    fn progress(&mut self) {
        if self.watching {
            return;
        }
        let mut n = 0;
        while let Some(&revision) = self.pending.get(n) {
            let verdict = self.controller.verdict(revision).cloned();
            match verdict {
                Some(Verdict::Confirmed) => {
                    self.note(|| format!("revision {revision} is confirmed"));
                    self.pending.drain(..=n);
                    self.changes[0] += 1;
                    self.reference.in_force(n + 1);
                    n = 0;
                }
                // A controller that started again remembers what is in force and what is to be, and no other ends.
                None if self.controller.is_settled() => {
                    self.note(|| format!("revision {revision} is not remembered"));
                    self.withdraw(n);
                }
                Some(Verdict::Superseded) => {
                    self.note(|| format!("revision {revision} is superseded"));
                    self.withdraw(n);
                }
                // Nothing of it stays; but that is so only once the controller has repaired what a lost answer may have left.
                Some(Verdict::Refused { rule, reason }) if self.controller.is_settled() => {
                    self.note(|| format!("revision {revision} is refused: {rule}: {reason}"));
                    self.withdraw(n);
                }
                _ => n += 1,
            }
        }
    }

    fn withdraw(&mut self, n: usize) {
        self.changes[1] += 1;
        self.pending.remove(n);
        self.reference.withdrawn(n + 1);
        let latest = self.reference.policies().last().map(|p| p.desired().clone());
        if let Some(desired) = latest.filter(|d| !d.enis.is_empty()) {
            self.traffic.policy(&desired);
        }
    }

    /// Steps for that long.
    pub fn pass(&mut self, time: u64) {
        let end = self.stand.now + time;
        while self.stand.now < end {
            self.step();
        }
    }

    /// Steps until the controller has done all it was asked for, and all that it must notice by itself.
    ///
    /// # Errors
    /// If it is not done within this time.
    pub fn settle(&mut self, within: u64) -> Result<(), String> {
        self.pass(3 * options().watch);
        let end = self.stand.now + within;
        while !self.pending.is_empty() || !self.controller.is_settled() {
            if self.stand.now > end {
                let status = self.controller.status();
                let rules = self.controller.rules();
                return Err(format!("the controller does not settle: {status:?}\n{}", states(&rules)));
            }
            self.step();
        }
        self.unaware = false;
        let profile = &self.config.profile;
        let whole = |r: &control::RuleReport| matches!(r.state, RuleState::Confirmed | RuleState::Proven);
        self.complete = profile.limit("flow").is_none()
            && profile.insert_rate == 0
            && self.controller.rules().iter().all(whole);
        Ok(())
    }

    /// Sends a packet after the device was asked what would become of it: both must agree.
    ///
    /// # Errors
    /// As [`Rig::send`], and where they do not agree.
    pub fn trace_and_send(&mut self, sent: Sent) -> Result<(), String> {
        let Some(trace) = self.stand.trace(&sent.packet.port, &sent.frame) else {
            return Err("the device does not say what would become of a packet".into());
        };
        let before = self.stand.ledger();
        self.send(std::slice::from_ref(&sent))?;
        let became = match drops(&before, &self.stand.ledger()).first() {
            // Room in the flow table is found, or not, when the packet comes.
            Some((DropReason::MissPolicyDrop, _)) => return Ok(()),
            Some((reason, _)) => TraceOutcome::Drop { reason: reason.code().into() },
            None => TraceOutcome::Forward { port: self.last_port.clone() },
        };
        if trace.outcome == became {
            return Ok(());
        }
        Err(format!("{}: the trace said {:?}, and it became {became:?}", sent.packet, trace.outcome))
    }

    /// Reasons for which packets may be dropped at present, whatever the policy says.
    fn tolerated(&self) -> Vec<DropReason> {
        let mut reasons = Vec::new();
        if self.config.miss_policy == MissPolicy::Drop && !self.complete {
            reasons.push(DropReason::MissPolicyDrop);
        }
        if self.config.reset_policy == ResetPolicy::Deny && (self.unaware || !self.controller.is_settled()) {
            reasons.push(DropReason::NotArmed);
        }
        reasons
    }

    /// Whether no packet may pass: the reset policy is `deny` and no ENI is armed.
    fn is_shut(&self) -> bool {
        self.config.reset_policy == ResetPolicy::Deny && self.stand.device.state().armed.is_empty()
    }

    /// Sends packets, lets the device come to rest, and holds what became of each against the reference. Packets of one conversation
    /// go one way only; conversations differ in their addresses or ports.
    ///
    /// # Errors
    /// What became of a packet that should not, or what does not balance.
    pub fn send(&mut self, sent: &[Sent]) -> Result<(), String> {
        self.watching = true;
        self.send_and_watch(sent)?;
        self.watching = false;
        self.progress();
        Ok(())
    }

    fn send_and_watch(&mut self, sent: &[Sent]) -> Result<(), String> {
        let before = self.stand.ledger();
        let shut = self.is_shut();
        let mut tolerated = self.tolerated();
        for packet in sent {
            self.packets += 1;
            self.note(|| packet.packet.to_string());
            let port = self.port(&packet.packet.port);
            let packet = ports::Packet::from(&packet.frame[..]);
            // As a card's receive side scaling: one queue for one conversation.
            let queue = sent_queue(&packet.bytes);
            self.stand.inject(port, queue, packet);
            for _ in 0..self.random.below(4) {
                self.step();
            }
        }
        self.rest()?;
        tolerated.extend(self.tolerated());
        tolerated.dedup();
        self.reference.tolerated = tolerated;
        let after = self.stand.ledger();
        let mut left = self.stand.take();
        self.delivered += left.len() as u64;
        if let Some((port, _)) = left.last() {
            self.last_port.clone_from(&self.ports[*port]);
        }
        let number = |bytes: &[u8]| sent.iter().position(|s| s.frame[6..] == bytes[6..]);
        self.last_order = left.iter().filter_map(|(_, p)| number(&p.bytes)).collect();
        let mut fates: Vec<Option<Outcome>> = Vec::new();
        for packet in sent {
            let found = left.iter().position(|(_, p)| p.bytes[6..] == packet.frame[6..]);
            fates.push(found.map(|at| {
                let (port, packet) = left.remove(at);
                let mac = packet.bytes[..6].try_into().expect("six bytes");
                Outcome::Delivered(Exit { port: self.ports[port].clone(), mac: model::MacAddr(mac) })
            }));
        }
        let mut drops = drops(&before, &after);
        let punts = punts(&before, &after);
        self.note(|| format!("  became {}, dropped {drops:?}, punted {punts:?}", fates_in_words(&fates)));
        if shut && self.is_shut() && fates.iter().any(Option::is_some) {
            return Err("no ENI is armed, the reset policy is deny, and packets passed".into());
        }
        if let Some((port, packet)) = left.first() {
            return Err(format!("at port {port} left what nobody sent: {:02x?}", packet.bytes));
        }
        let missing = fates.iter().filter(|f| f.is_none()).count() as u64;
        if drops.iter().map(|(_, n)| n).sum::<u64>() != missing {
            return Err(format!("{missing} packets did not arrive, and the drops are {drops:?}"));
        }
        let counted = drops.clone();
        let mut outcomes = Vec::new();
        match explain(&self.reference, sent, &fates, &mut drops, self.stand.now, &mut outcomes) {
            Some(reference) => {
                let excused = |d: &(DropReason, u64)| self.reference.tolerated.contains(&d.0);
                let told_apart = sent.len() == 1 || !counted.iter().any(excused);
                self.reference = reference;
                self.reference.exact &= told_apart;
            }
            None => return Err(self.complain(sent, &fates, &drops)),
        }
        for (packet, outcome) in sent.iter().zip(&outcomes) {
            let exit = match outcome {
                Outcome::Delivered(exit) => Some(exit),
                Outcome::Dropped(_) => None,
            };
            self.traffic.outcome(packet, exit);
        }
        Ok(())
    }

    fn complain(&mut self, sent: &[Sent], fates: &[Option<Outcome>], drops: &[(DropReason, u64)]) -> String {
        let mut text = format!("drops: {drops:?}\n");
        for (packet, fate) in sent.iter().zip(fates) {
            let expected = self.reference.expect(&packet.packet, self.stand.now);
            let expected: Vec<_> = expected.iter().map(|e| (&e.outcome, &e.rules)).collect();
            text += &format!("{}\n  became {fate:?}\n  right would be {expected:?}\n", packet.packet);
            if let Some(trace) = self.stand.trace(&packet.packet.port, &packet.frame) {
                text += &format!("  the device says of it now: {:?}, {}\n", trace.outcome, trace.state);
                for step in trace.steps {
                    text += &format!("    {:?} {}: {}\n", step.executor, step.stage, step.why);
                }
            }
        }
        text
    }

    /// Steps until no packet is under way.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..self.random.below(40) {
            self.step();
        }
        self.stand.rest(&mut self.random)
    }

    /// Asks for a neighbour's MAC address and holds the answer against the reference.
    ///
    /// # Errors
    /// As [`Rig::send`].
    pub fn ask(&mut self, question: &Question) -> Result<(), String> {
        self.watching = true;
        self.ask_and_watch(question)?;
        self.watching = false;
        self.progress();
        Ok(())
    }

    fn ask_and_watch(&mut self, question: &Question) -> Result<(), String> {
        let before = self.stand.ledger();
        let shut = self.is_shut();
        let mut tolerated = self.tolerated();
        let port = self.port(&question.port);
        let queue = self.random.below(8) as usize;
        self.stand.inject(port, queue, ports::Packet::from(&question.frame[..]));
        self.rest()?;
        tolerated.extend(self.tolerated());
        let after = self.stand.ledger();
        let left = self.stand.take();
        let drops = drops(&before, &after);
        let consumed = |reason: ConsumeReason| {
            after.left.consumed[reason.index()].frames - before.left.consumed[reason.index()].frames
        };
        let ignored = consumed(ConsumeReason::ArpIgnored) + consumed(ConsumeReason::NdIgnored);
        let answer = match (&left[..], &drops[..], ignored) {
            ([(at, packet)], [], 0) if *at == port => {
                let mac = packet.bytes[6..12].try_into().expect("six bytes");
                let answer = Neighbor::Answer(model::MacAddr(mac));
                if packet.bytes != question.answer(mac) {
                    return Err(format!("{question}: a wrong answer: {:02x?}", packet.bytes));
                }
                answer
            }
            ([], [(reason, 1)], 0) => Neighbor::Denied(*reason),
            ([], [], 1) => Neighbor::Ignored,
            _ => return Err(format!("{question} became {left:?}, {drops:?}, {ignored} ignored")),
        };
        if shut && self.is_shut() && matches!(answer, Neighbor::Answer(_)) {
            return Err(format!(
                "{question}: no ENI is armed, the reset policy is deny, and it was answered"
            ));
        }
        let right = self.reference.policies().iter().map(|p| question.judge(p));
        let right: Vec<_> = right.chain(tolerated.into_iter().map(Neighbor::Denied)).collect();
        let text = format!("{question} became {answer:?}");
        self.note(|| text);
        if right.contains(&answer) {
            Ok(())
        } else {
            Err(format!("{question} became {answer:?}, right would be {right:?}"))
        }
    }
}

mod question;
pub use question::Question;

/// The reference after these fates, if they can be explained, and the outcomes that explain them: drops are counted, not told apart.
fn explain(
    reference: &Reference,
    sent: &[Sent],
    fates: &[Option<Outcome>],
    drops: &mut [(DropReason, u64)],
    now: u64,
    outcomes: &mut Vec<Outcome>,
) -> Option<Reference> {
    let (Some((packet, sent)), Some((fate, fates))) = (sent.split_first(), fates.split_first()) else {
        return Some(reference.clone());
    };
    let mut attempt = |outcome: Outcome, drops: &mut [(DropReason, u64)]| {
        let mut next = reference.clone();
        next.observe(&packet.packet, &outcome, now).ok()?;
        outcomes.push(outcome);
        let explained = explain(&next, sent, fates, drops, now, outcomes);
        if explained.is_none() {
            outcomes.pop();
        }
        explained
    };
    if let Some(fate) = fate {
        return attempt(fate.clone(), drops);
    }
    for n in 0..drops.len() {
        if drops[n].1 > 0 {
            drops[n].1 -= 1;
            if let Some(explained) = attempt(Outcome::Dropped(drops[n].0), drops) {
                return Some(explained);
            }
            drops[n].1 += 1;
        }
    }
    None
}

/// Which queue a frame comes in at: the same for all of a conversation's packets of one direction.
fn sent_queue(frame: &[u8]) -> usize {
    let addresses = if frame[12..14] == [0x08, 0x00] { &frame[26..34] } else { &frame[22..54] };
    addresses.iter().fold(7usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(*byte))) >> 3
}

/// What became of packets in few words.
fn fates_in_words(fates: &[Option<Outcome>]) -> String {
    let word = |fate: &Option<Outcome>| match fate {
        Some(Outcome::Delivered(exit)) => format!("{} to {}", exit.port, exit.mac),
        Some(Outcome::Dropped(reason)) => reason.to_string(),
        None => "-".into(),
    };
    fates.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Rules and their states in words.
fn states(rules: &[control::RuleReport]) -> String {
    rules.iter().map(|r| format!("  {} {:?} {:?} {}\n", r.id, r.state, r.reason, r.entries)).collect()
}
