//! What no single value can show: names that must exist or be unique, and statements that cannot both hold. Each error is of the later
//! place in the file and names the earlier.
//!
//! A value that did not read has its error already; nothing is concluded from its placeholder.

mod acl;
mod eni;
mod route;

use std::collections::HashMap;
use std::hash::Hash;

use crate::desired::Desired;
use crate::error::{ConfigErrorKind, Fault, nearest};
use crate::report::Report;
use crate::span::Span;
use crate::tree::Node;

/// Adds every contradiction of `desired`, which was read from `root`, to the report.
pub(crate) fn check(report: &mut Report, root: &Node, desired: &Desired) {
    let mut c = Check { report, root, desired };
    let ports = c.names(&PORT, desired.ports.iter().map(|p| (p.name.as_str(), p.span)));
    let vnets = c.names(&VNET, desired.vnets.iter().map(|v| (v.name.as_str(), v.span)));
    let enis = c.names(&ENI, desired.enis.iter().map(|e| (e.name.as_str(), e.span)));
    let groups = c.names(&ACL_GROUP, desired.acl_groups.iter().map(|g| (g.acl_group_id.as_str(), g.span)));
    eni::ports(&mut c);
    eni::vnets(&mut c);
    eni::enis(&mut c, &ports, &vnets);
    acl::stages(&mut c, &groups);
    acl::groups(&mut c);
    route::routes(&mut c, &enis, &vnets);
    route::mappings(&mut c, &enis, &vnets);
}

struct Check<'c, 'r, 'd> {
    report: &'c mut Report<'r>,
    root: &'c Node,
    desired: &'d Desired,
}

/// A kind of object that others refer to.
struct Kind {
    /// The word for it.
    noun: &'static str,
    /// Its table's key at the top level.
    table: &'static str,
    /// The key that others refer to.
    key: &'static str,
    /// What a reference to it should be.
    expected: &'static str,
}

const PORT: Kind = Kind { noun: "port", table: "port", key: "name", expected: "the name of a [[port]]" };
const VNET: Kind = Kind { noun: "VNET", table: "vnet", key: "name", expected: "the name of a [[vnet]]" };
const ENI: Kind = Kind { noun: "ENI", table: "eni", key: "name", expected: "the name of an [[eni]]" };
const ACL_GROUP: Kind = Kind {
    noun: "ACL group",
    table: "acl_group",
    key: "acl_group_id",
    expected: "the acl_group_id of an [[acl_group]]",
};

/// The objects of one kind by name.
struct Names<'d> {
    kind: &'static Kind,
    index: HashMap<&'d str, usize>,
    /// False when a name did not read, so that an unknown one may be it.
    complete: bool,
}

/// The first owner of each value that must be unique.
struct Unique<K>(HashMap<K, usize>);

impl<K: Eq + Hash> Unique<K> {
    fn new() -> Unique<K> {
        Unique(HashMap::new())
    }

    /// Gives the value to the `index`th object, or says which one has it.
    fn claim(&mut self, value: K, index: usize) -> Option<usize> {
        let owner = *self.0.entry(value).or_insert(index);
        (owner != index).then_some(owner)
    }
}

impl<'d> Check<'_, '_, 'd> {
    fn error(&mut self, path: String, fault: Fault) {
        self.report.error(self.root.locate(&path), path, fault);
    }

    fn contradiction(&mut self, path: String, what: String, expected: &str) {
        self.error(path, Fault::new(ConfigErrorKind::Contradiction, what).expected(expected));
    }

    fn duplicate(&mut self, path: String, what: String, expected: &str) {
        self.error(path, Fault::new(ConfigErrorKind::Duplicate, what).expected(expected));
    }

    fn warning(&mut self, path: String, what: String) {
        self.report.warning(self.root.locate(&path), path, what);
    }

    /// True when the value at the path was read, or is absent by right.
    fn is_read(&self, path: impl FnOnce() -> String) -> bool {
        !self.report.has_failed(path)
    }

    /// Collects names that must be unique among the objects of a kind.
    fn names(&mut self, kind: &'static Kind, objects: impl Iterator<Item = (&'d str, Span)>) -> Names<'d> {
        let Kind { noun, table, key, .. } = kind;
        let mut names = Names { kind, index: HashMap::new(), complete: self.is_read(|| table.to_string()) };
        let mut spans = Vec::new();
        for (i, (name, span)) in objects.enumerate() {
            spans.push(span);
            let path = || format!("{table}[{i}].{key}");
            if !self.is_read(path) {
                names.complete = false;
            } else if let Some(first) = names.index.insert(name, i) {
                names.index.insert(name, first);
                let what = format!("second {noun} {name:?}, the first is at line {}", spans[first].line);
                self.duplicate(path(), what, &format!("a unique {key}"));
            }
        }
        names
    }

    /// The index of the object that the value at `path` names; that there is none is an error.
    fn resolve(&mut self, names: &Names, path: impl Fn() -> String, name: &str) -> Option<usize> {
        if !self.is_read(&path) {
            return None;
        }
        let found = names.index.get(name).copied();
        if found.is_none() && names.complete {
            let close =
                if self.report.wants_nearest() { nearest(name, names.index.keys().copied()) } else { None };
            let what = format!("unknown {} {name:?}", names.kind.noun);
            let fault = Fault::new(ConfigErrorKind::UnknownReference, what)
                .expected(names.kind.expected)
                .nearest(close);
            self.error(path(), fault);
        }
        found
    }
}
