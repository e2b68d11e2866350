//! Namespaces, veths and addresses for the tests, with plain system calls.

use std::fs;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Moves this process, which must have one thread, into namespaces of its own.
pub fn enter() -> io::Result<()> {
    // SAFETY: these calls pass no memory.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let flags = if uid == 0 { libc::CLONE_NEWNET } else { libc::CLONE_NEWUSER | libc::CLONE_NEWNET };
    // SAFETY: as above.
    check(unsafe { libc::unshare(flags) })?;
    if uid != 0 {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    set_up("lo")
}

/// A network namespace, which a descriptor holds.
pub struct Namespace(OwnedFd);

impl Namespace {
    pub fn new() -> Namespace {
        std::thread::spawn(|| {
            // SAFETY: passes no memory; this thread alone moves.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).expect("a network namespace");
            set_up("lo").expect("lo up");
            Namespace(fs::File::open("/proc/thread-self/ns/net").expect("its file").into())
        })
        .join()
        .expect("the thread")
    }

    /// Runs `f` on a thread inside.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                // SAFETY: passes no memory; this thread alone moves.
                check(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) }).expect("setns");
                f()
            });
            inside.join().expect("the thread")
        })
    }
}

pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A message of rtnetlink under construction.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; 16 + 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | 1 | 4).to_ne_bytes()); // REQUEST, ACK
        Message(bytes)
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.0.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn nest(self, kind: u16, inner: Vec<u8>) -> Message {
        self.attribute(kind, &inner)
    }

    fn send(mut self) -> io::Result<()> {
        let len = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&len.to_ne_bytes());
        // SAFETY: buffers live through the calls and their sizes are given.
        unsafe {
            let fd = check(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
            let fd = OwnedFd::from_raw_fd(fd);
            let sent = libc::send(fd.as_raw_fd(), self.0.as_ptr().cast(), self.0.len(), 0);
            check(sent as libc::c_int)?;
            let mut answer = [0u8; 4096];
            let got = libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0);
            check(got as libc::c_int)?;
            match i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes")) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        }
    }
}

const RTM_NEWLINK: u16 = 16;
const CREATE_EXCL: u16 = 0x400 | 0x200;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;

/// A veth pair: `here` in this namespace, `there` in another.
pub fn veth(here: &str, there: &str, namespace: &Namespace) {
    let fd = namespace.0.as_raw_fd().to_ne_bytes();
    let peer = Message(vec![0; 16]).attribute(IFLA_IFNAME, there.as_bytes()).attribute(IFLA_NET_NS_FD, &fd);
    let data = Message(Vec::new()).nest(1, peer.0); // VETH_INFO_PEER
    let info = Message(Vec::new()).attribute(1, b"veth\0").nest(2, data.0); // KIND, DATA
    Message::new(RTM_NEWLINK, CREATE_EXCL)
        .attribute(IFLA_IFNAME, here.as_bytes())
        .nest(IFLA_LINKINFO, info.0)
        .send()
        .expect("a veth pair");
}

/// Moves a link of this namespace into another.
pub fn move_link(name: &str, namespace: &Namespace) {
    Message::new(RTM_NEWLINK, 0)
        .attribute(IFLA_IFNAME, name.as_bytes())
        .attribute(IFLA_NET_NS_FD, &namespace.0.as_raw_fd().to_ne_bytes())
        .send()
        .expect("the link moves");
}

fn ioctl(name: &str, what: libc::c_ulong, fill: impl FnOnce(&mut libc::ifreq)) -> io::Result<libc::ifreq> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: zeros are a valid `ifreq`, which lives through the call.
    unsafe {
        let mut request: libc::ifreq = zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        fill(&mut request);
        check(libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request))?;
        Ok(request)
    }
}

fn set_flag(name: &str, up: bool) -> io::Result<()> {
    let now = ioctl(name, libc::SIOCGIFFLAGS, |_| {})?;
    // SAFETY: the request wrote the flags.
    let flags = unsafe { now.ifr_ifru.ifru_flags };
    let flags = if up { flags | libc::IFF_UP as i16 } else { flags & !(libc::IFF_UP as i16) };
    ioctl(name, libc::SIOCSIFFLAGS, |r| r.ifr_ifru.ifru_flags = flags).map(drop)
}

pub fn set_up(name: &str) -> io::Result<()> {
    set_flag(name, true)
}

pub fn set_down(name: &str) -> io::Result<()> {
    set_flag(name, false)
}

/// Takes the link up, IPv6 off so that nothing is sent unasked.
pub fn quiet_up(name: &str) {
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    set_up(name).expect("link up");
}

/// Gives an address of a /24 and takes the link up.
pub fn address(name: &str, address: Ipv4Addr) {
    let set = |what, address: Ipv4Addr| {
        ioctl(name, what, |r| {
            let mut bytes = [0; 14];
            for (to, from) in bytes[2..6].iter_mut().zip(address.octets()) {
                *to = from as libc::c_char;
            }
            r.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: bytes };
        })
        .expect("an address");
    };
    quiet_up(name);
    set(libc::SIOCSIFADDR, address);
    set(libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0));
}

/// Frames received and sent as the kernel counted them.
pub fn counters(name: &str) -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/net/dev").expect("counters");
    let line = text.lines().find_map(|l| l.trim().strip_prefix(&format!("{name}:"))).expect("the link");
    let fields: Vec<u64> = line.split_whitespace().map(|f| f.parse().expect("a number")).collect();
    (fields[1], fields[9])
}

/// Sets a UDP option of a socket to an integer.
pub fn udp_option(socket: &UdpSocket, name: libc::c_int, value: libc::c_int) {
    let size = size_of::<libc::c_int>() as u32;
    // SAFETY: `value` lives through the call and its size is given.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, name, (&raw const value).cast(), size)
    })
    .expect("a UDP option");
}

/// Sends one frame out of a link as it is.
pub fn send_raw(name: &str, frame: &[u8]) {
    let index = ioctl(name, libc::SIOCGIFINDEX, |_| {}).expect("the link");
    // SAFETY: zeros are a valid address; buffers live through the calls and their sizes are given.
    unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)).expect("a packet socket");
        let fd = OwnedFd::from_raw_fd(fd);
        let mut to: libc::sockaddr_ll = zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = index.ifr_ifru.ifru_ifindex;
        let size = size_of::<libc::sockaddr_ll>() as u32;
        let sent =
            libc::sendto(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), size);
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}
