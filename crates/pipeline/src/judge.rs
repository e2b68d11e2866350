//! Judging: what the policy says of a flow key.
//!
//! A packet that belongs to no connection walks the stages of its program. A stage is a pure function of the
//! key, the tables and the registers: it says how to go on, names the entries that it met, and never touches the packet. So
//! judging a first packet, judging a connection again after a change, and tracing are one code.

use crate::key::FlowKey;
use crate::trace::{Step as TraceStep, Trace};
use packet::{DropReason, PuntReason};

/// Entries that one judgement may meet: two ENIs, a source, a route, a mapping and the ACL stages of both directions.
pub const MAX_HITS: usize = 16;
/// Registers of a judgement.
pub const REGISTERS: usize = 24;

/// How a judgement goes on after a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the next stage.
    Continue,
    /// The policy says no.
    Drop(DropReason),
    /// These tables cannot decide it.
    Punt(PuntReason),
}

/// Where packets of one direction leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Adjacency {
    /// The port's index.
    pub port: u16,
    /// The ENI behind it.
    pub eni: u16,
    /// The destination MAC that packets get.
    pub mac: [u8; 6],
}

/// The entries that a judgement met, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hits {
    entries: [u32; MAX_HITS],
    len: u8,
}

impl Hits {
    /// Adds an entry.
    ///
    /// # Panics
    /// If a program has more stages than [`MAX_HITS`]: a mistake of its author.
    #[inline]
    pub fn push(&mut self, entry: u32) {
        self.entries[self.len as usize] = entry;
        self.len += 1;
    }

    /// The entries.
    #[inline]
    pub fn as_slice(&self) -> &[u32] {
        &self.entries[..self.len as usize]
    }
}

/// One judgement under way.
pub struct Judgement<'t> {
    /// The key that is judged: the direction in which the connection is opened.
    pub key: FlowKey,
    /// The index of the port where such packets come in.
    pub port: u16,
    /// What stages tell one another; which register holds what is the program's choice.
    pub registers: [u32; REGISTERS],
    /// The entries met so far.
    pub hits: Hits,
    /// Where the packets leave, once a stage has found it.
    pub forward: Adjacency,
    /// Where the answers leave.
    pub backward: Adjacency,
    trace: Option<&'t mut Trace>,
}

impl<'t> Judgement<'t> {
    /// A judgement of `key`, whose packets come in at `port`; `trace` is told of each step.
    pub fn new(key: FlowKey, port: u16, trace: Option<&'t mut Trace>) -> Self {
        Judgement {
            key,
            port,
            registers: [0; REGISTERS],
            hits: Hits::default(),
            forward: Adjacency::default(),
            backward: Adjacency::default(),
            trace,
        }
    }

    /// Notes that an entry was met, and in a trace, why.
    #[inline]
    pub fn hit(&mut self, stage: &'static str, entry: u32, why: impl FnOnce() -> String) {
        self.hits.push(entry);
        self.note(stage, Some(entry), why);
    }

    /// Notes, in a trace only, what a stage found.
    #[inline]
    pub fn note(&mut self, stage: &'static str, entry: Option<u32>, why: impl FnOnce() -> String) {
        if let Some(trace) = self.trace.as_deref_mut() {
            trace.push(TraceStep { stage, entry, why: why() });
        }
    }
}

/// One stage of a program over the tables `V`.
pub trait Stage<V>: Send + Sync {
    /// Looks at the key and says how to go on.
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step;
}

/// Walks the stages in order; [`Step::Continue`] means that all of them let it pass.
#[inline]
pub fn walk<V>(stages: &[&dyn Stage<V>], view: &V, judgement: &mut Judgement<'_>) -> Step {
    for stage in stages {
        match stage.judge(view, judgement) {
            Step::Continue => {}
            end => return end,
        }
    }
    Step::Continue
}
