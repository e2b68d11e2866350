//! Why bytes are not the header that they were taken for.

use core::fmt;

/// Why a view could not be made, or a header not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than needed: to read, or room to write.
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The header's own length field is below the minimum or beyond the bytes there.
    HeaderLength {
        /// What the field says, in bytes.
        length: usize,
        /// Bytes there.
        have: usize,
    },
    /// The packet's length field is below its header or beyond the bytes there.
    PacketLength {
        /// What the field says, in bytes.
        length: usize,
        /// Bytes there.
        have: usize,
    },
    /// A field holds what its standard forbids.
    Field {
        /// The field, in the standard's words.
        name: &'static str,
        /// What it holds; the first 32 bits of an address.
        value: u32,
    },
    /// The chain of IPv6 extension headers is cut short, out of order, or too long.
    Extension {
        /// Where the bad header begins, in bytes from the IPv6 header.
        offset: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WireError::Truncated { need, have } => write!(f, "{need} bytes needed, {have} there"),
            WireError::HeaderLength { length, have } => {
                write!(f, "header length {length} does not fit the {have} bytes there")
            }
            WireError::PacketLength { length, have } => {
                write!(f, "packet length {length} does not fit the {have} bytes there")
            }
            WireError::Field { name, value } => write!(f, "{name} must not be {value:#x}"),
            WireError::Extension { offset } => write!(f, "bad IPv6 extension header at offset {offset}"),
        }
    }
}

impl core::error::Error for WireError {}
