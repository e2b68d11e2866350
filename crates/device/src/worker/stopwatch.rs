//! Where a worker's time goes: read at the edges of batches only, and only if somebody gave it a clock.

/// A part of a worker's poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Taking frames in.
    Rx,
    /// Parsing, the sender's check, finding the owner, and bringing the flow's place near.
    Parse,
    /// Looking up, checking, changing, counting; first packets and their judgement included.
    Decide,
    /// Sending.
    Tx,
    /// All else: messages of other threads, sweeps, and the time between two polls.
    Other,
}

impl Stage {
    /// All of them, in the order of a packet's way.
    pub const ALL: [Stage; 5] = [Stage::Rx, Stage::Parse, Stage::Decide, Stage::Tx, Stage::Other];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Rx => "rx",
            Stage::Parse => "parse",
            Stage::Decide => "decide",
            Stage::Tx => "tx",
            Stage::Other => "other",
        }
    }
}

/// Time by stage, ns, in the order of [`Stage::ALL`].
pub type StageTimes = [u64; Stage::ALL.len()];

/// Charges time to stages.
#[derive(Default)]
pub(super) struct Stopwatch {
    clock: Option<fn() -> u64>,
    last: u64,
    pub(super) times: StageTimes,
}

impl Stopwatch {
    /// Starts at nothing, by this clock (ns).
    pub(super) fn started(clock: fn() -> u64) -> Self {
        Stopwatch { clock: Some(clock), last: clock(), times: StageTimes::default() }
    }

    /// Charges the time since the last lap.
    #[inline]
    pub(super) fn lap(&mut self, stage: Stage) {
        if let Some(clock) = self.clock {
            let now = clock();
            self.times[stage as usize] += now - self.last;
            self.last = now;
        }
    }
}
