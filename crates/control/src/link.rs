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
    /// The first command answered since deadlines were looked at.
    answered: Option<CommandId>,
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
        self.answered = None;
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
        self.answered = Some(self.answered.map_or(completion.id, |first| first.min(completion.id)));
        if completion.outcome == Err(InstallReason::QueueFull) {
            self.queue.push_front((sent.purpose, sent.command));
            return None;
        }
        Some(Answer { purpose: sent.purpose, command: sent.command, outcome: completion.outcome })
    }

    /// Commands whose deadline has passed: what became of them is unknown. A command's time begins when the one before it was
    /// answered: a device may take long for a full queue.
    pub fn expired(&mut self, now: u64, timeout: u64) -> Vec<Purpose> {
        if let Some(first) = self.answered.take() {
            let deadline = now.saturating_add(timeout);
            self.sent.range_mut(first..).for_each(|(_, sent)| sent.deadline = deadline);
        }
        let late = self.sent.extract_if(.., |_, sent| sent.deadline <= now);
        late.map(|(_, sent)| sent.purpose).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Capabilities, Generation, Reply};

    /// A device that takes commands and answers when the test says so.
    struct Silent(Capabilities, u64);

    impl Device for Silent {
        fn capabilities(&self) -> &Capabilities {
            &self.0
        }

        fn submit(&mut self, _: Command) -> Result<CommandId, SubmitError> {
            self.1 += 1;
            Ok(CommandId(self.1))
        }

        fn poll(&mut self) -> Result<Option<Completion>, SubmitError> {
            Ok(None)
        }
    }

    /// Twenty commands sent at 0, with a limit of 100.
    fn sent() -> Link {
        let (program, profile, tables) = Default::default();
        let capabilities = Capabilities { program, profile, tables, queue: 100, atomic_commit: true };
        let (mut link, mut device) = (Link::default(), Silent(capabilities, 0));
        (0..20).for_each(|_| link.push(Purpose::Phase, Command::State));
        assert_eq!(link.submit(&mut device, 0, 100), Ok(true));
        link
    }

    fn answer(link: &mut Link, id: u64) {
        let (id, generation) = (CommandId(id), Generation(1));
        assert!(link.take(Completion { id, generation, outcome: Ok(Reply::Done) }).is_some());
    }

    #[test]
    fn a_slow_device_is_not_a_dead_one() {
        let mut link = sent();
        for id in 1..=10 {
            assert!(
                link.expired(60 * id, 100).is_empty(),
                "{id} commands took 60 each, and the limit is 100"
            );
            // Two change places.
            answer(&mut link, [1, 3, 2, 4, 5, 6, 7, 8, 9, 10][id as usize - 1]);
        }
        assert!(link.expired(600, 100).is_empty());
        assert!(link.expired(699, 100).is_empty());
        assert_eq!(link.expired(700, 100).len(), 10, "nothing came for 100");
    }

    #[test]
    fn a_lost_completion_is_noticed_while_others_come() {
        let mut link = sent();
        let mut expired = 0;
        for id in 2..=20 {
            expired += link.expired(10 * id, 100).len();
            answer(&mut link, id);
        }
        assert_eq!(expired, 1);
    }
}
