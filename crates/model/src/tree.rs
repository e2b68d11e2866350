//! A file as a tree of values that know where they stand, from TOML or from JSON.

use std::collections::HashSet;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Levels of nesting that are read; the format itself needs five.
const DEPTH: usize = 16;

/// A value and the byte offset at which it starts.
pub(crate) struct Node {
    pub at: usize,
    pub value: Value,
}

pub(crate) enum Value {
    String(String),
    Integer(i128),
    Bool(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
    /// A value that no key takes, by the name of its type.
    Other(&'static str),
}

/// One key of a table with its value.
pub(crate) struct Entry {
    pub key: String,
    pub key_at: usize,
    pub value: Node,
}

/// A text that is not TOML or not JSON: where, and why.
pub(crate) struct SyntaxError {
    pub at: usize,
    pub message: String,
}

impl Value {
    /// The type's name with its article.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Bool(_) => "a boolean",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(name) => name,
        }
    }
}

impl Node {
    /// The value of `key`, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }

    /// The offset of the value at a path like `eni[2].mac_address`, or of the deepest part of the path that is there.
    pub fn locate(&self, path: &str) -> usize {
        let mut node = self;
        for step in path.split(['.', '[']) {
            let next = match (step.strip_suffix(']'), &node.value) {
                (Some(index), Value::Array(items)) => index.parse().ok().and_then(|i: usize| items.get(i)),
                _ => node.get(step),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.at
    }
}

/// Reads TOML, or JSON when the text starts with a brace.
///
/// # Errors
/// All syntax errors of TOML, the first one of JSON.
pub(crate) fn parse(text: &str) -> Result<Node, Vec<SyntaxError>> {
    if text.trim_start().starts_with('{') { parse_json(text).map_err(|e| vec![e]) } else { parse_toml(text) }
}

fn parse_toml(text: &str) -> Result<Node, Vec<SyntaxError>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return table(0, root.into_inner(), DEPTH).map_err(|e| vec![e]);
    }
    let place = |e: &toml::de::Error| e.span().map_or(0, |s| s.start);
    Err(errors
        .iter()
        .map(|e| SyntaxError { at: place(e), message: e.message().trim().replace('\n', ", ") })
        .collect())
}

fn deeper(at: usize, depth: usize) -> Result<usize, SyntaxError> {
    depth
        .checked_sub(1)
        .ok_or_else(|| SyntaxError { at, message: format!("nested more than {DEPTH} levels deep") })
}

fn table(at: usize, table: DeTable<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let depth = deeper(at, depth)?;
    let entries = table.into_iter().map(|(key, value)| {
        Ok(Entry {
            key_at: key.span().start,
            key: key.into_inner().into_owned(),
            value: toml_value(value, depth)?,
        })
    });
    Ok(Node { at, value: Value::Table(entries.collect::<Result<_, _>>()?) })
}

fn toml_value(value: Spanned<DeValue<'_>>, depth: usize) -> Result<Node, SyntaxError> {
    let at = value.span().start;
    let value = match value.into_inner() {
        DeValue::String(s) => Value::String(s.into_owned()),
        DeValue::Integer(i) => i128::from_str_radix(i.as_str(), i.radix())
            .map_or(Value::Other("an integer out of range"), Value::Integer),
        DeValue::Boolean(b) => Value::Bool(b),
        DeValue::Float(_) => Value::Other("a float"),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(items) => {
            let depth = deeper(at, depth)?;
            Value::Array(items.into_iter().map(|item| toml_value(item, depth)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(inner) => return table(at, inner, depth),
    };
    Ok(Node { at, value })
}

/// JSON, RFC 8259. Values are kept as slices of the text first: these know where they stand.
fn parse_json(text: &str) -> Result<Node, SyntaxError> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|e| json_error(text, 0, &e))?;
    json_value(text, raw, DEPTH)
}

fn json_value(text: &str, raw: &RawValue, depth: usize) -> Result<Node, SyntaxError> {
    let slice = raw.get();
    let at = offset(text, raw);
    let error = |e: serde_json::Error| json_error(text, at, &e);
    let value = match slice.as_bytes().first() {
        Some(b'{') => {
            let depth = deeper(at, depth)?;
            let Members(members) = serde_json::from_str(slice).map_err(error)?;
            let mut entries = Vec::with_capacity(members.len());
            let mut seen = HashSet::new();
            for (raw_key, raw_value) in members {
                let key: String = serde_json::from_str(raw_key.get()).map_err(error)?;
                let key_at = offset(text, raw_key);
                if !seen.insert(key.clone()) {
                    return Err(SyntaxError { at: key_at, message: format!("duplicate key {key:?}") });
                }
                if raw_value.get() != "null" {
                    entries.push(Entry { key, key_at, value: json_value(text, raw_value, depth)? });
                }
            }
            Value::Table(entries)
        }
        Some(b'[') => {
            let depth = deeper(at, depth)?;
            let items: Vec<&RawValue> = serde_json::from_str(slice).map_err(error)?;
            Value::Array(
                items.into_iter().map(|item| json_value(text, item, depth)).collect::<Result<_, _>>()?,
            )
        }
        Some(b'"') => Value::String(serde_json::from_str(slice).map_err(error)?),
        Some(b't') => Value::Bool(true),
        Some(b'f') => Value::Bool(false),
        Some(b'n') => Value::Other("null"),
        _ => slice.parse().map_or(Value::Other("a float, or an integer out of range"), Value::Integer),
    };
    Ok(Node { at, value })
}

/// Where a slice of `text` starts in it.
fn offset(text: &str, raw: &RawValue) -> usize {
    (raw.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

fn json_error(text: &str, base: usize, error: &serde_json::Error) -> SyntaxError {
    let within = &text[base..];
    let line = within.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let at = within.floor_char_boundary(line + error.column().saturating_sub(1));
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_string();
    SyntaxError { at: base + at, message }
}

struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Collect).map(Members)
    }
}
