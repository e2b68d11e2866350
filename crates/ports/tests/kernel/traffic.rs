//! Real sockets in hosts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::net::{Namespace, udp_option};

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(10);

fn receiver(host: &Namespace, address: Ipv4Addr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, PORT))).expect("a receiver");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Sends `n` numbered datagrams, a window at a time so that no queue overflows; returns how many
/// arrived with their content.
pub fn udp_flood(from: &Namespace, to: &Namespace, address: Ipv4Addr, n: u32) -> u32 {
    let receiver = receiver(to, address);
    let sender = from.run(|| UdpSocket::bind("0.0.0.0:0")).expect("a sender");
    sender.connect((address, PORT)).expect("an address");
    let mut arrived = 0;
    for first in (0..n).step_by(20) {
        let window = first..n.min(first + 20);
        for number in window.clone() {
            let mut datagram = vec![number as u8; 4 + number as usize % 1400];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            sender.send(&datagram).expect("it is sent");
        }
        // Threads that change their CPU reorder frames in the kernel: each must come, once.
        let mut missing: Vec<u32> = window.collect();
        while !missing.is_empty() {
            let mut datagram = [0; 2000];
            let Ok(len) = receiver.recv(&mut datagram) else { return arrived };
            let number = u32::from_be_bytes(datagram[..4].try_into().expect("four bytes"));
            let known = missing.iter().position(|&m| m == number).expect("one of this window, once");
            missing.swap_remove(known);
            assert_eq!(len, 4 + number as usize % 1400);
            assert!(datagram[4..len].iter().all(|&b| b == number as u8));
            arrived += 1;
        }
    }
    arrived
}

/// Sends one super-frame of `n` datagrams of `size` bytes; returns the sizes received.
pub fn udp_segments(
    from: &Namespace,
    to: &Namespace,
    address: Ipv4Addr,
    size: usize,
    n: usize,
) -> Vec<usize> {
    let receiver = receiver(to, address);
    let sender = from.run(|| UdpSocket::bind("0.0.0.0:0")).expect("a sender");
    sender.connect((address, PORT)).expect("an address");
    udp_option(&sender, libc::UDP_SEGMENT, size as libc::c_int);
    let bytes: Vec<u8> = (0..n).flat_map(|i| std::iter::repeat_n(i as u8, size)).collect();
    assert_eq!(sender.send(&bytes).expect("it is sent"), size * n);
    (0..n)
        .map(|i| {
            let mut datagram = [0; 2000];
            let len = receiver.recv(&mut datagram).expect("a datagram");
            assert!(datagram[..len].iter().all(|&b| b == i as u8), "datagram {i}");
            len
        })
        .collect()
}

/// A generator whose bytes do not repeat within a segment.
struct Stream(u64);

impl Stream {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

/// Sends `bytes` bytes by TCP; true if just these arrived.
pub fn tcp_transfer(from: &Namespace, to: &Namespace, address: Ipv4Addr, bytes: usize) -> bool {
    let listener = to.run(|| TcpListener::bind((address, PORT))).expect("a listener");
    let sender = from
        .run(|| TcpStream::connect_timeout(&SocketAddr::from((address, PORT)), PATIENCE))
        .expect("a connection");
    let (mut receiver, _) = listener.accept().expect("the other end");
    receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    sender.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut sender, mut stream, mut chunk) = (sender, Stream(88172645463325252), vec![0; 1 << 16]);
            for _ in 0..bytes / chunk.len() {
                stream.fill(&mut chunk);
                sender.write_all(&chunk).expect("it is sent");
            }
        });
        let (mut stream, mut chunk, mut expected) =
            (Stream(88172645463325252), vec![0; 1 << 16], vec![0; 1 << 16]);
        let (mut total, mut same) = (0, true);
        loop {
            match receiver.read_exact(&mut chunk) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return same && total == bytes,
                Err(e) => panic!("after {total} bytes: {e}"),
            }
            stream.fill(&mut expected);
            same &= chunk == expected;
            total += chunk.len();
        }
    })
}

/// A UDP packet from 10.0.0.1, source port `flow`, with which the kernel can tell connections apart.
pub fn udp_frame(flow: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 0xbb]);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 0xaa]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&[0x10, flow]);
    frame[36..38].copy_from_slice(&[0x20, 0]);
    frame[38..40].copy_from_slice(&[0, 26]);
    frame
}
