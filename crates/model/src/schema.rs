//! The keys of configuration and profile files: one table, from which the reader refuses unknown keys, errors say what was expected,
//! and the reference in `docs/configuration.md` is made.

use std::fmt::{self, Write};

/// One kind of table in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// How its table is written, `[[eni]]`; empty for the top level.
    pub header: &'static str,
    /// What it is, in a sentence.
    pub meaning: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One key of an [`Object`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Its value when it is absent, in words; `None`: it must be there.
    pub default: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
}

/// What a key's value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One value, in words.
    One(&'static str),
    /// A list; each member in words.
    List(&'static str),
    /// One table.
    Table(&'static str),
    /// A list of tables, of that header.
    Tables(&'static str),
}

impl Kind {
    /// What one value, or one member of a list, is.
    pub fn item(&self) -> &'static str {
        match self {
            Kind::One(words) | Kind::List(words) => words,
            Kind::Table(_) | Kind::Tables(_) => "a table",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::One(words) => f.write_str(words),
            Kind::List(words) => write!(f, "a list, each {words}"),
            Kind::Table(header) => write!(f, "the table {header}"),
            Kind::Tables(header) => write!(f, "tables {header}"),
        }
    }
}

impl Object {
    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }
}

const fn must(name: &'static str, kind: Kind, meaning: &'static str) -> Key {
    Key { name, kind, default: None, meaning }
}

const fn may(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, default: Some(default), meaning }
}

const NAME: Kind = Kind::One("a name: 1 to 64 letters, digits or any of -_.:");
const SCHEMA: Key = must("schema", Kind::One("the integer 1"), "Version of the format.");
const RULE_PREFIXES: Kind = Kind::List("an IP address or prefix of the group's version");
const PORTS: Kind = Kind::List("a port, or a range like \"1000-2000\"");

pub(crate) const FILE: Object = Object {
    header: "",
    meaning: "The top level of a configuration.",
    keys: &[
        SCHEMA,
        may("device", Kind::Table("[device]"), "its defaults", "The device itself."),
        may("port", Kind::Tables("[[port]]"), "none", "Ports."),
        may("vnet", Kind::Tables("[[vnet]]"), "none", "Virtual networks."),
        may("eni", Kind::Tables("[[eni]]"), "none", "Elastic network interfaces."),
        may("acl_group", Kind::Tables("[[acl_group]]"), "none", "ACL groups."),
        may("route", Kind::Tables("[[route]]"), "none", "Routes."),
        may("vnet_mapping", Kind::Tables("[[vnet_mapping]]"), "none", "Further addresses of VNETs."),
    ],
};

pub(crate) const DEVICE: Object = Object {
    header: "[device]",
    meaning: "The device itself.",
    keys: &[
        may(
            "profile",
            Kind::One("\"unlimited\", \"tiny\" or the path of a profile file (with a / or ending in .toml)"),
            "\"unlimited\"",
            "What the device can hold. A path is relative to the configuration.",
        ),
        may("workers", Kind::One("an integer from 1 to 64"), "1", "Worker threads."),
        may(
            "miss_policy",
            Kind::One("\"fallback\" or \"drop\""),
            "\"fallback\"",
            "What becomes of a packet that the device cannot decide: the host path with the same policy, or dropped as `miss_policy_drop`.",
        ),
        may(
            "reset_policy",
            Kind::One("\"host\" or \"deny\""),
            "\"host\"",
            "What becomes of an ENI's packets after a reset until it is armed: the host path with the full policy, or dropped as `not_armed`.",
        ),
    ],
};

pub(crate) const PORT: Object = Object {
    header: "[[port]]",
    meaning: "A port: where frames enter and leave. It carries one ENI.",
    keys: &[
        must("name", NAME, "Unique name."),
        must(
            "kind",
            Kind::One("\"tap\", \"af_packet\" or \"memory\""),
            "A TAP interface that the device creates, a packet socket on an interface that exists, or queues in memory (tests and benchmarks).",
        ),
        may(
            "interface",
            Kind::One("an interface name: 1 to 15 bytes without space, / or :"),
            "the port's name",
            "The network interface; one port per interface.",
        ),
        may(
            "mtu",
            Kind::One("an integer from 68 to 65535"),
            "1500",
            "Largest IP packet in bytes (RFC 791); at least 1280 when the ENI behind it has an IPv6 address (RFC 8200 (5)).",
        ),
    ],
};

pub(crate) const VNET: Object = Object {
    header: "[[vnet]]",
    meaning: "A virtual network with an address space of its own: two VNETs may use the same addresses.",
    keys: &[
        must("name", NAME, "Unique name."),
        must(
            "vni",
            Kind::One("an integer from 0 to 16777215"),
            "VXLAN network identifier (RFC 7348 (5)), unique.",
        ),
    ],
};

pub(crate) const ENI: Object = Object {
    header: "[[eni]]",
    meaning: "An elastic network interface: the network card of one virtual machine or host.",
    keys: &[
        must("name", NAME, "Unique name."),
        must("port", Kind::One("the name of a [[port]]"), "The port that it lives behind; one ENI per port."),
        must("vnet", Kind::One("the name of a [[vnet]]"), "The VNET that it belongs to."),
        must(
            "mac_address",
            Kind::One("a unicast MAC address like \"02:00:00:00:01:01\""),
            "Its address, unique in the VNET.",
        ),
        must(
            "addresses",
            Kind::List("a unicast IP address or prefix"),
            "Its addresses, at least one; none may overlap those of another ENI of the VNET.",
        ),
        may(
            "anti_spoof",
            Kind::One("true or false"),
            "true",
            "Drop frames from another MAC (`spoofed_mac`) or IP address (`spoofed_ip`, `spoofed_arp`) than its own.",
        ),
        may(
            "acl_out",
            Kind::Tables("[[eni.acl_out]]"),
            "none",
            "ACL stages for what the ENI sends, at most 5.",
        ),
        may(
            "acl_in",
            Kind::Tables("[[eni.acl_in]]"),
            "none",
            "ACL stages for what the ENI receives, at most 5.",
        ),
    ],
};

const STAGE_KEYS: &[Key] = &[
    must(
        "stage",
        Kind::One("an integer from 1 to 5"),
        "Stages run in ascending order; each number once per direction.",
    ),
    may(
        "v4_acl_group_id",
        Kind::One("the id of an [[acl_group]]"),
        "IPv4 packets skip the stage",
        "The group for IPv4 packets.",
    ),
    may(
        "v6_acl_group_id",
        Kind::One("the id of an [[acl_group]]"),
        "IPv6 packets skip the stage",
        "The group for IPv6 packets.",
    ),
];

pub(crate) const ACL_OUT: Object = Object {
    header: "[[eni.acl_out]]",
    meaning: "The ACL groups of one stage for what the ENI sends; at least one of them.",
    keys: STAGE_KEYS,
};

pub(crate) const ACL_IN: Object = Object {
    header: "[[eni.acl_in]]",
    meaning: "The ACL groups of one stage for what the ENI receives; at least one of them.",
    keys: STAGE_KEYS,
};

pub(crate) const ACL_GROUP: Object = Object {
    header: "[[acl_group]]",
    meaning: "Rules for one IP version. A packet that no rule of a group matches is denied there, and that answer is terminating.",
    keys: &[
        must("acl_group_id", NAME, "Unique id."),
        must("ip_version", Kind::One("\"ipv4\" or \"ipv6\""), "The version of the packets that it judges."),
        may("rule", Kind::Tables("[[acl_group.rule]]"), "none: all is denied", "Its rules."),
    ],
};

pub(crate) const RULE: Object = Object {
    header: "[[acl_group.rule]]",
    meaning: "A rule. A packet matches when each list is empty or has a member that matches.",
    keys: &[
        must("id", NAME, "Unique id in the group."),
        must(
            "priority",
            Kind::One("an integer from 0 to 4294967295"),
            "The lower number first; unique in the group.",
        ),
        must("action", Kind::One("\"allow\" or \"deny\""), "The answer."),
        may(
            "terminating",
            Kind::One("true or false"),
            "false",
            "Whether the answer ends the stages; else a later stage may override it.",
        ),
        may(
            "protocol",
            Kind::List("\"tcp\", \"udp\", \"icmp\", \"icmpv6\" or a number from 0 to 255"),
            "any",
            "IP protocols.",
        ),
        may("src_addr", RULE_PREFIXES, "any", "Source addresses."),
        may("dst_addr", RULE_PREFIXES, "any", "Destination addresses."),
        may("src_port", PORTS, "any", "Source ports; only with `protocol` \"tcp\", \"udp\" or both."),
        may("dst_port", PORTS, "any", "Destination ports; as `src_port`."),
        may(
            "offload",
            Kind::One("\"any\" or \"hardware-only\""),
            "\"any\"",
            "In the device if it fits there, else in the host path; or in the device alone: a rule that does not fit is refused.",
        ),
    ],
};

pub(crate) const ROUTE: Object = Object {
    header: "[[route]]",
    meaning: "A route of an ENI; the longest prefix wins. Without a route nothing leaves the ENI.",
    keys: &[
        must("eni", Kind::One("the name of an [[eni]]"), "The ENI whose packets it routes."),
        must("prefix", Kind::One("an IP address or prefix"), "Destinations; one route per prefix and ENI."),
        must(
            "action_type",
            Kind::One("\"vnet\" or \"drop\""),
            "Deliver within the VNET by its mappings, or drop as `route_drop`.",
        ),
        may(
            "vnet",
            Kind::One("the name of a [[vnet]]"),
            "none",
            "The VNET to deliver in; there exactly when the action is \"vnet\".",
        ),
    ],
};

pub(crate) const VNET_MAPPING: Object = Object {
    header: "[[vnet_mapping]]",
    meaning: "An address of a VNET beyond those of its ENIs, which are mapped by themselves; the longest prefix wins.",
    keys: &[
        must("vnet", Kind::One("the name of a [[vnet]]"), "The VNET."),
        must("ip_address", Kind::One("a unicast IP address or prefix"), "The address or prefix."),
        must("eni", Kind::One("the name of an [[eni]]"), "The ENI, of the same VNET, that it lives behind."),
    ],
};

pub(crate) const PROFILE: Object = Object {
    header: "",
    meaning: "The top level of a profile file.",
    keys: &[
        SCHEMA,
        must("name", NAME, "Its name."),
        may("description", Kind::One("a string"), "empty", "What it stands for."),
        may(
            "insert_rate",
            Kind::One("an integer from 0 to 4294967295"),
            "0",
            "Entries installed per second; 0: no limit.",
        ),
        may(
            "queue",
            Kind::One("an integer from 1 to 1048576"),
            "4096",
            "Commands that the device's queue holds.",
        ),
        may("tables", Kind::Table("[tables]"), "no limits", "Sizes of tables."),
    ],
};

const LIMIT: Kind = Kind::One("an integer from 0 to 4294967295");

pub(crate) const PROFILE_TABLES: Object = Object {
    header: "[tables]",
    meaning: "The largest number of entries by table.",
    keys: &[
        may("eni", LIMIT, "no limit", "ENIs."),
        may("source", LIMIT, "no limit", "Source addresses that anti-spoofing accepts."),
        may("acl", LIMIT, "no limit", "ACL entries; a rule can take several."),
        may("route", LIMIT, "no limit", "Routes."),
        may("mapping", LIMIT, "no limit", "Mappings of addresses to ENIs."),
        may("flow", LIMIT, "no limit", "Flows; a connection has two."),
    ],
};

/// Every table of a configuration and of a profile, in the order of the documentation.
pub fn describe() -> &'static [Object] {
    &[
        FILE,
        DEVICE,
        PORT,
        VNET,
        ENI,
        ACL_OUT,
        ACL_IN,
        ACL_GROUP,
        RULE,
        ROUTE,
        VNET_MAPPING,
        PROFILE,
        PROFILE_TABLES,
    ]
}

/// The reference of keys in Markdown, as it stands in `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = String::new();
    for object in describe() {
        let title = match object.header {
            "" => object.meaning.trim_end_matches('.').to_string(),
            header => format!("`{header}`"),
        };
        let _ = writeln!(text, "### {title}\n");
        if !object.header.is_empty() {
            let _ = writeln!(text, "{}\n", object.meaning);
        }
        text.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for key in object.keys {
            let default = key.default.unwrap_or("**required**");
            let _ = writeln!(text, "| `{}` | {} | {default} | {} |", key.name, key.kind, key.meaning);
        }
        text.push('\n');
    }
    text
}
