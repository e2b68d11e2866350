//! A port on an interface that is there already: a veth, or a card.
//!
//! Receives through a ring, sends in batches. The interface is ours alone: IPv6 is turned off and
//! IPv4 addresses are refused, so that the host's stack neither answers nor forwards beside us; this
//! stays so when the process ends.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use packet::{BATCH, Batch, Count, DropReason, Frame, Pool};

use crate::error::PortError;
use crate::port::{BUDGET, Outcomes, Port, PortInfo, PortSpec, Received, RxDrops, TxOutcome};
use crate::ring::{Messages, Ring, Slot};
use crate::sys::Interface;
use crate::vnet::{self, VNET};

/// Calls of `receive` in a row that found nothing, after which the socket's error is cleared.
const IDLE: u32 = 64;

struct AfPacket {
    ring: Ring,
    /// Calls of `receive` in a row that found nothing.
    idle: u32,
}

/// Opens all queues.
pub(crate) fn open(spec: &PortSpec) -> Result<(PortInfo, Vec<Box<dyn Port>>), PortError> {
    let (info, rings) = open_rings(spec)?;
    let port = |ring| Box::new(AfPacket { ring, idle: 0 }) as Box<dyn Port>;
    Ok((info, rings.into_iter().map(port).collect()))
}

/// Takes the interface over and opens its rings.
pub(crate) fn open_rings(spec: &PortSpec) -> Result<(PortInfo, Vec<Ring>), PortError> {
    let name = &spec.interface;
    let interface = Interface::new(name)?;
    let index = interface.index()?;
    let actual = interface.mtu()?;
    if actual != spec.mtu {
        let interface = name.clone();
        return Err(PortError::MtuMismatch { interface, wanted: spec.mtu, actual });
    }
    let mac = interface.mac()?;
    let first = Ring::open(name, index)?;
    take_over(name, &interface)?;

    let mut rings = vec![first];
    if spec.queues > 1 {
        let because = |e| PortError::from_os(name, "share the interface among queues", e);
        let group = rings[0].join(None).map_err(because)?;
        for _ in 1..spec.queues {
            let ring = Ring::open(name, index)?;
            ring.join(Some(group)).map_err(because)?;
            rings.push(ring);
        }
    }
    let info = PortInfo {
        name: spec.name.clone(),
        kind: spec.kind,
        interface: name.clone(),
        mtu: actual,
        mac,
        queues: spec.queues,
        index,
    };
    Ok((info, rings))
}

/// Keeps the host's stack away from the interface.
fn take_over(name: &str, interface: &Interface) -> Result<(), PortError> {
    if let Some(address) = interface.ipv4() {
        return Err(PortError::HasAddress { interface: name.to_owned(), address });
    }
    setting(&format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1")
        .map_err(|source| PortError::Ipv6On { interface: name.to_owned(), source })?;
    // ARP for addresses of other interfaces is not answered here, and nothing is forwarded.
    for (key, value) in [("arp_ignore", "8"), ("forwarding", "0")] {
        setting(&format!("/proc/sys/net/ipv4/conf/{name}/{key}"), value)
            .map_err(|e| PortError::from_os(name, "keep the host's IPv4 stack away", e))?;
    }
    Ok(())
}

/// Writes a setting of the kernel, if it exists and has another value.
fn setting(path: &str, value: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(now) if now.trim() == value => Ok(()),
        _ => fs::write(path, value),
    }
}

/// Copies a frame out of the ring.
fn copy(slot: &Slot<'_>, pool: &mut Pool, now: u64, dropped: &mut RxDrops) -> Option<Frame> {
    let (header, bytes) = slot.packet.split_first_chunk::<VNET>()?;
    let tag = if slot.vlan.is_some() { 4 } else { 0 };
    let count = Count { frames: 1, packets: 1, bytes: (slot.len + tag) as u64 };
    if bytes.len() < slot.len || bytes.len() + tag > packet::LARGE {
        dropped.too_large += count;
        return None;
    }
    let Some(mut frame) = pool.alloc(bytes.len()) else {
        dropped.no_buffer += count;
        return None;
    };
    frame.data_mut().copy_from_slice(bytes);
    if vnet::decode(header, &mut frame).is_none() {
        dropped.error += count;
        pool.free(frame);
        return None;
    }
    if let Some((tpid, tci)) = slot.vlan {
        vnet::insert_vlan(&mut frame, tpid, tci);
    }
    frame.meta_mut().rx_time = now;
    Some(frame)
}

impl Port for AfPacket {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now: u64) -> Received {
        let mut received = Received::default();
        let (mut taken, mut bytes, mut losing) = (0, 0, false);
        while !batch.is_full() && bytes < BUDGET {
            let Some(slot) = self.ring.peek(taken) else { break };
            taken += 1;
            bytes += slot.len;
            losing |= slot.status & libc::TP_STATUS_LOSING != 0;
            let Some(frame) = copy(&slot, pool, now, &mut received.dropped) else { continue };
            match batch.push(frame) {
                Ok(_) => received.frames += 1,
                Err(frame) => pool.free(frame),
            }
        }
        self.ring.advance(taken);
        received.more = batch.is_full() || bytes >= BUDGET;

        // The kernel's drops are asked for when a frame says that there are some, and when the
        // ring has just run empty: the last frames of a burst have none behind them to say so.
        self.idle = if taken == 0 { self.idle.saturating_add(1) } else { 0 };
        if losing || self.idle == 1 {
            let drops = self.ring.kernel_drops();
            received.dropped.kernel += Count { frames: drops, packets: drops, bytes: 0 };
        }
        if self.idle.is_multiple_of(IDLE) && taken == 0 {
            self.ring.clear_error();
        }
        received
    }

    fn transmit(&mut self, batch: &mut Batch, outcomes: &mut Outcomes) {
        let mut messages = Messages::<BATCH>::new();
        let mut slots = [0; BATCH];
        for (i, frame) in batch.iter_mut() {
            if frame.headroom() < VNET {
                outcomes[i] = TxOutcome::Dropped(DropReason::PortTxError);
                continue;
            }
            outcomes[i] = TxOutcome::Sent;
            let header = vnet::encode(frame);
            frame.prepend(VNET).copy_from_slice(&header);
            slots[messages.len()] = i;
            messages.push(frame.data());
        }
        let slots = &slots[..messages.len()];
        // SAFETY: the frames stay in the batch, and are not moved before this call has returned.
        unsafe {
            messages.send(self.ring.fd(), |n, error| {
                let full = error == libc::EAGAIN;
                let to = if full { slots.len() } else { n + 1 };
                for &slot in &slots[n..to] {
                    outcomes[slot] = TxOutcome::Dropped(reason(error));
                }
                full
            });
        }
        for &i in slots {
            if let Some(frame) = batch.get_mut(i) {
                frame.trim_front(VNET);
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.fd())
    }
}

/// What it means that the kernel refused to send.
fn reason(error: c_int) -> DropReason {
    match error {
        libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => DropReason::PortTxFull,
        libc::ENETDOWN | libc::ENXIO | libc::ENODEV => DropReason::PortDown,
        _ => DropReason::PortTxError,
    }
}
