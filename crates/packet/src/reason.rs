//! The names of all that can happen to a frame. The codes are stable: they are the JSON.

/// Defines an enum whose variants have a stable `snake_case` code and one line of documentation,
/// which is also what [`meaning`](DropReason::meaning) returns.
macro_rules! reasons {
    ($(#[doc = $about:literal])+ $name:ident { $(#[doc = $meaning:literal] $variant:ident = $code:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
        }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The stable code, as in JSON.
            pub const fn code(self) -> &'static str {
                match self {
                    $($name::$variant => $code,)+
                }
            }

            /// One line that says what it means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($name::$variant => $meaning,)+
                }
                .trim_start()
            }

            /// The one with this code.
            pub fn from_code(code: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|reason| reason.code() == code)
            }

            /// The place in arrays of [`COUNT`](Self::COUNT) elements.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.code())
            }
        }
    };
}

reasons! {
    /// Why a frame was dropped. Each has one place that raises it.
    DropReason {
        /// The frame ends inside its Ethernet header.
        EthernetTruncated = "ethernet_truncated",
        /// The frame carries a VLAN tag, and the port is untagged.
        VlanUnsupported = "vlan_unsupported",
        /// The EtherType is none of IPv4, IPv6 and ARP.
        EthertypeUnsupported = "ethertype_unsupported",
        /// The IPv4 header is cut short, or its version or header length is wrong (RFC 791, 3.1).
        Ipv4HeaderInvalid = "ipv4_header_invalid",
        /// The IPv4 total length is below its header or beyond the frame (RFC 791, 3.1).
        Ipv4LengthInvalid = "ipv4_length_invalid",
        /// The IPv4 header checksum is wrong (RFC 791, 3.1).
        Ipv4ChecksumInvalid = "ipv4_checksum_invalid",
        /// The IPv6 header is cut short or has a wrong version (RFC 8200, 3).
        Ipv6HeaderInvalid = "ipv6_header_invalid",
        /// The IPv6 payload length is beyond the frame (RFC 8200, 3).
        Ipv6LengthInvalid = "ipv6_length_invalid",
        /// The chain of IPv6 extension headers is cut short, too long or out of order (RFC 8200, 4).
        Ipv6ExtensionInvalid = "ipv6_extension_invalid",
        /// The packet is a fragment.
        FragmentUnsupported = "fragment_unsupported",
        /// The source address cannot be a source: multicast, broadcast, loopback or unspecified.
        IpSourceInvalid = "ip_source_invalid",
        /// The destination is multicast or broadcast, and it is not neighbour discovery.
        MulticastUnsupported = "multicast_unsupported",
        /// The TTL or hop limit does not allow one hop more.
        TtlExceeded = "ttl_exceeded",
        /// The TCP header is cut short or its data offset is wrong (RFC 9293, 3.1).
        TcpHeaderInvalid = "tcp_header_invalid",
        /// The TCP flags contradict one another, or there are none.
        TcpFlagsInvalid = "tcp_flags_invalid",
        /// The UDP length is below 8 or beyond the packet (RFC 768).
        UdpLengthInvalid = "udp_length_invalid",
        /// The ICMP message is cut short (RFC 792, RFC 4443 2.1).
        IcmpHeaderInvalid = "icmp_header_invalid",
        /// The ICMP checksum is wrong.
        IcmpChecksumInvalid = "icmp_checksum_invalid",
        /// The protocol above IP, or the type of the ICMP message, is not supported.
        IcmpTypeUnsupported = "icmp_type_unsupported",
        /// The packet quoted by an ICMP error cannot be read.
        IcmpQuoteInvalid = "icmp_quote_invalid",
        /// The ARP message is cut short or is not Ethernet and IPv4 (RFC 826).
        ArpInvalid = "arp_invalid",
        /// The neighbour discovery message fails the checks of RFC 4861, 7.1.
        NdInvalid = "nd_invalid",
        /// No ENI belongs to the port.
        NoEni = "no_eni",
        /// The ENI's safe set is not confirmed yet, and its reset policy is `deny`.
        NotArmed = "not_armed",
        /// The source MAC is not the ENI's.
        SpoofedMac = "spoofed_mac",
        /// The source address is not one of the ENI's.
        SpoofedIp = "spoofed_ip",
        /// The ARP or neighbour discovery message claims an address that is not the ENI's.
        SpoofedArp = "spoofed_arp",
        /// ARP asks for an address that nobody has.
        ArpUnknownAddress = "arp_unknown_address",
        /// Neighbour discovery asks for an address that nobody has.
        NdUnknownAddress = "nd_unknown_address",
        /// An outbound ACL of the sender's ENI denies it.
        AclOutDenied = "acl_out_denied",
        /// An inbound ACL of the receiver's ENI denies it.
        AclInDenied = "acl_in_denied",
        /// No route matches the destination.
        NoRoute = "no_route",
        /// The matching route says drop.
        RouteDrop = "route_drop",
        /// The VNET has no mapping for the destination.
        NoMapping = "no_mapping",
        /// The destination is behind the ENI that sent it.
        SameEni = "same_eni",
        /// A TCP segment other than an opening SYN, and no connection.
        TcpNoConnection = "tcp_no_connection",
        /// The TCP flags do not fit the connection's state (RFC 9293, 3.10).
        TcpStateInvalid = "tcp_state_invalid",
        /// The TCP sequence or acknowledgement number lies outside the window.
        TcpWindowInvalid = "tcp_window_invalid",
        /// An ICMP echo reply, and no connection.
        IcmpNoConnection = "icmp_no_connection",
        /// An ICMP error about a packet of no connection.
        IcmpErrorNoConnection = "icmp_error_no_connection",
        /// The connection table is full.
        ConnectionTableFull = "connection_table_full",
        /// The device cannot decide the packet, and the program's miss policy is `drop`.
        MissPolicyDrop = "miss_policy_drop",
        /// The host path is over its capacity.
        HostPathOverCapacity = "host_path_over_capacity",
        /// The ring to the worker that owns the connection is full.
        HandOverFull = "hand_over_full",
        /// The packet, or a segment of it, is larger than the egress MTU.
        EgressMtuExceeded = "egress_mtu_exceeded",
        /// The frame is larger than any buffer (BIG TCP).
        FrameTooLarge = "frame_too_large",
        /// No free buffer when the frame came.
        PortRxNoBuffer = "port_rx_no_buffer",
        /// The kernel dropped the frame before we could take it.
        PortRxKernel = "port_rx_kernel",
        /// The kernel handed over a frame whose metadata makes no sense.
        PortRxError = "port_rx_error",
        /// The egress queue is full.
        PortTxFull = "port_tx_full",
        /// The kernel refused to send the frame.
        PortTxError = "port_tx_error",
        /// The egress interface is down or gone.
        PortDown = "port_down",
    }
}

reasons! {
    /// Why a frame went from the device to the host path.
    PuntReason {
        /// The device's tables do not decide it.
        TableMiss = "table_miss",
        /// A punt entry matched: a rule above it did not fit in the device.
        PuntEntry = "punt_entry",
        /// The host path owns the connection.
        HostOwned = "host_owned",
        /// The connection moves to the device once its punted packets have left.
        Pending = "pending",
        /// The device's flow table is full.
        FlowTableFull = "flow_table_full",
        /// The ENI's safe set is not confirmed yet, and its reset policy is `host`.
        NotArmed = "not_armed",
        /// ARP, which the host path answers.
        Arp = "arp",
        /// Neighbour discovery, which the host path answers.
        Nd = "nd",
    }
}

reasons! {
    /// Why a frame ended here without being dropped.
    ConsumeReason {
        /// An ARP request that was answered.
        ArpAnswered = "arp_answered",
        /// A neighbour solicitation that was answered.
        NdAnswered = "nd_answered",
        /// An ARP message that asks nothing of us.
        ArpIgnored = "arp_ignored",
        /// A neighbour discovery message that asks nothing of us.
        NdIgnored = "nd_ignored",
        /// A probe of ours at the end of its way.
        Probe = "probe",
    }
}

reasons! {
    /// Why a frame was made here.
    CreateReason {
        /// The answer to an ARP request.
        ArpReply = "arp_reply",
        /// The answer to a neighbour solicitation.
        NdAdvertisement = "nd_advertisement",
        /// An ICMP error about a packet.
        IcmpError = "icmp_error",
        /// A probe of ours.
        Probe = "probe",
    }
}
