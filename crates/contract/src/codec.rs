//! Records on the control socket: a length of 4 bytes, little-endian, then a [`Request`] or a [`Response`] in postcard's
//! encoding. Sans-IO: bytes in, records out.

use crate::{Capabilities, Command, CommandId, Completion, Session};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The longest record that is accepted, in bytes after the length.
pub const MAX_RECORD: usize = 8 << 20;

/// What travels from the controller to the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Carried back by the completion; rises with each command of a session.
    pub id: CommandId,
    /// The session that sends it.
    pub session: Session,
    /// The command.
    pub command: Command,
}

/// What travels from the device to the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Sent once, first.
    Capabilities(Capabilities),
    /// The answer to a request.
    Completion(Completion),
}

/// Why bytes are not records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The peer announced a record longer than [`MAX_RECORD`].
    #[error("a record of {0} bytes was announced; at most {MAX_RECORD} are accepted")]
    TooLong(usize),
    /// The bytes of a record do not decode.
    #[error("a record does not decode: {0}")]
    Malformed(String),
}

/// Appends one record to `out`.
pub fn encode<T: Serialize>(record: &T, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let taken = std::mem::take(out);
    *out = postcard::to_extend(record, taken).expect("writing to a Vec cannot fail");
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Cuts a stream of bytes into records.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > (1 << 16) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole record, if there is one.
    ///
    /// # Errors
    /// [`CodecError`] if the stream is broken; it cannot be read any further then.
    pub fn pop<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CodecError> {
        let rest = &self.buffer[self.start..];
        let Some((len, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > MAX_RECORD {
            return Err(CodecError::TooLong(len));
        }
        let Some(record) = rest.get(..len) else {
            return Ok(None);
        };
        let (record, left) =
            postcard::take_from_bytes::<T>(record).map_err(|e| CodecError::Malformed(e.to_string()))?;
        if !left.is_empty() {
            return Err(CodecError::Malformed(format!("{} bytes too many", left.len())));
        }
        self.start += 4 + len;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, ActionId, Entry, EntryId, FieldMatch, Op, RuleRef, TableId, Target};
    use proptest::prelude::*;

    fn request(id: u64) -> Request {
        Request {
            id: CommandId(id),
            session: Session(7),
            command: Command::Stage(Op::Insert {
                target: Target::Device,
                entry: Entry {
                    id: EntryId(id as u32),
                    rule: RuleRef { rule: 3, revision: 1 },
                    table: TableId(3),
                    scope: 9,
                    priority: 10,
                    matches: vec![
                        FieldMatch::Any,
                        FieldMatch::Prefix { value: 0xffff_0a00_0000, len: 104 },
                        FieldMatch::Range { low: 1, high: 65535 },
                    ],
                    action: Action { id: ActionId(1), params: vec![u128::MAX] },
                },
            }),
        }
    }

    #[test]
    fn records_survive_any_cut() {
        let mut bytes = Vec::new();
        (1..5).for_each(|id| encode(&request(id), &mut bytes));
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(r) = decoder.pop::<Request>().unwrap() {
                    seen.push(r);
                }
            }
            assert_eq!(seen, (1..5).map(request).collect::<Vec<_>>(), "cut at {cut}");
        }
    }

    #[test]
    fn a_length_over_the_bound_is_refused_before_it_is_stored() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.pop::<Request>(), Err(CodecError::TooLong(u32::MAX as usize)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
            framed.extend(&bytes);
            decoder.push(&framed);
            let _ = decoder.pop::<Request>();
            let _ = decoder.pop::<Response>();
        }
    }
}
