//! The table of ENIs, and their permitted sources.

use crate::prefix::{Row, Table};
use crate::scope::{Miss, Scopes};
use packet::{DropReason, PuntReason};
use pipeline::judge::Step;
use std::collections::BTreeSet;

/// Numbers of the groups of stages 1 to 5, first for IPv4, then for IPv6; 0: the stage is skipped.
pub type StageGroups = [[u32; 5]; 2];

/// One ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eni {
    /// The entry's id.
    pub entry: u32,
    /// The index of the port that it lives on.
    pub port: u16,
    /// Its number.
    pub eni: u16,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its VNET.
    pub vnet: u32,
    /// Whether its sources are checked.
    pub anti_spoof: bool,
    /// The groups of the ACL for what it sends.
    pub acl_out: StageGroups,
    /// The groups of the ACL for what it receives.
    pub acl_in: StageGroups,
}

/// One entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// This ENI lives on its port.
    Eni(Eni),
    /// What lives on the port is not decidable with these tables.
    Punt {
        /// The entry's id.
        entry: u32,
        /// The port's index.
        port: u16,
    },
}

/// The ENIs whose policy is known to be in these tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Armed {
    /// All.
    All,
    /// These, by number.
    Only(BTreeSet<u16>),
}

/// The ENIs by port.
#[derive(Clone, Debug)]
pub struct Enis {
    by_port: Vec<Option<Entry>>,
    miss: Miss,
    /// Who is armed.
    pub armed: Armed,
    /// What packets from and to the others get.
    pub unarmed: Step,
}

impl Enis {
    /// Builds the table from its entries, with all of them armed. Of two for one port, the last counts.
    pub fn build(entries: impl IntoIterator<Item = Entry>, miss: Miss) -> Enis {
        let mut by_port = Vec::new();
        for entry in entries {
            let (Entry::Eni(Eni { port, .. }) | Entry::Punt { port, .. }) = entry;
            let port = usize::from(port);
            if by_port.len() <= port {
                by_port.resize(port + 1, None);
            }
            by_port[port] = Some(entry);
        }
        Enis { by_port, miss, armed: Armed::All, unarmed: Step::Drop(DropReason::NotArmed) }
    }

    /// The entry for a port, or how a miss is answered.
    #[inline]
    pub fn get(&self, port: u16) -> Result<&Entry, Miss> {
        self.by_port.get(usize::from(port)).and_then(Option::as_ref).ok_or(self.miss)
    }

    /// The ENI on a port, armed or not.
    #[inline]
    pub fn eni(&self, port: u16) -> Option<&Eni> {
        match self.get(port) {
            Ok(Entry::Eni(eni)) => Some(eni),
            _ => None,
        }
    }

    /// The ENIs in the order of their ports.
    pub fn iter(&self) -> impl Iterator<Item = &Eni> {
        self.by_port.iter().flatten().filter_map(|entry| match entry {
            Entry::Eni(eni) => Some(eni),
            Entry::Punt { .. } => None,
        })
    }

    /// Whether the ENI with this number is armed.
    #[inline]
    pub fn is_armed(&self, eni: u16) -> bool {
        match &self.armed {
            Armed::All => true,
            Armed::Only(armed) => armed.contains(&eni),
        }
    }
}

/// What a source entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceAction {
    /// The ENI may use these addresses.
    Permit,
    /// Not decidable with these tables.
    Punt,
}

/// One entry of an ENI's sources.
pub type Permit = Row<SourceAction>;

/// The permitted sources by ENI number.
pub type Sources = Scopes<Table<SourceAction>>;

impl Sources {
    /// Whether an ENI may use an address: [`Step::Continue`] if so.
    #[inline]
    pub fn permits(&self, eni: u16, addr: u128) -> Step {
        permitted(self.find(u32::from(eni), addr))
    }
}

/// What was found, as the step that follows.
#[inline]
pub(super) fn permitted(found: Result<&Permit, Miss>) -> Step {
    match found {
        Ok(Row { action: SourceAction::Permit, .. }) => Step::Continue,
        Ok(Row { action: SourceAction::Punt, .. }) => Step::Punt(PuntReason::PuntEntry),
        Err(miss) => miss.step(DropReason::SpoofedIp),
    }
}
