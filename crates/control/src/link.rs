//! Commands on their way: a bounded window, a deadline each, and completions in any order, once, twice or never.

use contract::{Command, CommandId, Completion, Device, InstallReason, Outcome, SubmitError};
use std::collections::{BTreeMap, VecDeque};

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A step of the present phase: the next one waits for it.
    Phase,
    /// Counters and health; nothing waits for it.
    Watch,
    /// A probe of this proof.
    Probe(u64),
    /// A reset that somebody asked for.
    Reset,
}

#[derive(Debug)]
struct Sent {
    purpose: Purpose,
    command: Command,
    deadline: u64,
}

/// A completion that belongs to a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub purpose: Purpose,
    pub command: Command,
    pub outcome: Outcome,
}

#[derive(Debug, Default)]
pub(crate) struct Link {
    queue: VecDeque<(Purpose, Command)>,
    sent: BTreeMap<CommandId, Sent>,
}

impl Link {
    pub fn push(&mut self, purpose: Purpose, command: Command) {
        self.queue.push_back((purpose, command));
    }

    pub fn push_first(&mut self, purpose: Purpose, command: Command) {
        self.queue.push_front((purpose, command));
    }

    /// Whether nothing of the phase is waiting or on its way.
    pub fn is_clear(&self) -> bool {
        !self.has(|p| p == Purpose::Phase)
    }

    /// Whether some command waits or is on its way for such a purpose.
    pub fn has(&self, purpose: impl Fn(Purpose) -> bool) -> bool {
        self.queue.iter().any(|(p, _)| purpose(*p)) || self.sent.values().any(|s| purpose(s.purpose))
    }

    /// Forgets everything; late completions find no command.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.sent.clear();
    }

    /// Sends what the window allows.
    pub fn submit<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        now: u64,
        timeout: u64,
    ) -> Result<bool, SubmitError> {
        let window = device.capabilities().queue.max(1) as usize;
        let mut any = false;
        while self.sent.len() < window {
            let Some((purpose, command)) = self.queue.pop_front() else {
                break;
            };
            match device.submit(command.clone()) {
                Ok(id) => {
                    let deadline = now.saturating_add(timeout);
                    let sent = Sent { purpose, command, deadline };
                    self.sent.insert(id, sent);
                    any = true;
                }
                Err(SubmitError::QueueFull) => {
                    self.queue.push_front((purpose, command));
                    break;
                }
                Err(gone) => return Err(gone),
            }
        }
        Ok(any)
    }

    /// The command that a completion answers. None: it was answered or given up already, or it must be sent again.
    pub fn take(&mut self, completion: Completion) -> Option<Answer> {
        let sent = self.sent.remove(&completion.id)?;
        if completion.outcome == Err(InstallReason::QueueFull) {
            self.queue.push_front((sent.purpose, sent.command));
            return None;
        }
        Some(Answer { purpose: sent.purpose, command: sent.command, outcome: completion.outcome })
    }

    /// Commands whose deadline has passed: what became of them is unknown.
    pub fn expired(&mut self, now: u64) -> Vec<Purpose> {
        let late = self.sent.extract_if(.., |_, sent| sent.deadline <= now);
        late.map(|(_, sent)| sent.purpose).collect()
    }
}
