//! From the tree of a file to [`Desired`]. What did not read stands in as a placeholder, whose path the report has as failed.

use std::net::{IpAddr, Ipv4Addr};

use crate::desired::*;
use crate::net::{IpPrefix, IpVersion, MacAddr};
use crate::reader::{self, Reader};
use crate::report::Report;
use crate::schema;
use crate::tree::Node;

fn no_prefix() -> IpPrefix {
    IpPrefix::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

pub(crate) fn desired(report: &mut Report, root: &Node) -> Desired {
    let r = Reader::new(report, &schema::FILE, root, "");
    schema_version(report, &r);
    Desired {
        schema: Desired::SCHEMA,
        device: r.table("device").map_or_else(Device::default, |(node, path)| device(report, node, &path)),
        ports: r.tables(report, "port", port),
        vnets: r.tables(report, "vnet", vnet),
        enis: r.tables(report, "eni", eni),
        acl_groups: r.tables(report, "acl_group", acl_group),
        routes: r.tables(report, "route", route),
        vnet_mappings: r.tables(report, "vnet_mapping", vnet_mapping),
    }
}

/// Every file states the version of its format.
pub(crate) fn schema_version(report: &mut Report, r: &Reader) {
    r.required(report, "schema", reader::integer(Desired::SCHEMA, Desired::SCHEMA));
}

fn device(report: &mut Report, node: &Node, path: &str) -> Device {
    let r = Reader::new(report, &schema::DEVICE, node, path);
    let default = Device::default();
    Device {
        profile: r.optional(report, "profile", reader::string).unwrap_or(default.profile),
        workers: r.optional(report, "workers", reader::integer(1, 64)).unwrap_or(default.workers),
        miss_policy: r
            .optional(report, "miss_policy", reader::word(MissPolicy::WORDS))
            .unwrap_or(default.miss_policy),
        reset_policy: r
            .optional(report, "reset_policy", reader::word(ResetPolicy::WORDS))
            .unwrap_or(default.reset_policy),
        span: r.span,
    }
}

fn port(report: &mut Report, node: &Node, path: &str) -> Port {
    let r = Reader::new(report, &schema::PORT, node, path);
    let name = r.required(report, "name", reader::name).unwrap_or_default();
    let interface = r.optional(report, "interface", reader::interface);
    Port {
        kind: r.required(report, "kind", reader::word(PortKind::WORDS)).unwrap_or(PortKind::Memory),
        interface: interface.unwrap_or_else(|| name.clone()),
        mtu: r.optional(report, "mtu", reader::integer(68, 65535)).unwrap_or(1500),
        name,
        span: r.span,
    }
}

fn vnet(report: &mut Report, node: &Node, path: &str) -> Vnet {
    let r = Reader::new(report, &schema::VNET, node, path);
    Vnet {
        name: r.required(report, "name", reader::name).unwrap_or_default(),
        vni: r.required(report, "vni", reader::integer(0, 0xff_ffff)).unwrap_or_default(),
        span: r.span,
    }
}

fn eni(report: &mut Report, node: &Node, path: &str) -> Eni {
    let r = Reader::new(report, &schema::ENI, node, path);
    Eni {
        name: r.required(report, "name", reader::name).unwrap_or_default(),
        port: r.required(report, "port", reader::string).unwrap_or_default(),
        vnet: r.required(report, "vnet", reader::string).unwrap_or_default(),
        mac_address: r.required(report, "mac_address", reader::mac).unwrap_or(MacAddr([0; 6])),
        addresses: r.required_list(report, "addresses", reader::unicast),
        anti_spoof: r.optional(report, "anti_spoof", reader::boolean).unwrap_or(true),
        acl_out: r
            .tables(report, "acl_out", |report, node, path| stage(report, node, path, &schema::ACL_OUT)),
        acl_in: r.tables(report, "acl_in", |report, node, path| stage(report, node, path, &schema::ACL_IN)),
        span: r.span,
    }
}

fn stage(report: &mut Report, node: &Node, path: &str, object: &'static schema::Object) -> AclStage {
    let r = Reader::new(report, object, node, path);
    AclStage {
        stage: r.required(report, "stage", reader::integer(1, 5)).unwrap_or_default(),
        v4_acl_group_id: r.optional(report, "v4_acl_group_id", reader::string),
        v6_acl_group_id: r.optional(report, "v6_acl_group_id", reader::string),
        span: r.span,
    }
}

fn acl_group(report: &mut Report, node: &Node, path: &str) -> AclGroup {
    let r = Reader::new(report, &schema::ACL_GROUP, node, path);
    AclGroup {
        acl_group_id: r.required(report, "acl_group_id", reader::name).unwrap_or_default(),
        ip_version: r
            .required(report, "ip_version", reader::word(IpVersion::WORDS))
            .unwrap_or(IpVersion::Ipv4),
        rules: r.tables(report, "rule", rule),
        span: r.span,
    }
}

fn rule(report: &mut Report, node: &Node, path: &str) -> AclRule {
    let r = Reader::new(report, &schema::RULE, node, path);
    AclRule {
        id: r.required(report, "id", reader::name).unwrap_or_default(),
        priority: r.required(report, "priority", reader::integer(0, u32::MAX)).unwrap_or_default(),
        action: r.required(report, "action", reader::word(AclAction::WORDS)).unwrap_or(AclAction::Deny),
        terminating: r.optional(report, "terminating", reader::boolean).unwrap_or(false),
        protocol: r.list(report, "protocol", reader::protocol),
        src_addr: r.list(report, "src_addr", reader::prefix),
        dst_addr: r.list(report, "dst_addr", reader::prefix),
        src_port: r.list(report, "src_port", reader::port),
        dst_port: r.list(report, "dst_port", reader::port),
        offload: r.optional(report, "offload", reader::word(Offload::WORDS)).unwrap_or(Offload::Any),
        span: r.span,
    }
}

fn route(report: &mut Report, node: &Node, path: &str) -> Route {
    let r = Reader::new(report, &schema::ROUTE, node, path);
    Route {
        eni: r.required(report, "eni", reader::string).unwrap_or_default(),
        prefix: r.required(report, "prefix", reader::prefix).unwrap_or_else(no_prefix),
        action_type: r
            .required(report, "action_type", reader::word(RouteAction::WORDS))
            .unwrap_or(RouteAction::Drop),
        vnet: r.optional(report, "vnet", reader::string),
        span: r.span,
    }
}

fn vnet_mapping(report: &mut Report, node: &Node, path: &str) -> VnetMapping {
    let r = Reader::new(report, &schema::VNET_MAPPING, node, path);
    VnetMapping {
        vnet: r.required(report, "vnet", reader::string).unwrap_or_default(),
        ip_address: r.required(report, "ip_address", reader::unicast).unwrap_or_else(no_prefix),
        eni: r.required(report, "eni", reader::string).unwrap_or_default(),
        span: r.span,
    }
}
