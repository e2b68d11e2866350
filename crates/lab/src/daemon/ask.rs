//! One question and one answer over a daemon's socket: a JSON object a line.

use crate::error::LabError;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks; the connection ends with the answer.
pub(super) fn ask<Q: Serialize, A: DeserializeOwned>(socket: &Path, question: &Q) -> Result<A, LabError> {
    let exchange = || -> io::Result<A> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    };
    exchange().map_err(|e| LabError::Daemon {
        what: format!("does not answer at {}", socket.display()),
        cause: e.to_string(),
    })
}
