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
use crate::error::{ConfigErrorKind as Kind, Fault, nearest};
use crate::report::Report;
use crate::span::Span;
use crate::tree::Node;

/// Adds every contradiction of `desired`, which was read from `root`, to the report.
pub(crate) fn check(report: &mut Report, root: &Node, desired: &Desired) {
    let mut c = Check { report, root, desired };
    let ports = c.names("port", "name", desired.ports.iter().map(|p| (p.name.as_str(), p.span)));
    let vnets = c.names("vnet", "name", desired.vnets.iter().map(|v| (v.name.as_str(), v.span)));
    let enis = c.names("eni", "name", desired.enis.iter().map(|e| (e.name.as_str(), e.span)));
    let groups = c.names(
        "acl_group",
        "acl_group_id",
        desired.acl_groups.iter().map(|g| (g.acl_group_id.as_str(), g.span)),
    );
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

/// The objects of one kind by name.
struct Names<'d> {
    kind: &'static str,
    key: &'static str,
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
        self.error(path, Fault::new(Kind::Contradiction, what).expected(expected));
    }

    fn duplicate(&mut self, path: String, what: String, expected: &str) {
        self.error(path, Fault::new(Kind::Duplicate, what).expected(expected));
    }

    fn warning(&mut self, path: String, what: String) {
        self.report.warning(self.root.locate(&path), path, what);
    }

    /// True when the value at the path was read, or is absent by right.
    fn is_read(&self, path: impl FnOnce() -> String) -> bool {
        !self.report.has_failed(path)
    }

    /// Collects names that must be unique among the objects of a kind.
    fn names(
        &mut self,
        kind: &'static str,
        key: &'static str,
        objects: impl Iterator<Item = (&'d str, Span)>,
    ) -> Names<'d> {
        let mut names = Names { kind, key, index: HashMap::new(), complete: self.is_read(|| kind.into()) };
        let mut spans = Vec::new();
        for (i, (name, span)) in objects.enumerate() {
            spans.push(span);
            let path = || format!("{kind}[{i}].{key}");
            if !self.is_read(path) {
                names.complete = false;
            } else if let Some(first) = names.index.insert(name, i) {
                names.index.insert(name, first);
                let what = format!(
                    "second [[{kind}]] with {key} {name:?}, the first is at line {}",
                    spans[first].line
                );
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
            let fault = Fault::new(Kind::UnknownReference, format!("unknown {} {name:?}", names.kind))
                .expected(format!("the {} of an [[{}]]", names.key, names.kind))
                .nearest(close);
            self.error(path(), fault);
        }
        found
    }
}
