//! Raw frames at an interface: sent as they are, spoofed sources included, and counted as they
//! pass.

use super::Traffic;
use crate::error::LabError;
use crate::host::Host;
use crate::namespace::PacketSocket;
use crate::stop::{Stop, Wake};
use rustix::net::SendFlags;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::ethernet::{self, MacAddr};
use wire::ip::protocol;
use wire::{WireError, ipv4, ipv6, udp};

/// A UDP datagram with all its addresses free to choose, in an Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct UdpFrame<'a> {
    /// Source MAC address.
    pub src_mac: MacAddr,
    /// Destination MAC address.
    pub dst_mac: MacAddr,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port, of the same IP version.
    pub dst: SocketAddr,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl UdpFrame<'_> {
    /// The frame's bytes, without FCS, checksums complete.
    ///
    /// # Errors
    /// [`WireError`]: the payload is too long. Addresses of two IP versions give
    /// [`WireError::Field`] named `version`.
    pub fn build(&self) -> Result<Vec<u8>, WireError> {
        let datagram_len = udp::HEADER_LEN + self.payload.len();
        let mut frame = vec![0; ethernet::HEADER_LEN + ipv6::HEADER_LEN + datagram_len];
        let (head, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
        let (ethertype, ip_len) = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = ipv4::Header::new(src, dst, protocol::UDP, datagram_len);
                (ethernet::ethertype::IPV4, header.emit(packet)?)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = ipv6::Header::new(src, dst, protocol::UDP, datagram_len);
                (ethernet::ethertype::IPV6, header.emit(packet)?)
            }
            (_, IpAddr::V4(_)) => return Err(WireError::Field { name: "version", value: 6 }),
            (_, IpAddr::V6(_)) => return Err(WireError::Field { name: "version", value: 4 }),
        };
        ethernet::Header { dst: self.dst_mac, src: self.src_mac, ethertype }.emit(head)?;
        let ports = udp::Header { src_port: self.src.port(), dst_port: self.dst.port() };
        ports.emit(&mut packet[ip_len..], self.src.ip(), self.dst.ip(), self.payload)?;
        frame.truncate(ethernet::HEADER_LEN + ip_len + datagram_len);
        Ok(frame)
    }
}

/// Sends frames out of an interface of a host exactly as given.
#[derive(Debug)]
pub struct RawSender {
    socket: PacketSocket,
    what: String,
}

impl RawSender {
    /// Opens it on the interface `name` of `host`.
    ///
    /// # Errors
    /// No such interface.
    pub fn open(host: &Host, name: &str) -> Result<Self, LabError> {
        let what = format!("send raw frames at {name} of {}", host.name());
        Ok(Self { socket: packet_socket(host, name, false)?, what })
    }

    /// Sends one frame (from the Ethernet header on, without FCS).
    ///
    /// # Errors
    /// The interface is down or gone, the frame is longer than its MTU allows, or the socket's
    /// buffer stayed full for 1 s.
    pub fn send(&self, frame: &[u8]) -> Result<(), LabError> {
        let failed = || LabError::traffic(self.what.clone());
        let unstopped = Stop::new().map_err(failed())?;
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match rustix::net::send(&self.socket, frame, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS)
                    if unstopped.writable(&self.socket, Some(deadline)) == Wake::Ready
                        && Instant::now() < deadline => {}
                Err(e) => return Err(failed()(e.into())),
            }
        }
    }
}

/// A frame that passes a sniffer.
#[derive(Clone, Copy, Debug)]
pub struct SniffedFrame<'a> {
    /// Its first bytes, from the Ethernet header on, at most 512. Checksums may be partial.
    pub bytes: &'a [u8],
    /// Its whole length in bytes; a super-frame's may exceed the MTU.
    pub len: usize,
    /// Whether the host sent it; else it came in.
    pub outgoing: bool,
}

/// What a sniffer counted. `matched` proves an absence only while `drops` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SniffCounts {
    /// Frames that passed in either direction, those dropped here included.
    pub passed: u64,
    /// Frames that came in, of those looked at.
    pub incoming: u64,
    /// Frames that the host sent, of those looked at.
    pub outgoing: u64,
    /// Frames that the filter wanted, of those looked at.
    pub matched: u64,
    /// Frames that passed unseen for want of buffer space.
    pub drops: u64,
}

/// Counts the frames of an interface, and those that a filter wants.
#[derive(Debug)]
pub struct Sniffer {
    counts: Arc<Mutex<SniffCounts>>,
    traffic: Traffic<()>,
}

impl Sniffer {
    /// Starts on the interface `name` of `host`; frames are seen from the return on.
    ///
    /// # Errors
    /// No such interface.
    pub fn start(
        host: &Host,
        name: &str,
        filter: impl Fn(&SniffedFrame<'_>) -> bool + Send + 'static,
    ) -> Result<Self, LabError> {
        let socket = packet_socket(host, name, true)?;
        super::enlarge_receive_buffer(&socket);
        let counts = Arc::new(Mutex::new(SniffCounts::default()));
        let its = Arc::clone(&counts);
        let what = format!("sniff at {name} of {}", host.name());
        let traffic = Traffic::start(host, move |stop| {
            sniff(&socket, &filter, &its, stop).map_err(LabError::traffic(what))
        })?;
        Ok(Self { counts, traffic })
    }

    /// The counts so far; `passed` and `drops` lag by up to 50 ms.
    pub fn counts(&self) -> SniffCounts {
        *locked(&self.counts)
    }

    /// Ends it; frames that passed before are still counted.
    ///
    /// # Errors
    /// The interface went away meanwhile.
    pub fn stop(self) -> Result<SniffCounts, LabError> {
        self.traffic.stop()?;
        Ok(*locked(&self.counts))
    }
}

fn locked(counts: &Mutex<SniffCounts>) -> MutexGuard<'_, SniffCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn packet_socket(host: &Host, name: &str, receive: bool) -> Result<PacketSocket, LabError> {
    let index = host.netlink()?.link(name)?.index;
    host.run(|| PacketSocket::open(index, receive))?
        .map_err(LabError::traffic(format!("open a packet socket at {name} of {}", host.name())))
}

fn sniff(
    socket: &PacketSocket,
    filter: &impl Fn(&SniffedFrame<'_>) -> bool,
    counts: &Mutex<SniffCounts>,
    stop: &Stop,
) -> std::io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        let wake = stop.readable(socket, Some(Instant::now() + Duration::from_millis(50)));
        // A flood does not prolong the end for ever.
        let enough = Instant::now() + Duration::from_millis(if wake == Wake::Stopped { 200 } else { 20 });
        while let Some(received) = socket.receive(&mut buffer)? {
            let bytes = &buffer[..received.len.min(buffer.len())];
            let frame = SniffedFrame { bytes, len: received.len, outgoing: received.outgoing };
            let matched = filter(&frame);
            let mut counts = locked(counts);
            counts.matched += u64::from(matched);
            if received.outgoing {
                counts.outgoing += 1;
            } else {
                counts.incoming += 1;
            }
            drop(counts);
            if Instant::now() > enough {
                break;
            }
        }
        let new = socket.take_counts()?;
        let mut counts = locked(counts);
        counts.passed += new.frames;
        counts.drops += new.drops;
        if wake == Wake::Stopped {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_frames_read_back() {
        for (src, dst) in [("10.0.0.1:5", "10.0.0.2:6"), ("[fd00::1]:5", "[fd00::2]:6")] {
            let (src, dst): (SocketAddr, SocketAddr) =
                (src.parse().expect("address"), dst.parse().expect("address"));
            let (src_mac, dst_mac) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
            let frame = UdpFrame { src_mac, dst_mac, src, dst, payload: b"hello" };
            let bytes = frame.build().expect("frame");
            let outer = ethernet::View::new_checked(&bytes).expect("ethernet");
            assert_eq!((outer.src(), outer.dst()), (src_mac, dst_mac));
            let datagram = if src.is_ipv4() {
                let packet = ipv4::View::new_checked(outer.payload()).expect("ipv4");
                assert!(packet.checksum_valid());
                assert_eq!(IpAddr::from(packet.src()), src.ip());
                assert_eq!(IpAddr::from(packet.dst()), dst.ip());
                packet.payload()
            } else {
                let packet = ipv6::View::new_checked(outer.payload()).expect("ipv6");
                assert_eq!(IpAddr::from(packet.src()), src.ip());
                assert_eq!(IpAddr::from(packet.dst()), dst.ip());
                packet.payload()
            };
            let view = udp::View::new_checked(datagram).expect("udp");
            assert_eq!((view.src_port(), view.dst_port(), view.payload()), (5, 6, &b"hello"[..]));
        }
        let mixed = UdpFrame {
            src_mac: MacAddr([0; 6]),
            dst_mac: MacAddr([0; 6]),
            src: SocketAddr::from(([10, 0, 0, 1], 1)),
            dst: SocketAddr::from(([0_u16; 8], 1)),
            payload: &[],
        };
        assert_eq!(mixed.build(), Err(WireError::Field { name: "version", value: 4 }));
    }
}
