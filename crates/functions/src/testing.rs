//! What the tests of the stages share.

use crate::prefix::Prefix;
use pipeline::judge::{Adjacency, Judgement, REGISTERS, Stage, Step};
use pipeline::key::FlowKey;
use pipeline::trace::Trace;
use wire::ip;

/// A view of one table.
pub struct Only<T>(pub T);

impl<T> AsRef<T> for Only<T> {
    fn as_ref(&self) -> &T {
        &self.0
    }
}

/// All that a stage said and left behind.
#[derive(Debug)]
pub struct Outcome {
    pub step: Step,
    pub hits: Vec<u32>,
    pub registers: [u32; REGISTERS],
    pub forward: Adjacency,
    pub backward: Adjacency,
    /// The trace's lines.
    pub why: Vec<String>,
}

/// Runs one stage after `prepare`; with and without a trace it must do the same.
pub fn judge<T>(
    stage: &dyn Stage<Only<T>>,
    table: T,
    key: FlowKey,
    prepare: impl Fn(&mut Judgement<'_>),
) -> Outcome {
    let view = Only(table);
    let mut trace = Trace::default();
    let mut traced = Judgement::new(key, 0, Some(&mut trace));
    prepare(&mut traced);
    let step = stage.judge(&view, &mut traced);
    let mut untraced = Judgement::new(key, 0, None);
    prepare(&mut untraced);
    assert_eq!(stage.judge(&view, &mut untraced), step);
    assert_eq!(untraced.hits, traced.hits);
    Outcome {
        step,
        hits: traced.hits.as_slice().to_vec(),
        registers: traced.registers,
        forward: traced.forward,
        backward: traced.backward,
        why: trace.0.into_iter().map(|step| format!("{}: {}", step.stage, step.why)).collect(),
    }
}

/// An address of either family.
pub fn addr(text: &str) -> u128 {
    ip::to_bits(text.parse().unwrap())
}

/// A prefix of either family in its own notation; `any` for all.
pub fn prefix(text: &str) -> Prefix {
    if text == "any" {
        return Prefix::ANY;
    }
    let (address, len) = text.split_once('/').unwrap();
    let addr = addr(address);
    Prefix { addr, len: len.parse::<u8>().unwrap() + if ip::is_v4(addr) { 96 } else { 0 } }
}

/// A key from text addresses.
pub fn key(proto: u8, src: &str, sport: u16, dst: &str, dport: u16) -> FlowKey {
    FlowKey::new(addr(src), addr(dst), sport, dport, proto)
}
