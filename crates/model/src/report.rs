//! Where the errors and warnings of one file are collected.

use std::collections::HashSet;

use crate::error::{ConfigError, ConfigErrorKind, ConfigWarning, Fault};
use crate::span::Span;
use crate::tree::SyntaxError;

/// Once a file has this many errors, no more nearest words are looked for: the search is quadratic.
const NEAREST_WORDS: usize = 100;

/// Turns byte offsets of one text into lines and columns.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Lines<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Lines { text, starts }
    }

    pub fn span(&self, at: usize) -> Span {
        let at = self.text.floor_char_boundary(at);
        let line = self.starts.partition_point(|start| *start <= at);
        let start = self.starts[line - 1];
        let column = self.text[start..at].chars().count() + 1;
        Span { line: line as u32, column: column as u32 }
    }
}

/// The errors and warnings of one file. A value that has one error gets no second one.
pub(crate) struct Report<'a> {
    file: &'a str,
    lines: Lines<'a>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigWarning>,
    failed: HashSet<String>,
}

impl<'a> Report<'a> {
    pub fn new(file: &'a str, text: &'a str) -> Report<'a> {
        let lines = Lines::new(text);
        Report { file, lines, errors: Vec::new(), warnings: Vec::new(), failed: HashSet::new() }
    }

    pub fn span(&self, at: usize) -> Span {
        self.lines.span(at)
    }

    /// Adds an error of the value at `path`, which starts at the byte `at`, unless the value has one.
    pub fn error(&mut self, at: usize, path: String, fault: Fault) {
        if self.failed.contains(&path) {
            return;
        }
        let Span { line, column } = self.span(at);
        self.failed.insert(path.clone());
        self.push(line, column, path, fault);
    }

    /// Adds what makes the text no TOML or no JSON.
    pub fn syntax(&mut self, errors: Vec<SyntaxError>) {
        for SyntaxError { at, message } in errors {
            let Span { line, column } = self.span(at);
            self.push(line, column, String::new(), Fault::new(ConfigErrorKind::Syntax, message));
        }
    }

    fn push(&mut self, line: u32, column: u32, path: String, fault: Fault) {
        let Fault { kind, what, expected, nearest } = fault;
        let file = self.file.to_string();
        self.errors.push(ConfigError { kind, file, line, column, path, what, expected, nearest });
    }

    /// Adds the errors of another file.
    pub fn extend(&mut self, errors: Vec<ConfigError>) {
        self.errors.extend(errors);
    }

    pub fn warning(&mut self, at: usize, path: String, what: String) {
        let Span { line, column } = self.span(at);
        self.warnings.push(ConfigWarning { file: self.file.to_string(), line, column, path, what });
    }

    /// Marks the value at `path` as one that did not read, without an error of its own.
    pub fn fail(&mut self, path: String) {
        self.failed.insert(path);
    }

    /// True when the value at `path` did not read, so that nothing can be said about it.
    pub fn has_failed(&self, path: impl FnOnce() -> String) -> bool {
        !self.failed.is_empty() && self.failed.contains(&path())
    }

    /// Whether nearest words are still looked for.
    pub fn wants_nearest(&self) -> bool {
        self.errors.len() < NEAREST_WORDS
    }

    /// `Ok` with the warnings, or all errors; each in the order of the file.
    pub fn finish(mut self) -> Result<Vec<ConfigWarning>, Vec<ConfigError>> {
        if self.errors.is_empty() {
            self.warnings.sort_by_key(|w| (w.line, w.column));
            return Ok(self.warnings);
        }
        let foreign = |e: &ConfigError| e.file != self.file;
        self.errors.sort_by_key(|e| (foreign(e), e.line, e.column));
        // The TOML parser repeats itself on unclosed brackets.
        self.errors.dedup();
        Err(self.errors)
    }
}
