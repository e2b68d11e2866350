//! Where in its source an object stands.

use std::fmt;

/// Line and column (both from 1, the column in characters) at which an object starts in its file; 0:0 when it came from no file.
///
/// Two spans are always equal, so that objects compare by what they say and not by where they say it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Span {
    /// Line, from 1; 0: no source.
    pub line: u32,
    /// Column in characters, from 1; 0: no source.
    pub column: u32,
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}

impl Eq for Span {}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
