//! Looking at one packet's way without sending it: traces and probes take the same code as traffic, up to the point where a
//! packet would be changed or a connection made.

use crate::parsed::{self, Kind, Parsed, addresses};
use crate::program::{self, Response, View};
use crate::report;
use crate::shared::{PortDescription, Snapshot};
use crate::worker::answered;
use contract::report::{Executor, TraceOutcome, TraceReport, TraceStep};
use contract::{EntryId, Version};
use functions::conntrack;
use model::MissPolicy;
use packet::{Count, DropReason, Meta, PuntReason};
use pipeline::connection::{Connections, Handle, Tier, Track};
use pipeline::judge::{Hits, Step};
use pipeline::key::FlowKey;
use pipeline::parse::{Class, parse};
use pipeline::trace::Trace;
use std::sync::mpsc::Sender;

/// How a packet's way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Forward(u16),
    Drop(DropReason),
    Consume(&'static str),
}

/// A finished inspection.
pub struct Inspected {
    /// The way; rules are still to be filled in.
    pub trace: TraceReport,
    /// Entries met by who decided.
    pub hits: Vec<EntryId>,
}

/// A connection that a packet belongs to.
#[derive(Clone, Copy)]
struct Known {
    opener: FlowKey,
    port: u16,
    track: Track,
    dir: usize,
    tier: Tier,
}

impl Known {
    fn new(connections: &Connections, handle: Handle) -> Known {
        let connection = connections.get(handle.record());
        let cold = connection.cold;
        let opener = connection.flows[0].key;
        Known { opener, port: cold.port, track: cold.track, dir: handle.dir(), tier: cold.tier }
    }
}

/// A packet to be looked at.
pub struct Inspection {
    port: u16,
    frame: Vec<u8>,
    /// Whether it is to be counted.
    pub probe: bool,
    /// Entries met by who decides.
    pub hits: Hits,
    packet: String,
    steps: Vec<TraceStep>,
    executor: Executor,
    state: &'static str,
    handed_on: Option<Known>,
    version: Version,
    /// Bytes of the IP packet.
    size: u32,
    end: End,
    reply: Sender<Inspected>,
}

impl Inspection {
    /// A packet that comes in on `port`.
    pub fn new(port: u16, frame: Vec<u8>, probe: bool, reply: Sender<Inspected>) -> Self {
        Inspection {
            port,
            frame,
            probe,
            hits: Hits::default(),
            packet: String::new(),
            steps: Vec::new(),
            executor: Executor::Device,
            state: "none",
            handed_on: None,
            version: Version(0),
            size: 0,
            end: End::Drop(DropReason::HostPathOverCapacity),
            reply,
        }
    }

    /// What it counts as.
    pub fn count(&self) -> Count {
        Count { frames: 1, packets: 1, bytes: self.frame.len() as u64 }
    }

    /// The key of its connection, and the ENI that it claims to come from.
    pub fn parse(&self, snapshot: &Snapshot) -> Result<(Parsed, u16), DropReason> {
        let meta = Meta { port: self.port, ..Meta::default() };
        let headers = parse(&self.frame, &meta)?;
        let eni = parsed::sender(&self.frame, self.port, &snapshot.host)?;
        Ok((parsed::identify(&headers, eni, &self.frame)?, eni.eni))
    }

    /// The device's part; whether it decides.
    pub fn at_worker(&mut self, snapshot: &Snapshot, connections: &Connections, miss: MissPolicy) -> bool {
        let (parsed, _) = match self.parse(snapshot) {
            Ok(parsed) => parsed,
            Err(reason) => {
                self.packet = format!("frame of {} bytes", self.frame.len());
                self.say("parse", format!("{reason}: {}", reason.meaning()));
                return self.decide(End::Drop(reason));
            }
        };
        self.packet = words(&parsed);
        self.say("parse", self.packet.clone());
        match self.walk(&parsed, snapshot, connections, Executor::Device) {
            Ok(end) => self.decide(end),
            Err(reason) if miss == MissPolicy::Drop && !keeps(reason) => {
                self.say("miss_policy", format!("{reason}: {}; the miss policy is drop", reason.meaning()));
                self.decide(End::Drop(DropReason::MissPolicyDrop))
            }
            Err(reason) => {
                self.say("punt", format!("{reason}: {}", reason.meaning()));
                false
            }
        }
    }

    /// The host path's part, which always decides.
    pub fn at_host_path(&mut self, snapshot: &Snapshot, connections: &Connections) {
        self.executor = Executor::HostPath;
        self.version = snapshot.version;
        self.hits = Hits::default();
        let end = match self.parse(snapshot) {
            Ok((parsed, _)) => self
                .walk(&parsed, snapshot, connections, Executor::HostPath)
                .unwrap_or(End::Drop(DropReason::NoEni)),
            Err(reason) => End::Drop(reason),
        };
        self.decide(end);
    }

    fn walk(
        &mut self,
        parsed: &Parsed,
        snapshot: &Snapshot,
        connections: &Connections,
        executor: Executor,
    ) -> Result<End, PuntReason> {
        self.version = snapshot.version;
        self.size = parsed.headers.l3_len;
        let view = match executor {
            Executor::Device => &snapshot.device,
            Executor::HostPath => &snapshot.host,
        };
        if parsed.kind == Kind::Neighbor {
            let eni = snapshot.host.enis.eni(self.port).ok_or(PuntReason::TableMiss)?;
            let end = match program::asked(view, eni, &self.frame, &parsed.headers) {
                Ok(_) => End::Consume(answered(parsed.headers.class).0.code()),
                Err(Response::Ignored(reason)) => End::Consume(reason.code()),
                Err(Response::Drop(reason)) => End::Drop(reason),
                Err(Response::Punt(reason)) => return Err(reason),
                Err(Response::Answered) => End::Consume("arp_answered"),
            };
            let why = match parsed.headers.class {
                Class::ArpRequest | Class::NeighborSolicitation => "asks for the MAC address of a neighbour",
                _ => "tells a MAC address; the device takes none from packets",
            };
            self.say("neighbor", why);
            return Ok(end);
        }
        let found = connections.find(connections.hash(&parsed.key), &parsed.key);
        let found = found.map(|handle| Known::new(connections, handle)).or(self.handed_on.take());
        if let Some(known) = found {
            return self.known(parsed, snapshot, known, executor);
        }
        self.say("flow_table", "no record");
        self.first(parsed, view, snapshot, executor)
    }

    /// The way of a packet of no connection.
    fn first(
        &mut self,
        parsed: &Parsed,
        view: &View,
        snapshot: &Snapshot,
        executor: Executor,
    ) -> Result<End, PuntReason> {
        if parsed.kind == Kind::Error {
            return match self.error_source(parsed, view, snapshot) {
                Step::Continue => Ok(End::Drop(DropReason::IcmpErrorNoConnection)),
                Step::Drop(reason) => Ok(End::Drop(reason)),
                Step::Punt(reason) => Err(reason),
            };
        }
        let mut trace = Trace::default();
        let (step, judgement) = program::judge(view, &parsed.key, self.port, Some(&mut trace));
        let (hits, forward) = (judgement.hits, judgement.forward);
        self.add(trace, executor);
        match step {
            Step::Continue => {
                self.hits = hits;
                match conntrack::open(&parsed.headers) {
                    Ok(_) => {
                        self.say("conntrack", "opens a connection");
                        Ok(End::Forward(forward.port))
                    }
                    Err(reason) => {
                        self.say("conntrack", reason.meaning());
                        Ok(End::Drop(reason))
                    }
                }
            }
            Step::Drop(reason) => {
                self.hits = hits;
                Ok(End::Drop(reason))
            }
            Step::Punt(reason) => Err(reason),
        }
    }

    fn known(
        &mut self,
        parsed: &Parsed,
        snapshot: &Snapshot,
        known: Known,
        executor: Executor,
    ) -> Result<End, PuntReason> {
        let Known { opener, port, mut track, dir, tier } = known;
        self.state = report::tier(tier);
        let direction = ["the opener's", "the answering"][dir];
        self.say("flow_table", format!("hit: {direction} direction of {opener}, tier {}", self.state));
        let view = match executor {
            Executor::Device if tier == Tier::Host => {
                return match snapshot.device.admits(parsed.key.eni) {
                    Step::Drop(reason) => Ok(End::Drop(reason)),
                    _ => Err(PuntReason::HostOwned),
                };
            }
            Executor::Device => &snapshot.device,
            Executor::HostPath => &snapshot.host,
        };
        let mut trace = Trace::default();
        let (step, judgement) = program::judge_again(view, &snapshot.host, &opener, port, Some(&mut trace));
        let (hits, ways) = (judgement.hits, [judgement.forward, judgement.backward]);
        self.add(trace, executor);
        match step {
            Step::Continue if dir == 0 || parsed.key == opener.reversed(ways[0].eni) => {}
            Step::Continue => {
                self.say("flow_table", "the connection leads elsewhere by now, this is none of its answers");
                return self.first(parsed, view, snapshot, executor);
            }
            Step::Drop(DropReason::NotArmed) => return Ok(End::Drop(DropReason::NotArmed)),
            Step::Drop(reason) => {
                self.say("flow_table", format!("the connection ends: {}", reason.meaning()));
                return self.first(parsed, view, snapshot, executor);
            }
            Step::Punt(reason) => {
                // The host path would get the connection before the packet.
                self.handed_on = Some(known);
                return Err(reason);
            }
        }
        if parsed.kind == Kind::Error {
            match self.error_source(parsed, view, snapshot) {
                Step::Continue => {}
                Step::Drop(reason) => return Ok(End::Drop(reason)),
                Step::Punt(reason) => {
                    self.handed_on = Some(known);
                    return Err(reason);
                }
            }
        }
        self.hits = hits;
        if parsed.kind == Kind::Flow
            && let Err(reason) = conntrack::packet(&mut track, dir, &parsed.headers)
        {
            self.say("conntrack", reason.meaning());
            return Ok(End::Drop(reason));
        }
        Ok(End::Forward(ways[dir].port))
    }

    fn error_source(&self, parsed: &Parsed, view: &View, snapshot: &Snapshot) -> Step {
        let (source, _) = addresses(&self.frame, &parsed.headers);
        match snapshot.host.enis.eni(self.port) {
            Some(eni) => program::error_source(view, eni, source),
            None => Step::Punt(PuntReason::TableMiss),
        }
    }

    fn add(&mut self, trace: Trace, executor: Executor) {
        self.steps.extend(trace.0.into_iter().map(|step| TraceStep {
            executor,
            stage: step.stage.into(),
            entry: step.entry.map(EntryId),
            rule: None,
            why: step.why,
        }));
    }

    fn say(&mut self, stage: &str, why: impl Into<String>) {
        let executor = self.executor;
        self.steps.push(TraceStep {
            executor,
            stage: stage.into(),
            entry: None,
            rule: None,
            why: why.into(),
        });
    }

    fn decide(&mut self, end: End) -> bool {
        self.end = end;
        true
    }

    /// Sends the answer to who asked.
    pub fn answer(mut self, ports: &[PortDescription]) {
        if let End::Forward(port) = self.end
            && let Some(mtu) = ports.get(port as usize).map(|p| p.mtu)
            && self.size > mtu
        {
            self.say("egress", format!("{} bytes are more than the MTU of {mtu}", self.size));
            self.end = End::Drop(DropReason::EgressMtuExceeded);
        }
        let name = |port: u16| ports.get(port as usize).map_or_else(|| port.to_string(), |p| p.name.clone());
        let trace = TraceReport {
            packet: self.packet,
            port: name(self.port),
            version: self.version,
            steps: self.steps,
            executor: self.executor,
            state: self.state.into(),
            outcome: match self.end {
                End::Forward(port) => TraceOutcome::Forward { port: name(port) },
                End::Drop(reason) => TraceOutcome::Drop { reason: reason.code().into() },
                End::Consume(reason) => TraceOutcome::Consume { reason: reason.into() },
            },
        };
        let hits = self.hits.as_slice().iter().map(|&e| EntryId(e)).collect();
        // Who asked may have given up; then nobody is to be told.
        let _ = self.reply.send(Inspected { trace, hits });
    }
}

/// A packet in words.
fn words(parsed: &Parsed) -> String {
    let key = &parsed.key;
    match parsed.headers.class {
        Class::ArpRequest => format!("arp request {} > {}", key.src_ip(), key.dst_ip()),
        Class::ArpReply => format!("arp reply {} > {}", key.src_ip(), key.dst_ip()),
        _ => key.to_string(),
    }
}

/// Punts that the miss policy `drop` does not turn into drops.
pub fn keeps(reason: PuntReason) -> bool {
    matches!(reason, PuntReason::NotArmed | PuntReason::HostOwned | PuntReason::Pending)
}
