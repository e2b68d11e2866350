//! The line between controller and device, with what can go wrong on it: commands that are refused or never arrive, completions
//! that come late, out of order, twice or never, and a queue that has no room.

use crate::random::Random;
use contract::{
    Capabilities, Command, CommandId, Completion, Device, InstallReason, Op, SubmitError, Target,
};
use device::SoftDevice;
use std::collections::{BTreeMap, VecDeque};

/// How often what goes wrong, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// An insert into the device is refused.
    pub refused: u64,
    /// Any command is refused without a reason.
    pub rejected: u64,
    /// A command never arrives.
    pub lost: u64,
    /// A completion never arrives.
    pub unanswered: u64,
    /// A completion arrives twice.
    pub twice: u64,
    /// A completion arrives after its command was given up.
    pub late: u64,
    /// There is no room for a command.
    pub full: u64,
    /// The longest ordinary delay of a completion, ns.
    pub delay: u64,
}

/// Both directions of the line.
pub struct Line {
    /// What can go wrong.
    pub weather: Weather,
    /// What did go wrong.
    pub faults: u64,
    /// Commands taken.
    pub commands: u64,
    random: Random,
    now: u64,
    next: u64,
    to_device: VecDeque<(u64, CommandId, Command)>,
    inside: BTreeMap<CommandId, CommandId>,
    to_controller: Vec<(u64, Completion)>,
    /// Completions of commands that did not come over the line.
    pub(super) own: Vec<Completion>,
}

/// The line with the device at its end, as the controller sees it.
pub struct End<'a> {
    /// The line.
    pub line: &'a mut Line,
    /// The device.
    pub device: &'a mut SoftDevice,
}

impl Line {
    /// A line in calm weather.
    pub fn new(random: Random) -> Line {
        Line {
            weather: Weather::default(),
            faults: 0,
            commands: 0,
            random,
            now: 0,
            next: 0,
            to_device: VecDeque::new(),
            inside: BTreeMap::new(),
            to_controller: Vec::new(),
            own: Vec::new(),
        }
    }

    /// Moves what is due at `now`.
    pub fn run(&mut self, device: &mut SoftDevice, now: u64) {
        self.now = now;
        while let Some((due, ..)) = self.to_device.front()
            && *due <= now
            && let Some((due, id, command)) = self.to_device.pop_front()
        {
            match device.submit(command.clone()) {
                Ok(inner) => {
                    self.inside.insert(inner, id);
                }
                Err(_) => {
                    self.to_device.push_front((due, id, command));
                    break;
                }
            }
        }
        while let Some((_, completion)) = device.completed() {
            let notice = completion.id == CommandId(0);
            let id = if notice { Some(CommandId(0)) } else { self.inside.remove(&completion.id) };
            match id {
                Some(id) => self.answer(Completion { id, ..completion }),
                None => self.own.push(completion),
            }
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        let hit = self.random.chance(percent);
        self.faults += u64::from(hit);
        hit
    }

    fn answer(&mut self, completion: Completion) {
        if self.chance(self.weather.unanswered) {
            return;
        }
        let mut due = self.now + self.random.below(self.weather.delay + 1);
        if self.chance(self.weather.late) {
            due += 30_000_000 + self.random.below(60_000_000);
        }
        self.to_controller.push((due, completion.clone()));
        if self.chance(self.weather.twice) {
            let again = due + self.random.below(self.weather.delay + 5_000_000);
            self.to_controller.push((again, completion));
        }
    }

    /// Whether nothing can go wrong at present.
    pub fn is_calm(&self) -> bool {
        let Weather { refused, rejected, lost, unanswered, twice, late, full, delay: _ } = self.weather;
        refused + rejected + lost + unanswered + twice + late + full == 0
    }

    /// The controller is gone: of its commands on the way some arrive yet, no completion does.
    pub fn cut(&mut self) {
        let arrive = self.random.below(self.to_device.len() as u64 + 1) as usize;
        self.to_device.truncate(arrive);
        self.to_controller.clear();
        self.inside.clear();
    }
}

impl Device for End<'_> {
    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn submit(&mut self, command: Command) -> Result<CommandId, SubmitError> {
        let line = &mut *self.line;
        if line.chance(line.weather.full) {
            return Err(SubmitError::QueueFull);
        }
        line.next += 1;
        line.commands += 1;
        let id = CommandId(line.next);
        let insert = matches!(command, Command::Stage(Op::Insert { target: Target::Device, .. }));
        if insert && line.chance(line.weather.refused) {
            let table = "acl".to_string();
            let reason = match line.random.below(5) {
                0 => InstallReason::TableFull { table, used: 1, limit: 1 },
                1 => InstallReason::BucketFull { table, used: 1, limit: 9 },
                2 => InstallReason::MemoryFull,
                3 => InstallReason::CounterFull,
                _ => InstallReason::FirmwareRejected,
            };
            let generation = self.device.state().generation;
            line.answer(Completion { id, generation, outcome: Err(reason) });
        } else if line.chance(line.weather.rejected) {
            let generation = self.device.state().generation;
            line.answer(Completion { id, generation, outcome: Err(InstallReason::FirmwareRejected) });
        } else if !line.chance(line.weather.lost) {
            // Commands keep their order.
            let after = line.to_device.back().map_or(line.now, |(due, ..)| *due);
            let due = after + line.random.below(line.weather.delay / 16 + 1);
            line.to_device.push_back((due, id, command));
        }
        Ok(id)
    }

    fn poll(&mut self) -> Result<Option<Completion>, SubmitError> {
        let line = &mut *self.line;
        let due: Vec<usize> = line
            .to_controller
            .iter()
            .enumerate()
            .filter_map(|(n, (due, _))| (*due <= line.now).then_some(n))
            .collect();
        if due.is_empty() {
            return Ok(None);
        }
        let at = *line.random.pick(&due);
        Ok(Some(line.to_controller.swap_remove(at).1))
    }
}
