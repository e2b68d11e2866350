//! The real daemon inside a laboratory: this same program, started as `run`, in the body's namespace.

mod ask;
mod wires;

pub use wires::{PortCounts, PortKinds, Wire, Wires};

use crate::error::LabError;
use crate::stop::Stop;
use ask::ask;
use contract::ResetScope;
use contract::report::{Answer, DropReport, PointReport, PortReport, Query, Status};
use control::api::{ApiAnswer, ApiRequest};
use control::{ControlStatus, Diff, ProofReport, ResetReport, RuleDetail, RuleReport, Verdict};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the daemon may take to answer for the first time.
const START: Duration = Duration::from_secs(10);
/// How long until everything that was asked for is confirmed.
const SETTLE: Duration = Duration::from_secs(10);
/// How long it may take to end.
const END: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// Lines of its log that an error shows.
const LOG_LINES: usize = 12;

/// A running daemon: supervisor, device, controller. Dropping it ends it.
#[derive(Debug)]
pub struct Daemon {
    run_dir: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts `run -c config` with its sockets in `run_dir`, and returns once the device answers: its ports are open.
    ///
    /// # Errors
    /// It ended or did not answer in time; the error has the end of its log.
    pub fn start(run_dir: &Path, config: &Path, state_dir: &Path, stop: &Stop) -> Result<Daemon, LabError> {
        let log = run_dir.join("daemon.log");
        let failed = |cause: std::io::Error| LabError::Daemon {
            what: "cannot be started".into(),
            cause: cause.to_string(),
        };
        let file = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        let child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("--run-dir")
            .arg(run_dir)
            .args(["run", "-c"])
            .arg(config)
            .arg("--state-dir")
            .arg(state_dir)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        let mut daemon = Daemon { run_dir: run_dir.into(), log, child };
        let deadline = Instant::now() + START;
        while daemon.status().is_err() {
            if let Ok(Some(status)) = daemon.child.try_wait() {
                return Err(daemon.failed(format!("ended at once ({status})")));
            }
            if Instant::now() > deadline {
                return Err(daemon.failed("does not answer".into()));
            }
            if stop.wait(LOOK) {
                return Err(LabError::Stopped);
            }
        }
        Ok(daemon)
    }

    fn failed(&self, what: String) -> LabError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        LabError::Daemon { what, cause: if last.is_empty() { "its log is empty".into() } else { last } }
    }

    fn unexpected<T>(&self, what: &str) -> Result<T, LabError> {
        Err(LabError::Daemon {
            what: format!("was asked for {what}"),
            cause: "it answered something else".into(),
        })
    }

    /// Asks the device.
    ///
    /// # Errors
    /// It does not answer, or says why it cannot.
    pub fn device(&self, query: &Query) -> Result<Answer, LabError> {
        match ask(&self.run_dir.join("query.sock"), query)? {
            Answer::Error(cause) => Err(LabError::Daemon { what: "refuses a question".into(), cause }),
            answer => Ok(answer),
        }
    }

    /// Asks the controller.
    ///
    /// # Errors
    /// It does not answer, or says why it cannot.
    pub fn controller(&self, request: &ApiRequest) -> Result<ApiAnswer, LabError> {
        match ask(&self.run_dir.join("controller.sock"), request)? {
            ApiAnswer::Error(lines) => {
                Err(LabError::Daemon { what: "refuses a request".into(), cause: lines.join("\n") })
            }
            answer => Ok(answer),
        }
    }

    /// The device as a whole.
    ///
    /// # Errors
    /// As [`Daemon::device`]; so for all that follow.
    pub fn status(&self) -> Result<Status, LabError> {
        match self.device(&Query::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => self.unexpected("its status"),
        }
    }

    /// Its ports.
    ///
    /// # Errors
    /// As [`Daemon::device`].
    pub fn ports(&self) -> Result<Vec<PortReport>, LabError> {
        match self.device(&Query::Ports)? {
            Answer::Ports(ports) => Ok(ports),
            _ => self.unexpected("its ports"),
        }
    }

    /// What was dropped, by place and reason.
    ///
    /// # Errors
    /// As [`Daemon::device`].
    pub fn drops(&self) -> Result<Vec<DropReport>, LabError> {
        match self.device(&Query::Drops)? {
            Answer::Drops(drops) => Ok(drops),
            _ => self.unexpected("its drops"),
        }
    }

    /// The account of every observation point.
    ///
    /// # Errors
    /// As [`Daemon::device`].
    pub fn points(&self) -> Result<Vec<PointReport>, LabError> {
        match self.device(&Query::Points)? {
            Answer::Points(points) => Ok(points),
            _ => self.unexpected("its observation points"),
        }
    }

    /// The controller as a whole.
    ///
    /// # Errors
    /// As [`Daemon::controller`]; so for all that follow.
    pub fn control_status(&self) -> Result<ControlStatus, LabError> {
        match self.controller(&ApiRequest::Status)? {
            ApiAnswer::Status(status) => Ok(status),
            _ => self.unexpected("the controller's status"),
        }
    }

    /// All rules.
    ///
    /// # Errors
    /// As [`Daemon::controller`].
    pub fn rules(&self) -> Result<Vec<RuleReport>, LabError> {
        match self.controller(&ApiRequest::RuleList)? {
            ApiAnswer::Rules(rules) => Ok(rules),
            _ => self.unexpected("its rules"),
        }
    }

    /// One rule with its entries and history.
    ///
    /// # Errors
    /// As [`Daemon::controller`].
    pub fn rule(&self, id: &str) -> Result<RuleDetail, LabError> {
        match self.controller(&ApiRequest::RuleShow { id: id.into() })? {
            ApiAnswer::Rule(rule) => Ok(rule),
            _ => self.unexpected("a rule"),
        }
    }

    /// Sends probe packets until the device's own counters prove the rule, or none is left.
    ///
    /// # Errors
    /// As [`Daemon::controller`].
    pub fn prove(&self, id: &str) -> Result<ProofReport, LabError> {
        match self.controller(&ApiRequest::RuleProve { id: id.into() })? {
            ApiAnswer::Proof(proof) => Ok(proof),
            _ => self.unexpected("a proof"),
        }
    }

    /// Makes a configuration the desired state, and waits until it is in force and read back.
    ///
    /// # Errors
    /// As [`Daemon::controller`]; the change was refused.
    pub fn apply(&self, text: String, file: &str) -> Result<(), LabError> {
        let request = ApiRequest::Apply { text, file: file.into(), author: "lab".into(), dry_run: false };
        match self.controller(&request)? {
            ApiAnswer::Applied { verdict: Verdict::Confirmed, .. } => Ok(()),
            ApiAnswer::Applied { verdict, .. } => Err(LabError::Daemon {
                what: "did not apply a configuration".into(),
                cause: format!("{verdict:?}"),
            }),
            _ => self.unexpected("a change"),
        }
    }

    /// Where wanted and found differ.
    ///
    /// # Errors
    /// As [`Daemon::controller`].
    pub fn diff(&self) -> Result<Diff, LabError> {
        match self.controller(&ApiRequest::Diff)? {
            ApiAnswer::Diff(diff) => Ok(diff),
            _ => self.unexpected("differences"),
        }
    }

    /// Resets the device's tables and flows, and waits until it is back.
    ///
    /// # Errors
    /// As [`Daemon::controller`].
    pub fn reset(&self) -> Result<ResetReport, LabError> {
        match self.controller(&ApiRequest::Reset { scope: ResetScope::Warm })? {
            ApiAnswer::Reset(report) => Ok(report),
            _ => self.unexpected("a reset"),
        }
    }

    /// Waits until all that was asked for is done and read back, and every ENI is armed.
    ///
    /// # Errors
    /// Not within 10 s; the user asked to stop.
    pub fn wait_settled(&self, stop: &Stop) -> Result<(), LabError> {
        let deadline = Instant::now() + SETTLE;
        // A controller that starts does not answer yet.
        let settled =
            || self.control_status().is_ok_and(|s| s.settled && s.revision.is_some() && s.pending.is_none());
        let armed = || self.status().is_ok_and(|s| !s.enis.is_empty() && s.enis.iter().all(|e| e.armed));
        while !(settled() && armed()) {
            if Instant::now() > deadline {
                return Err(self.failed(format!("did not settle within {} s", SETTLE.as_secs())));
            }
            if stop.wait(LOOK) {
                return Err(LabError::Stopped);
            }
        }
        Ok(())
    }

    /// The controller's process, if one runs and has said so.
    pub fn controller_pid(&self) -> Option<i32> {
        let text = fs::read_to_string(self.run_dir.join("controller.lock")).ok()?;
        text.lines().next()?.parse().ok()
    }

    /// Kills the controller with SIGKILL, and gives the process that it was.
    ///
    /// # Errors
    /// None runs.
    pub fn kill_controller(&self) -> Result<i32, LabError> {
        let failed = |cause: String| LabError::Daemon { what: "has no controller to kill".into(), cause };
        let number =
            self.controller_pid().ok_or_else(|| failed("controller.lock names no process".into()))?;
        let pid = Pid::from_raw(number).ok_or_else(|| failed(format!("process {number}")))?;
        kill_process(pid, Signal::KILL).map_err(|e| failed(e.to_string()))?;
        Ok(number)
    }

    /// Ends it in an orderly way.
    ///
    /// # Errors
    /// It did not end, or not well; the error has the end of its log.
    pub fn stop(mut self) -> Result<(), LabError> {
        match self.end() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failed(format!("ended badly ({status})"))),
            None => Err(self.failed(format!("did not end within {} s", END.as_secs()))),
        }
    }

    fn end(&mut self) -> Option<std::process::ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        // It is our child and was not waited for, so the number is still its own.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}
