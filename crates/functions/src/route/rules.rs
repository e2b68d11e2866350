//! The tables of routes and mappings.

use crate::prefix::{Row, Table};
use crate::scope::{Miss, Scopes};
use packet::{DropReason, PuntReason};
use pipeline::judge::Step;

/// What a route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// The destination is in this VNET.
    ToVnet(u32),
    /// Nothing goes there.
    Drop,
    /// Not decidable with these tables.
    Punt,
}

/// One route of an ENI.
pub type Route = Row<RouteAction>;

/// The routes by ENI number.
pub type Routes = Scopes<Table<RouteAction>>;

/// What a mapping says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingAction {
    /// The destination is here.
    ToPort {
        /// The index of the port that it is behind.
        port: u16,
        /// Its MAC address.
        mac: [u8; 6],
    },
    /// Not decidable with these tables.
    Punt,
}

/// One mapping of a VNET.
pub type Mapping = Row<MappingAction>;

/// The mappings by VNET.
pub type Mappings = Scopes<Table<MappingAction>>;

impl Mappings {
    /// Port and MAC address of a VNET's address, or why there is no answer: drop or punt.
    #[inline]
    pub fn lookup(&self, vnet: u32, addr: u128) -> Result<(u16, [u8; 6]), Step> {
        target(self.find(vnet, addr))
    }
}

/// What was found, as port and MAC address, or as the step that ends the way.
#[inline]
pub(super) fn target(found: Result<&Mapping, Miss>) -> Result<(u16, [u8; 6]), Step> {
    match found {
        Ok(&Row { action: MappingAction::ToPort { port, mac }, .. }) => Ok((port, mac)),
        Ok(Row { action: MappingAction::Punt, .. }) => Err(Step::Punt(PuntReason::PuntEntry)),
        Err(miss) => Err(miss.step(DropReason::NoMapping)),
    }
}
