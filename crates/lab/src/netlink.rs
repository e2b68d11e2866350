//! Interfaces, addresses and routes of one network namespace, over rtnetlink.

use crate::error::LabError;
use crate::host::Host;
use crate::stop::{Stop, Wake};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Announcements of interfaces' changes (linux/rtnetlink.h).
const RTNLGRP_LINK: u32 = 1;
/// Announcements of IPv6 routes' changes.
const RTNLGRP_IPV6_ROUTE: u32 = 11;
/// Bytes of a message's header (netlink(7)).
const HEADER_LEN: usize = 16;

/// A netlink socket. It acts in the namespace in which it was opened, whichever thread uses it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    port: u32,
    sequence: u32,
}

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// The host in which it appears.
    pub host: &'a Host,
    /// Its name there, at most 15 bytes.
    pub name: &'a str,
    /// Its MAC address; the kernel's choice without.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes; 1500 without.
    pub mtu: Option<u32>,
}

/// An interface as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MAC address, zeros if it has none.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it was set up.
    pub up: bool,
    /// Whether it has carrier.
    pub carrier: bool,
    /// Whether frames sent now go out: up, with carrier, and the kernel has acted on both.
    pub running: bool,
    /// Its counters.
    pub stats: LinkStats,
}

/// The kernel's counters of an interface (`rtnl_link_stats64`). Frames, where a GSO super-frame
/// counts once on a veth or TAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames received by the interface from its peer.
    pub rx_packets: u64,
    /// Frames sent by the interface's host.
    pub tx_packets: u64,
    /// Bytes of the former, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Bytes of the latter.
    pub tx_bytes: u64,
    /// Broken frames received.
    pub rx_errors: u64,
    /// Failed sends.
    pub tx_errors: u64,
    /// Frames dropped on receive for want of buffers.
    pub rx_dropped: u64,
    /// Frames dropped on send.
    pub tx_dropped: u64,
}

impl From<Stats64> for LinkStats {
    fn from(s: Stats64) -> Self {
        Self {
            rx_packets: s.rx_packets,
            tx_packets: s.tx_packets,
            rx_bytes: s.rx_bytes,
            tx_bytes: s.tx_bytes,
            rx_errors: s.rx_errors,
            tx_errors: s.tx_errors,
            rx_dropped: s.rx_dropped,
            tx_dropped: s.tx_dropped,
        }
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// The socket could not be made.
    pub fn open() -> Result<Self, LabError> {
        let open = || -> io::Result<Self> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            let port = socket.bind_auto()?.port_number();
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(Self { socket, port, sequence: 0 })
        };
        open().map_err(LabError::netlink("open a netlink socket"))
    }

    /// Makes a veth pair, each end in its host at once, both down.
    ///
    /// # Errors
    /// Refused: a name taken, no rights in a namespace. (This holds for all that follows: the
    /// error names the action and the interface.)
    pub fn add_veth(&mut self, a: VethEnd<'_>, b: VethEnd<'_>) -> Result<(), LabError> {
        let peer = InfoData::Veth(InfoVeth::Peer(veth_end(b)));
        let mut message = veth_end(a);
        message
            .attributes
            .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(peer)]));
        self.act(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
            .map_err(LabError::netlink(format!("make the veth pair {}, {}", a.name, b.name)))
    }

    /// Makes a bridge, down.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        self.act(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
            .map_err(LabError::netlink(format!("make the bridge {name}")))
    }

    /// Deletes an interface; of a veth pair, both ends.
    pub fn delete(&mut self, name: &str) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        self.act(RouteNetlinkMessage::DelLink(message), 0)
            .map_err(LabError::netlink(format!("delete {name}")))
    }

    /// Puts an interface under a bridge.
    pub fn set_master(&mut self, name: &str, bridge: &str) -> Result<(), LabError> {
        let bridge_index = self.link(bridge)?.index;
        self.change(name, &format!("under bridge {bridge}"), |m| {
            m.attributes.push(LinkAttribute::Controller(bridge_index));
        })
    }

    /// Moves an interface into `host`, where its name is `new_name`. It loses its addresses and
    /// is down there.
    pub fn move_to(&mut self, name: &str, host: &Host, new_name: &str) -> Result<(), LabError> {
        let fd = host.as_fd().as_raw_fd();
        self.change(name, &format!("into {} as {new_name}", host.name()), |m| {
            m.attributes.push(LinkAttribute::NetNsFd(fd));
            m.attributes.push(LinkAttribute::IfName(new_name.into()));
        })
    }

    /// Renames an interface.
    pub fn rename(&mut self, name: &str, new_name: &str) -> Result<(), LabError> {
        self.change(name, &format!("to the name {new_name}"), |m| {
            m.attributes.push(LinkAttribute::IfName(new_name.into()));
        })
    }

    /// Sets an interface's MAC address.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<(), LabError> {
        self.change(name, "to another MAC address", |m| {
            m.attributes.push(LinkAttribute::Address(mac.to_vec()));
        })
    }

    /// Sets an interface's MTU in bytes.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), LabError> {
        self.change(name, &format!("to MTU {mtu}"), |m| {
            m.attributes.push(LinkAttribute::Mtu(mtu));
        })
    }

    /// Sets an interface up.
    pub fn set_up(&mut self, name: &str) -> Result<(), LabError> {
        self.change(name, "up", |m| {
            m.header.flags |= LinkFlags::Up;
            m.header.change_mask |= LinkFlags::Up;
        })
    }

    /// Sets an interface down.
    pub fn set_down(&mut self, name: &str) -> Result<(), LabError> {
        self.change(name, "down", |m| m.header.change_mask |= LinkFlags::Up)
    }

    /// Gives an interface an address, usable at once (IPv6: no duplicate address detection).
    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> Result<(), LabError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = self.link(name)?.index;
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes.push(AddressAttribute::Local(address));
        message.attributes.push(AddressAttribute::Address(address));
        self.act(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
            .map_err(LabError::netlink(format!("give {name} the address {address}/{prefix}")))
    }

    /// Adds a route through an interface, to `gateway` or directly; replaces the one for the same
    /// destination.
    pub fn add_route(
        &mut self,
        destination: IpAddr,
        prefix: u8,
        gateway: Option<IpAddr>,
        name: &str,
    ) -> Result<(), LabError> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(destination),
            destination_prefix_length: prefix,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        if prefix > 0 {
            message.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination)));
        }
        if let Some(gateway) = gateway {
            message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
        }
        message.attributes.push(RouteAttribute::Oif(self.link(name)?.index));
        self.act(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
            .map_err(LabError::netlink(format!("route {destination}/{prefix} through {name}")))
    }

    /// The interface of that name.
    ///
    /// # Errors
    /// No such interface.
    pub fn link(&mut self, name: &str) -> Result<Link, LabError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        let no_answer = || io::Error::from(io::ErrorKind::NotFound);
        self.request(RouteNetlinkMessage::GetLink(message), NLM_F_ACK)
            .and_then(|links| links.into_iter().find_map(link).ok_or_else(no_answer))
            .map_err(LabError::netlink(format!("find the interface {name}")))
    }

    /// Waits until an interface carries traffic: frames sent through it go out, and its IPv6
    /// addresses are heard. A veth end whose peer has just come up drops frames for up to a second
    /// unless asked about its state, as this does, and the kernel sets IPv6 addresses up in the
    /// background; what is sent too early is lost, and asked for again a second later only.
    ///
    /// # Errors
    /// No such interface; not ready within `limit`.
    pub fn wait_running(&mut self, name: &str, limit: Duration) -> Result<(), LabError> {
        let what = || format!("wait until {name} is running");
        let stop = Stop::new().map_err(LabError::netlink(what()))?;
        let deadline = Instant::now() + limit;
        for group in [RTNLGRP_LINK, RTNLGRP_IPV6_ROUTE] {
            self.socket.add_membership(group).map_err(LabError::netlink(what()))?;
        }
        let result = loop {
            match self.is_running(name) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(e) => break Err(e),
            }
            // Changes are announced; an announcement read over by a request costs 50 ms.
            let next = deadline.min(Instant::now() + Duration::from_millis(50));
            if stop.readable(&self.socket, Some(next)) == Wake::Ready {
                // Only the waking counts; announcements lost in a flood do no harm.
                let _ = self.socket.recv_from_full();
            } else if next == deadline {
                break Err(LabError::netlink(what())(io::ErrorKind::TimedOut.into()));
            }
        };
        for group in [RTNLGRP_LINK, RTNLGRP_IPV6_ROUTE] {
            self.socket.drop_membership(group).map_err(LabError::netlink(what()))?;
        }
        result
    }

    /// Running, and with a local route for each IPv6 address: the kernel's last step.
    fn is_running(&mut self, name: &str) -> Result<bool, LabError> {
        let link = self.link(name)?;
        let mut which = AddressMessage::default();
        which.header.family = AddressFamily::Inet6;
        let addresses = self
            .request(RouteNetlinkMessage::GetAddress(which), NLM_F_DUMP)
            .map_err(LabError::netlink(format!("list the addresses of {name}")))?;
        let mut which = RouteMessage::default();
        which.header.address_family = AddressFamily::Inet6;
        let routes = self
            .request(RouteNetlinkMessage::GetRoute(which), NLM_F_DUMP)
            .map_err(LabError::netlink("list the routes"))?;
        let has_local_route = |address: IpAddr| {
            let destination = RouteAttribute::Destination(RouteAddress::from(address));
            routes.iter().any(|r| match r {
                RouteNetlinkMessage::NewRoute(r) => {
                    r.header.kind == RouteType::Local && r.attributes.contains(&destination)
                }
                _ => false,
            })
        };
        let mut own = addresses.into_iter().filter_map(|a| match a {
            RouteNetlinkMessage::NewAddress(a) if a.header.index == link.index => {
                a.attributes.into_iter().find_map(|a| match a {
                    AddressAttribute::Address(address) => Some(address),
                    _ => None,
                })
            }
            _ => None,
        });
        Ok(link.running && own.all(has_local_route))
    }

    /// All interfaces of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, LabError> {
        self.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)
            .map(|links| links.into_iter().filter_map(link).collect())
            .map_err(LabError::netlink("list the interfaces"))
    }

    /// The counters of an interface.
    ///
    /// # Errors
    /// No such interface.
    pub fn stats(&mut self, name: &str) -> Result<LinkStats, LabError> {
        Ok(self.link(name)?.stats)
    }

    fn change(
        &mut self,
        name: &str,
        what: &str,
        edit: impl FnOnce(&mut LinkMessage),
    ) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        edit(&mut message);
        self.act(RouteNetlinkMessage::SetLink(message), 0)
            .map_err(LabError::netlink(format!("set {name} {what}")))
    }

    fn act(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, NLM_F_ACK | flags).map(|_| ())
    }

    /// Sends a request and gathers the answers up to its acknowledgement or the dump's end.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while let Some(header) = rest.first_chunk::<HEADER_LEN>() {
                let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
                // Messages are aligned to 4 bytes (netlink(7), NLMSG_ALIGN).
                let len = (word(0) as usize).next_multiple_of(4).clamp(HEADER_LEN, rest.len());
                let (message, next) = rest.split_at(len);
                rest = next;
                // The rest are announcements, which may carry other sockets' sequence numbers.
                if (word(8), word(12)) != (self.sequence, self.port) {
                    continue;
                }
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(e) if e.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(e) => return Err(e.to_io()),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
            }
        }
    }
}

fn veth_end(end: VethEnd<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(end.name.into()));
    message.attributes.push(LinkAttribute::NetNsFd(end.host.as_fd().as_raw_fd()));
    message.attributes.extend(end.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    message.attributes.extend(end.mtu.map(LinkAttribute::Mtu));
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.contains(LinkFlags::LowerUp),
        running: message.header.flags.contains(LinkFlags::Running),
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(mac) => link.mac = mac.try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Stats64(stats) => link.stats = stats.into(),
            _ => {}
        }
    }
    Some(link)
}
