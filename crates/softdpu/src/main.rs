//! `softdpu`: a DPU in software.
#![forbid(unsafe_code)]

mod args;
mod ask;
mod bench;
mod commands;
mod failure;
mod laboratory;
mod output;
mod packet_words;
mod place;
mod process;
mod show;

use args::{BenchCommand, Cli, Command, FIRST, LabCommand};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("{}", failure.message);
            }
            ExitCode::from(failure.status)
        }
    }
}

fn run(cli: &Cli) -> failure::Result<u8> {
    let global = &cli.global;
    let Some(command) = &cli.command else {
        output::say(FIRST)?;
        return Ok(0);
    };
    match command {
        Command::Run(args) => process::supervisor::main(args, &place::run_dir(global)?),
        Command::Stop if global.lab.is_some() => Err(failure::Failure::usage(
            "a lab ends where it was started: Ctrl-C there, or SIGTERM to that process",
        )),
        Command::Stop => process::supervisor::stop(&place::run_dir(global)?),
        Command::Device(args) => process::device::main(&args.config, &place::run_dir(global)?),
        Command::Controller(args) => process::controller::main(args, &place::run_dir(global)?),
        Command::Status => commands::status(global),
        Command::Port(command) => commands::port(global, command),
        Command::Rule(command) => commands::rule(global, command),
        Command::Flow(command) => commands::flow(global, command),
        Command::Drops => commands::drops(global),
        Command::Trace(args) => commands::trace(global, args),
        Command::Apply(args) => commands::apply(global, args),
        Command::Diff => commands::diff(global),
        Command::Reset(args) => commands::reset(global, args),
        Command::Lab(LabCommand::Run(args)) => return laboratory::run(args),
        Command::Lab(LabCommand::Exec { host, command }) => return laboratory::exec(global, host, command),
        Command::Bench(BenchCommand::Pipeline(args)) => bench::pipeline(args, global.output),
        Command::Bench(BenchCommand::Tcp(args)) => bench::tcp(args, global.output),
    }?;
    Ok(0)
}
