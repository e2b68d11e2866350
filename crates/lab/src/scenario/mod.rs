//! Scenarios: steps that load a laboratory and check what comes of it, told as they go.
//!
//! A step that finds something else than was expected does not end the scenario; the exit status does tell.

mod carry;
mod change;
mod controller;
mod install;
mod isolate;
mod law;
mod measure;
mod out;
mod overflow;
mod policy;
mod probes;
mod reset;
mod world;

use crate::error::LabError;
use crate::keeper::{LabOptions, enter};
use crate::lab::Lab;
use crate::stop::Wake;
use crate::topology::Topology;
use std::io::{IsTerminal, stdin};
use std::path::Path;
use std::time::Instant;
use world::World;

/// How a scenario is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Stay until asked to stop when the scenario is through.
    pub keep: bool,
    /// Wait for Enter before each step, and explain it.
    pub step: bool,
    /// Use veth pairs and packet sockets where TAPs could be had.
    pub veth: bool,
}

/// Exit status of a scenario that the user ended: as a shell tells of SIGINT.
const INTERRUPTED: i32 = 130;

/// One step: what it does and why.
struct Step {
    title: &'static str,
    /// Told with `--step`.
    explanation: &'static str,
    run: fn(&mut World) -> Result<(), LabError>,
}

const STEPS: [Step; 8] = [
    install::STEP,
    carry::STEP,
    isolate::STEP,
    change::STEP,
    overflow::STEP,
    reset::STEP,
    controller::STEP,
    law::STEP,
];

/// Runs the scenario of a laboratory's directory; exit status 0 if every check held. The caller must be single-threaded.
///
/// # Errors
/// The description is wrong, or the laboratory cannot be made; nothing was begun then.
pub fn run(directory: &Path, options: RunOptions) -> Result<i32, LabError> {
    let topology = Topology::load(directory)?;
    if options.step && !stdin().is_terminal() {
        return Err(LabError::Topology("--step waits for keys, and standard input is no terminal".into()));
    }
    let lab = LabOptions::new(topology.name.clone());
    enter(&lab, |lab| match play(lab, topology, options) {
        Ok(status) => status,
        Err(LabError::Stopped) => {
            eprintln!("stopped");
            INTERRUPTED
        }
        Err(error) => {
            eprintln!("{error}");
            1
        }
    })
}

fn play(lab: Lab, topology: Topology, options: RunOptions) -> Result<i32, LabError> {
    let mut world = World::new(lab, topology, options.veth)?;
    for (number, step) in STEPS.iter().enumerate() {
        world.out.begin(number + 1, STEPS.len(), step.title);
        if options.step {
            explain(&world, step)?;
        }
        let begin = Instant::now();
        match (step.run)(&mut world) {
            Ok(()) => {}
            Err(LabError::Stopped) => return Err(LabError::Stopped),
            Err(error) => {
                world.out.check(false, "the step can be carried out", "it can", error.to_string(), "");
            }
        }
        world.out.end(step.title, begin.elapsed());
    }
    world.out.summary();
    let status = if world.out.good() { 0 } else { 1 };
    if options.keep {
        stay(&mut world)?;
    }
    world.close()?;
    Ok(status)
}

/// Tells what comes, and waits for Enter.
fn explain(world: &World, step: &Step) -> Result<(), LabError> {
    for line in step.explanation.lines() {
        world.out.note(line.trim());
    }
    world.out.note("Press Enter to go on.");
    if world.lab.stop().readable(stdin(), None) == Wake::Stopped {
        return Err(LabError::Stopped);
    }
    // A terminal gives a line at a time. The end of input is as good as Enter.
    let mut line = [0; 256];
    let _ = rustix::io::read(stdin(), &mut line);
    Ok(())
}

/// Keeps the laboratory with its own configuration until the user asks to stop.
fn stay(world: &mut World) -> Result<(), LabError> {
    world.start_main("kept")?;
    let name = world.lab.name().to_string();
    world.out.say(format!(
        "\nThe laboratory stays until Ctrl-C. From another terminal:
  softdpu --lab={name} status
  softdpu --lab={name} rule list
  softdpu --lab={name} trace --port blue-1 tcp 10.0.0.1:4000 '>' 10.0.0.2:23 syn
  softdpu --lab={name} drops
  softdpu --lab={name} flow list
  softdpu --lab={name} reset --scope warm
  softdpu --lab={name} lab exec blue-1 ip address
  softdpu --lab={name} lab exec blue-1 bash"
    ));
    world.lab.stop().wait_until(None);
    Ok(())
}
