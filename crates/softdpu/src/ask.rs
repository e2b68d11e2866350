//! Asking a daemon: one JSON object a line, over its sockets.

use crate::failure::{Failure, Result};
use contract::report::{Answer, Query};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the device may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the controller may, which waits for the device and for what was asked to be in force.
const CONTROLLER_PATIENCE: Duration = Duration::from_secs(120);

/// Sends one question and reads its answer.
fn ask<Q: Serialize, A: DeserializeOwned>(
    socket: &Path,
    who: &str,
    question: &Q,
    patience: Duration,
) -> Result<A> {
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::new(format!(
            "no {who} answers at {}: is it running? Start it with: softdpu run -c FILE, or name its place with --run-dir or --lab",
            socket.display()
        )),
        ErrorKind::PermissionDenied => Failure::new(format!(
            "{}: permission denied; ask as the user who runs the {who}",
            socket.display()
        )),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Failure::new(format!("the {who} runs, but does not answer within {} s", patience.as_secs()))
        }
        _ => Failure::new(format!("{}: {e}", socket.display())),
    };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    let mut line = serde_json::to_vec(question).map_err(Failure::new)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    if answer.is_empty() {
        return Err(Failure::new(format!(
            "the {who} ended before it answered: whether it did what was asked is not known; ask again, `softdpu diff` and `softdpu rule list` tell"
        )));
    }
    serde_json::from_str(&answer)
        .map_err(|e| Failure::new(format!("the {who}'s answer is not understood: {e}")))
}

/// Asks the device, which answers while the controller is dead.
pub fn device(run_dir: &Path, query: &Query) -> Result<Answer> {
    match ask(&run_dir.join("query.sock"), "device", query, PATIENCE)? {
        Answer::Error(text) => Err(Failure::new(text)),
        answer => Ok(answer),
    }
}

/// Asks the controller.
pub fn controller<Q: Serialize, A: DeserializeOwned>(run_dir: &Path, question: &Q) -> Result<A> {
    ask(&run_dir.join("controller.sock"), "controller", question, CONTROLLER_PATIENCE)
}
