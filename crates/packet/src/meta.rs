//! What the device knows about a frame besides its bytes.

/// Which kind of super-frame this is: one buffer that stands for several packets of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GsoType {
    /// An ordinary frame.
    #[default]
    None,
    /// TCP over IPv4, to be cut at `gso_size` bytes of payload.
    TcpV4,
    /// TCP over IPv6, to be cut at `gso_size` bytes of payload.
    TcpV6,
    /// UDP over either IP, to be cut into datagrams of `gso_size` bytes of payload.
    UdpL4,
}

/// State of the transport checksum (virtio 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// Nothing is known: the field is as the wire carried it.
    #[default]
    None,
    /// Somebody in front of us has verified it.
    Verified,
    /// The field holds the uncomplemented sum of the pseudo-header; the rest is still to be added.
    Partial {
        /// Where summing begins, in bytes from the start of the frame.
        start: u16,
        /// Where the field lies, in bytes from `start`.
        offset: u16,
    },
}

/// 64 bytes of metadata: one cache line, travelling with the frame.
///
/// All offsets are bytes from the start of [`Frame::data`](crate::Frame::data); 0 means "not
/// parsed". [`Frame::prepend`](crate::Frame::prepend) and [`Frame::trim_front`](crate::Frame::trim_front)
/// leave them alone: whoever moves the start of a frame moves its offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Meta {
    /// Time of reception, ns, monotonic.
    pub rx_time: u64,
    /// Hash of the canonical flow key.
    pub hash: u32,
    /// Index of the port that received the frame.
    pub port: u16,
    /// Index of the ENI that the frame belongs to.
    pub eni: u16,
    /// Offset of the (outer) network header.
    pub l3: u16,
    /// Offset of the (outer) transport header.
    pub l4: u16,
    /// Offset of the payload behind the (outer) transport header.
    pub payload: u16,
    /// Bits: [`Meta::PROBE`], [`Meta::HOST`].
    pub flags: u16,
    /// Bytes of payload in each segment of a super-frame.
    pub gso_size: u16,
    /// Bytes of headers in front of the payload, as the port was told; 0 when unknown.
    pub hdr_len: u16,
    /// State of the transport checksum.
    pub csum: Checksum,
    /// Kind of super-frame.
    pub gso: GsoType,
    /// The super-frame carries TCP's CWR, which belongs in its first segment alone (RFC 3168, 6.1.2).
    pub gso_ecn: bool,
    /// Offset of the inner network header of a tunnelled frame.
    pub inner_l3: u16,
    /// Offset of the inner transport header of a tunnelled frame.
    pub inner_l4: u16,
    /// Offset of the payload behind the inner transport header.
    pub inner_payload: u16,
    /// Room for later fields; zero.
    pub reserved: [u8; 18],
}

const _: () = assert!(size_of::<Meta>() == 64 && align_of::<Meta>() == 64);

impl Meta {
    /// In `flags`: the frame is a probe of ours and must not leave the device.
    pub const PROBE: u16 = 1;
    /// In `flags`: the frame comes back from the host path.
    pub const HOST: u16 = 2;

    /// Whether the frame stands for several packets of the wire.
    #[inline]
    pub fn is_gso(&self) -> bool {
        self.gso != GsoType::None
    }
}
