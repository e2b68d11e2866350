//! The command line: noun, then verb.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// A DPU in software: virtual switching and stateful policy on real packets, with the contract of a hardware DPU.
#[derive(Parser)]
#[command(name = "softdpu", version, arg_required_else_help = false, after_help = FIRST)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do first.
pub const FIRST: &str = "What to do first:
  softdpu lab run examples/two-tenants          two tenants on one device, from beginning to end
  softdpu lab run examples/two-tenants --keep   the same, then it stays for you to look around
  softdpu run -c FILE                           a device of your own (see docs/configuration.md)";

/// Options of every command.
#[derive(Args, Clone)]
pub struct Global {
    /// How to print what is read
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    pub output: Output,
    /// Where the daemon has its sockets [default: /run/softdpu, or $XDG_RUNTIME_DIR/softdpu]
    #[arg(long, global = true, env = "SOFTDPU_RUN_DIR", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Speak to the daemon of this lab (without a name: of the only one that runs)
    #[arg(long, global = true, env = "SOFTDPU_LAB", value_name = "NAME", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub lab: Option<String>,
}

/// A format of output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For both
    Yaml,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a device and its controller until stopped
    Run(RunArgs),
    /// Stop the daemon
    Stop,
    /// The device at a glance
    Status,
    /// Ports
    #[command(subcommand)]
    Port(PortCommand),
    /// Rules: ENIs, ACL rules, routes, mappings
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Connections
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Dropped frames, by place and reason
    Drops,
    /// A packet's way through the device, stage by stage
    Trace(TraceArgs),
    /// Make a configuration the desired state
    Apply(ApplyArgs),
    /// What differs between the desired state and the device
    Diff,
    /// Reset a part of the device
    Reset(ResetArgs),
    /// Laboratories: hosts with real interfaces around a device
    #[command(subcommand)]
    Lab(LabCommand),
    /// Measurements
    #[command(subcommand)]
    Bench(BenchCommand),
    /// The device's process, started by `run`
    #[command(hide = true)]
    Device(ProcessArgs),
    /// The controller's process, started by `run`
    #[command(hide = true)]
    Controller(ControllerArgs),
}

#[derive(Args, Clone)]
pub struct RunArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Where the controller keeps its state [default: /var/lib/softdpu, or $XDG_STATE_HOME/softdpu]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct ProcessArgs {
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Args, Clone)]
pub struct ControllerArgs {
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,
    /// Make the configuration the desired state, if it is not
    #[arg(long)]
    pub apply: bool,
}

#[derive(Subcommand)]
pub enum PortCommand {
    /// All ports
    List,
    /// One port
    Show {
        /// Its name
        name: String,
    },
}

#[derive(Subcommand)]
pub enum RuleCommand {
    /// All rules and their states
    List,
    /// One rule
    Show {
        /// Its id, as `rule list` shows it
        id: String,
    },
    /// Why a rule is where it is, and what would change that
    Explain {
        /// Its id
        id: String,
    },
    /// Send probe packets until the device's own counters prove the rule
    Prove {
        /// Its id
        id: String,
    },
}

#[derive(Subcommand)]
pub enum FlowCommand {
    /// Connections, of the device and of the host path
    List {
        /// How many at most
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
}

#[derive(Args)]
pub struct TraceArgs {
    /// The port where the packet comes in
    #[arg(long)]
    pub port: String,
    /// The packet, in words or in hex: `tcp 10.0.0.1:4000 > 10.0.0.2:80 syn`, `udp [fd00::1]:5 > [fd00::2]:53`,
    /// `icmp 10.0.0.1 > 10.0.0.2`, or the frame's bytes
    #[arg(required = true, num_args = 1..)]
    pub packet: Vec<String>,
}

#[derive(Args)]
pub struct ApplyArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Return at once instead of waiting until it is in force
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Args)]
pub struct ResetArgs {
    /// What is reset: `warm` (tables and flows are lost, connections stay)
    #[arg(long, value_enum)]
    pub scope: Scope,
}

/// A scope of a reset.
#[derive(Clone, Copy, ValueEnum)]
pub enum Scope {
    /// The device's tables and flows are lost; connections stay, with the host path
    Warm,
}

#[derive(Subcommand)]
pub enum LabCommand {
    /// Run a lab's scenario from beginning to end
    Run(LabRunArgs),
    /// Run a program in a host of a running lab
    Exec {
        /// The host
        host: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(Args, Clone)]
pub struct LabRunArgs {
    /// The lab's directory
    pub directory: PathBuf,
    /// Stay until Ctrl-C when the scenario is through
    #[arg(long)]
    pub keep: bool,
    /// Wait for a key before each step, and explain it
    #[arg(long)]
    pub step: bool,
    /// Use veth pairs and packet sockets where TAPs could be had
    #[arg(long)]
    pub veth: bool,
}

#[derive(Subcommand)]
pub enum BenchCommand {
    /// One worker on memory ports: packets per CPU-second, and where the time goes
    Pipeline(PipelineArgs),
    /// One TCP stream between two namespaces: the device, the kernel's bridge, and a bare forwarder
    Tcp(TcpArgs),
}

#[derive(Args)]
pub struct PipelineArgs {
    /// Established connections
    #[arg(long, default_value_t = 10_000)]
    pub connections: u32,
    /// Rules in each of two ACL stages
    #[arg(long, default_value_t = 1000)]
    pub rules: u32,
    /// Frame size, bytes without FCS
    #[arg(long, default_value_t = 60)]
    pub size: usize,
    /// How long to measure, seconds
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
}

#[derive(Args)]
pub struct TcpArgs {
    /// Seconds per measurement
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Measurements of each; the median counts
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}
