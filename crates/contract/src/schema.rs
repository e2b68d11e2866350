//! What the tables of a program are called and how their entries are laid out: the vocabulary that
//! the compiler and the device share.

use crate::{ActionId, TableId};

/// How a key field may be matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchKind {
    /// One value.
    Exact,
    /// The longest prefix wins.
    Lpm,
    /// A prefix, or any; the priority decides.
    Prefix,
    /// A range, or any; the priority decides.
    Range,
    /// One value, or any; the priority decides.
    Optional,
}

/// One field of a table's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its width in bits.
    pub bits: u8,
    /// How it may be matched.
    pub kind: MatchKind,
}

/// One action of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionInfo {
    /// Its number.
    pub id: ActionId,
    /// Its name.
    pub name: &'static str,
    /// Its parameters' names, in order.
    pub params: &'static [&'static str],
}

/// One table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its number.
    pub id: TableId,
    /// Its name.
    pub name: &'static str,
    /// What its scopes are numbers of.
    pub scope: &'static str,
    /// Its key.
    pub key: &'static [Field],
    /// Its actions.
    pub actions: &'static [ActionInfo],
}

/// One program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its tables, in the order in which a packet meets them.
    pub tables: &'static [Table],
}

impl Program {
    /// The table with this number.
    pub fn table(&self, id: TableId) -> Option<&'static Table> {
        self.tables.iter().find(|t| t.id == id)
    }

    /// The table with this name.
    pub fn table_by_name(&self, name: &str) -> Option<&'static Table> {
        self.tables.iter().find(|t| t.name == name)
    }
}

impl Table {
    /// The action with this number.
    pub fn action(&self, id: ActionId) -> Option<&'static ActionInfo> {
        self.actions.iter().find(|a| a.id == id)
    }

    /// Whether the order of its entries follows from their prefix lengths.
    pub fn is_lpm(&self) -> bool {
        self.key.iter().any(|f| f.kind == MatchKind::Lpm)
    }
}

/// The action that every table has: not decidable in the device, to the host path.
pub const PUNT: ActionId = ActionId(0);

const PUNT_INFO: ActionInfo = ActionInfo { id: PUNT, name: "punt", params: &[] };

/// The program `vnet`: ENIs, anti-spoofing, ACL stages, routes and mappings of VNETs.
pub mod vnet {
    use super::*;

    /// ACL stages per direction.
    pub const STAGES: usize = 5;

    /// ENIs by port. Scope 0.
    pub const ENI: TableId = TableId(1);
    /// Source addresses that an ENI may use. Scope: ENI.
    pub const SOURCE: TableId = TableId(2);
    /// ACL rules. Scope: group.
    pub const ACL: TableId = TableId(3);
    /// Routes. Scope: ENI.
    pub const ROUTE: TableId = TableId(4);
    /// Where addresses of a VNET live. Scope: VNET.
    pub const MAPPING: TableId = TableId(5);

    /// [`ENI`]: this ENI lives on the port. Parameters: `eni, mac, vnet, flags`, then the groups of the outbound
    /// stages 1 to 5 for IPv4, outbound IPv6, inbound IPv4, inbound IPv6 (0: the stage is skipped).
    pub const SET_ENI: ActionId = ActionId(1);
    /// [`SOURCE`]: the address may be used.
    pub const PERMIT: ActionId = ActionId(1);
    /// [`ACL`]: allowed, unless a later stage says otherwise.
    pub const ALLOW: ActionId = ActionId(1);
    /// [`ACL`]: allowed, no later stage is asked.
    pub const ALLOW_TERMINATING: ActionId = ActionId(2);
    /// [`ACL`]: denied, unless a later stage says otherwise.
    pub const DENY: ActionId = ActionId(3);
    /// [`ACL`]: denied, no later stage is asked.
    pub const DENY_TERMINATING: ActionId = ActionId(4);
    /// [`ROUTE`]: to a VNET. Parameter: `vnet`.
    pub const TO_VNET: ActionId = ActionId(1);
    /// [`ROUTE`]: dropped.
    pub const BLACKHOLE: ActionId = ActionId(2);
    /// [`MAPPING`]: behind the ENI of this port. Parameters: `port, mac`.
    pub const TO_PORT: ActionId = ActionId(1);

    /// Flag of [`SET_ENI`]: sources are checked against [`SOURCE`] and the MAC address.
    pub const FLAG_ANTI_SPOOF: u128 = 1;

    /// The program.
    pub const PROGRAM: Program = Program {
        name: "vnet",
        tables: &[
            Table {
                id: ENI,
                name: "eni",
                scope: "device",
                key: &[Field { name: "port", bits: 16, kind: MatchKind::Exact }],
                actions: &[
                    PUNT_INFO,
                    ActionInfo {
                        id: SET_ENI,
                        name: "set_eni",
                        params: &[
                            "eni", "mac", "vnet", "flags", "out_v4_1", "out_v4_2", "out_v4_3", "out_v4_4",
                            "out_v4_5", "out_v6_1", "out_v6_2", "out_v6_3", "out_v6_4", "out_v6_5",
                            "in_v4_1", "in_v4_2", "in_v4_3", "in_v4_4", "in_v4_5", "in_v6_1", "in_v6_2",
                            "in_v6_3", "in_v6_4", "in_v6_5",
                        ],
                    },
                ],
            },
            Table {
                id: SOURCE,
                name: "source",
                scope: "eni",
                key: &[Field { name: "src", bits: 128, kind: MatchKind::Lpm }],
                actions: &[PUNT_INFO, ActionInfo { id: PERMIT, name: "permit", params: &[] }],
            },
            Table {
                id: ACL,
                name: "acl",
                scope: "group",
                key: &[
                    Field { name: "protocol", bits: 8, kind: MatchKind::Optional },
                    Field { name: "src", bits: 128, kind: MatchKind::Prefix },
                    Field { name: "dst", bits: 128, kind: MatchKind::Prefix },
                    Field { name: "src_port", bits: 16, kind: MatchKind::Range },
                    Field { name: "dst_port", bits: 16, kind: MatchKind::Range },
                ],
                actions: &[
                    PUNT_INFO,
                    ActionInfo { id: ALLOW, name: "allow", params: &[] },
                    ActionInfo { id: ALLOW_TERMINATING, name: "allow_terminating", params: &[] },
                    ActionInfo { id: DENY, name: "deny", params: &[] },
                    ActionInfo { id: DENY_TERMINATING, name: "deny_terminating", params: &[] },
                ],
            },
            Table {
                id: ROUTE,
                name: "route",
                scope: "eni",
                key: &[Field { name: "dst", bits: 128, kind: MatchKind::Lpm }],
                actions: &[
                    PUNT_INFO,
                    ActionInfo { id: TO_VNET, name: "to_vnet", params: &["vnet"] },
                    ActionInfo { id: BLACKHOLE, name: "drop", params: &[] },
                ],
            },
            Table {
                id: MAPPING,
                name: "mapping",
                scope: "vnet",
                key: &[Field { name: "dst", bits: 128, kind: MatchKind::Lpm }],
                actions: &[PUNT_INFO, ActionInfo { id: TO_PORT, name: "to_port", params: &["port", "mac"] }],
            },
        ],
    };
}
