//! Single packets on real sockets, many at once, and what became of each.

use super::world::World;
use crate::error::LabError;
use crate::traffic::Ping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// One packet that opens a connection, by what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Probe {
    /// A datagram to a port.
    Udp(u16),
    /// A connection to a port; it is given up before the first SYN would be repeated (RFC 6298, 2.1: 1 s).
    Tcp(u16),
    /// An echo request.
    Ping,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    /// The receiver got it.
    pub(crate) delivered: bool,
    /// Its answer came back: an echo, or the handshake's second part.
    pub(crate) answered: bool,
}

/// How long answers are awaited.
const PATIENCE: Duration = Duration::from_millis(400);
const LOOK: Duration = Duration::from_millis(2);

/// The two ends of one probe.
enum Ends {
    Udp { near: UdpSocket, far: UdpSocket },
    Tcp { near: OwnedFd, far: TcpListener, accepted: Option<TcpStream> },
}

/// Sends each probe once from one host to another, which answers all, and tells what became of each.
pub(crate) fn send(
    world: &World,
    from: &str,
    to: &str,
    probes: &[Probe],
) -> Result<BTreeMap<Probe, Fate>, LabError> {
    let address = world.address(to, false)?;
    let mut fates: BTreeMap<Probe, Fate> = probes.iter().map(|p| (*p, Fate::default())).collect();
    let failed = || LabError::traffic(format!("open sockets for probes from {from} to {to}"));
    let mut far = BTreeMap::new();
    for probe in probes {
        let made = world.host(to)?.run(|| Far::open(*probe, address))?;
        far.extend(made.map_err(failed())?.map(|f| (*probe, f)));
    }
    let mut ends = BTreeMap::new();
    for (probe, far) in far {
        ends.insert(probe, world.host(from)?.run(|| far.open_near(probe, address))?.map_err(failed())?);
    }
    let ping = match probes.contains(&Probe::Ping) {
        true => Some(Ping { count: 1, timeout: PATIENCE, ..Ping::new(address) }.start(world.host(from)?)?),
        false => None,
    };
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        for (probe, ends) in &mut ends {
            ends.look(fates.entry(*probe).or_default());
        }
        world.sleep(LOOK)?;
        waited += LOOK;
    }
    if let Some(ping) = ping {
        let answered = ping.join()?.received == 1;
        fates.insert(Probe::Ping, Fate { delivered: answered, answered });
    }
    Ok(fates)
}

enum Far {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl Far {
    /// The receiving end; the kernel itself answers pings.
    fn open(probe: Probe, address: IpAddr) -> io::Result<Option<Far>> {
        Ok(match probe {
            Probe::Udp(port) => {
                let socket = UdpSocket::bind((address, port))?;
                socket.set_nonblocking(true)?;
                Some(Far::Udp(socket))
            }
            Probe::Tcp(port) => {
                let listener = TcpListener::bind((address, port))?;
                listener.set_nonblocking(true)?;
                Some(Far::Tcp(listener))
            }
            Probe::Ping => None,
        })
    }

    /// The sending end, and the packet is on its way.
    fn open_near(self, probe: Probe, address: IpAddr) -> io::Result<Ends> {
        let port = match probe {
            Probe::Udp(port) | Probe::Tcp(port) => port,
            Probe::Ping => 0,
        };
        let target = SocketAddr::new(address, port);
        match self {
            Far::Udp(far) => {
                let near = UdpSocket::bind(("0.0.0.0", 0))?;
                near.set_nonblocking(true)?;
                near.connect(target)?;
                near.send(&port.to_be_bytes())?;
                Ok(Ends::Udp { near, far })
            }
            Far::Tcp(far) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let near = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
                match net::connect(&near, &target) {
                    Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
                    Err(e) => return Err(e.into()),
                }
                Ok(Ends::Tcp { near, far, accepted: None })
            }
        }
    }
}

impl Ends {
    /// Takes in what came at either end, and echoes. Errors are packets that did not come.
    fn look(&mut self, fate: &mut Fate) {
        let mut buffer = [0; 64];
        match self {
            Ends::Udp { near, far } => {
                while let Ok((len, source)) = far.recv_from(&mut buffer) {
                    fate.delivered = true;
                    let _ = far.send_to(&buffer[..len], source);
                }
                fate.answered |= near.recv(&mut buffer).is_ok();
            }
            Ends::Tcp { near, far, accepted } => {
                if let Ok((stream, _)) = far.accept() {
                    fate.delivered = true;
                    *accepted = Some(stream);
                }
                fate.answered |= connected(near);
            }
        }
    }
}

/// Whether a connection that was begun is made.
fn connected(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents() == PollFlags::OUT
}
