//! The desired state: DASH's objects under DASH's names, as plain data.
//!
//! The serde form has the keys of the file, `[[port]]` for [`Desired::ports`] and so on, with every key present; a file, in
//! which keys may be absent, is read by [`Config::parse`](crate::Config::parse).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{IpPrefix, IpVersion, MacAddr, PortRange, Protocol, Span};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),*
        }

        impl $name {
            /// Every value with its word, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, $name)] = &[$(($word, $name::$variant)),*];

            /// The word for it in files and outputs.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What carries a port's frames.
    PortKind {
        /// A TAP interface that the device creates.
        Tap = "tap",
        /// A packet socket on an interface that exists.
        AfPacket = "af_packet",
        /// Queues in the device's own memory, for tests and benchmarks.
        Memory = "memory",
    }
}

words! {
    /// What becomes of a packet that the device cannot decide.
    MissPolicy {
        /// It goes to the host path, which has the full policy.
        Fallback = "fallback",
        /// It is dropped as `miss_policy_drop`.
        Drop = "drop",
    }
}

words! {
    /// What becomes of an ENI's packets after a reset, until the ENI is armed again.
    ResetPolicy {
        /// They go to the host path, which has the full policy.
        Host = "host",
        /// They are dropped as `not_armed`.
        Deny = "deny",
    }
}

words! {
    /// The answer of an ACL rule.
    AclAction {
        /// Pass.
        Allow = "allow",
        /// Drop.
        Deny = "deny",
    }
}

words! {
    /// Where a rule may be carried out.
    Offload {
        /// In the device if it fits there, else in the host path.
        Any = "any",
        /// In the device, or the rule is refused.
        HardwareOnly = "hardware-only",
    }
}

words! {
    /// What a route does with its packets. DASH: `action_type`.
    RouteAction {
        /// Deliver within the VNET that the route names, by its mappings.
        Vnet = "vnet",
        /// Drop as `route_drop`.
        Drop = "drop",
    }
}

/// The whole desired state of one device, as a file states it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Desired {
    /// Version of the configuration format: 1.
    pub schema: u32,
    /// The device itself.
    pub device: Device,
    /// Ports, in the order of the file.
    #[serde(rename = "port")]
    pub ports: Vec<Port>,
    /// Virtual networks.
    #[serde(rename = "vnet")]
    pub vnets: Vec<Vnet>,
    /// Elastic network interfaces.
    #[serde(rename = "eni")]
    pub enis: Vec<Eni>,
    /// ACL groups with their rules.
    #[serde(rename = "acl_group")]
    pub acl_groups: Vec<AclGroup>,
    /// Routes.
    #[serde(rename = "route")]
    pub routes: Vec<Route>,
    /// Addresses of VNETs beyond those of their ENIs.
    #[serde(rename = "vnet_mapping")]
    pub vnet_mappings: Vec<VnetMapping>,
}

impl Default for Desired {
    fn default() -> Desired {
        Desired {
            schema: Desired::SCHEMA,
            device: Device::default(),
            ports: Vec::new(),
            vnets: Vec::new(),
            enis: Vec::new(),
            acl_groups: Vec::new(),
            routes: Vec::new(),
            vnet_mappings: Vec::new(),
        }
    }
}

impl Desired {
    /// The version of the configuration format that this crate reads.
    pub const SCHEMA: u32 = 1;

    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|p| p.name == name)
    }

    /// The VNET of that name.
    pub fn vnet(&self, name: &str) -> Option<&Vnet> {
        self.vnets.iter().find(|v| v.name == name)
    }

    /// The ENI of that name.
    pub fn eni(&self, name: &str) -> Option<&Eni> {
        self.enis.iter().find(|e| e.name == name)
    }

    /// The ACL group of that id.
    pub fn acl_group(&self, id: &str) -> Option<&AclGroup> {
        self.acl_groups.iter().find(|g| g.acl_group_id == id)
    }
}

/// The device: `[device]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// A built-in profile's name, or the path of a profile file relative to the configuration.
    pub profile: String,
    /// Worker threads, 1..=64.
    pub workers: u16,
    /// What becomes of packets that the device cannot decide.
    pub miss_policy: MissPolicy,
    /// What becomes of packets between a reset and `armed`.
    pub reset_policy: ResetPolicy,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            profile: "unlimited".into(),
            workers: 1,
            miss_policy: MissPolicy::Fallback,
            reset_policy: ResetPolicy::Host,
            span: Span::default(),
        }
    }
}

/// A port: `[[port]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Port {
    /// Unique name.
    pub name: String,
    /// What carries its frames.
    pub kind: PortKind,
    /// Name of the network interface, at most 15 bytes.
    pub interface: String,
    /// Largest IP packet in bytes, 68..=65535.
    pub mtu: u32,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// A virtual network with an address space of its own: `[[vnet]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vnet {
    /// Unique name.
    pub name: String,
    /// VXLAN network identifier, 24 bits (RFC 7348 (5)), unique.
    pub vni: u32,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// An elastic network interface, the network card of one virtual machine: `[[eni]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Eni {
    /// Unique name.
    pub name: String,
    /// The port it lives behind; a port has one ENI.
    pub port: String,
    /// The VNET it belongs to.
    pub vnet: String,
    /// Its unicast address, unique in the VNET.
    pub mac_address: MacAddr,
    /// Its addresses and prefixes, unique in the VNET.
    pub addresses: Vec<IpPrefix>,
    /// Whether frames with other source addresses than its own are dropped.
    pub anti_spoof: bool,
    /// ACL stages for what the ENI sends, 1..=5, in the order of the file.
    pub acl_out: Vec<AclStage>,
    /// ACL stages for what the ENI receives, 1..=5, in the order of the file.
    pub acl_in: Vec<AclStage>,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// The ACL groups of one stage in one direction: `[[eni.acl_out]]`, `[[eni.acl_in]]`. A version without a group skips the stage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AclStage {
    /// 1..=5; stages run in ascending order.
    pub stage: u8,
    /// The group for IPv4 packets.
    pub v4_acl_group_id: Option<String>,
    /// The group for IPv6 packets.
    pub v6_acl_group_id: Option<String>,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// An ACL group: `[[acl_group]]`. A packet that no rule matches is denied, and that answer is terminating.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AclGroup {
    /// Unique id.
    pub acl_group_id: String,
    /// The version of the packets that it judges.
    pub ip_version: IpVersion,
    /// Rules, in the order of the file; what counts is their priority.
    #[serde(rename = "rule")]
    pub rules: Vec<AclRule>,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// An ACL rule: `[[acl_group.rule]]`. A packet matches when each list is empty or has a member that matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AclRule {
    /// Unique id in its group.
    pub id: String,
    /// The lower number first; unique in its group.
    pub priority: u32,
    /// The answer.
    pub action: AclAction,
    /// Whether the answer ends the stages; else a later stage may override it.
    pub terminating: bool,
    /// IP protocols; empty: any.
    pub protocol: Vec<Protocol>,
    /// Source prefixes; empty: any.
    pub src_addr: Vec<IpPrefix>,
    /// Destination prefixes; empty: any.
    pub dst_addr: Vec<IpPrefix>,
    /// Source ports; empty: any. Not empty only when every protocol of the rule has ports.
    pub src_port: Vec<PortRange>,
    /// Destination ports; as `src_port`.
    pub dst_port: Vec<PortRange>,
    /// Where it may be carried out.
    pub offload: Offload,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// A route of an ENI, the longest prefix first: `[[route]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The ENI whose packets it routes.
    pub eni: String,
    /// Destinations; one route per prefix and ENI.
    pub prefix: IpPrefix,
    /// What it does.
    pub action_type: RouteAction,
    /// The VNET to deliver in; set exactly when the action is `vnet`.
    pub vnet: Option<String>,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}

/// An address of a VNET beyond those of its ENIs, which are mapped by themselves: `[[vnet_mapping]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VnetMapping {
    /// The VNET.
    pub vnet: String,
    /// The address or prefix; the longest prefix wins.
    pub ip_address: IpPrefix,
    /// The ENI, of the same VNET, that it lives behind.
    pub eni: String,
    /// Where it stands in its file.
    #[serde(skip)]
    pub span: Span,
}
