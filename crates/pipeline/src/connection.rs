//! Connections: one record for both directions of a conversation, owned by one thread.

use crate::judge::Adjacency;
use crate::key::FlowKey;
use crate::verdict::VerdictId;
use tables::exact;

/// Who decides the packets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Tier {
    /// The host path; the record here is only a marker.
    #[default]
    Host,
    /// The device, as soon as what was punted before has left.
    Pending,
    /// The device.
    Device,
}

/// State of a TCP connection (RFC 9293, 3.3.2, as seen from between).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum TcpState {
    /// Not TCP.
    #[default]
    None,
    /// The opener's SYN was seen.
    SynSent,
    /// The answering SYN was seen.
    SynReceived,
    /// The handshake is complete.
    Established,
    /// One side has sent its FIN.
    FinWait,
    /// Both have.
    Closing,
    /// Both FINs are acknowledged, or a RST ended it.
    Closed,
}

/// What is remembered of one side of a TCP connection, in host order (van Rooij, "Real Stateful TCP Packet Filtering").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TcpSide {
    /// Highest sequence number it has sent, plus length.
    pub end: u32,
    /// Highest sequence number it may send.
    pub max_end: u32,
    /// Largest window that it has advertised, scaled.
    pub max_window: u32,
    /// Its window scale (RFC 7323, 2.2); 0xff: none was offered.
    pub scale: u8,
    /// Whether its FIN was seen.
    pub fin: bool,
}

/// What conntrack remembers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Track {
    /// TCP's state.
    pub tcp: TcpState,
    /// Whether the other side has answered.
    pub replied: bool,
    /// The opener's side and the other's.
    pub sides: [TcpSide; 2],
}

/// The state of a connection, as it moves between owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The direction in which it was opened.
    pub key: FlowKey,
    /// The port where it was opened.
    pub port: u16,
    /// Where the opener's packets leave.
    pub forward: Adjacency,
    /// Where the answers leave.
    pub backward: Adjacency,
    /// Conntrack's part.
    pub track: Track,
    /// When it was opened, ms.
    pub opened: u32,
    /// Frames so far.
    pub frames: u32,
}

/// The hot line: one direction.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Flow {
    /// The key that packets of this direction have.
    pub key: FlowKey,
    /// The owner's stamp under which it was judged; any other value sends its packets to the slow side.
    pub stamp: u32,
    /// The verdict, whose counters its packets raise.
    pub verdict: VerdictId,
    /// The last packet, ms of the device's clock.
    pub seen: u32,
    /// Frames of this direction; stands still at the end of its range.
    pub frames: u32,
    /// The egress port.
    pub port: u16,
    /// The destination MAC.
    pub mac: [u8; 6],
}

/// The cold line: what is not needed for every packet.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Cold {
    /// Conntrack's part.
    pub track: Track,
    /// When it was opened, ms.
    pub opened: u32,
    /// Punted frames that have not come back.
    pub in_flight: u16,
    /// The port where it was opened.
    pub port: u16,
    /// Low bits of the generation under which the device took it; another one means that its flow is lost.
    pub generation: u16,
    /// Who decides.
    pub tier: Tier,
    /// Whether the record is in use.
    pub used: bool,
    /// Whether the reverse key is known and in the index.
    pub paired: bool,
    /// A marker whose connection is over: it ends when its punted frames have landed.
    pub ended: bool,
    /// A marker of a connection that the device had and gave to the host path.
    pub adopted: bool,
}

const _: () = assert!(size_of::<Flow>() == 64);
const _: () = assert!(size_of::<Cold>() == 64);

/// A connection's record.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Connection {
    /// The opener's direction and the answers'.
    pub flows: [Flow; 2],
    /// The rest.
    pub cold: Cold,
}

impl Connection {
    /// The ENI behind which the answers come in.
    pub fn peer_eni(&self) -> u16 {
        self.flows[1].key.eni
    }

    /// What moves to another owner.
    pub fn state(&self) -> State {
        let [f, b] = &self.flows;
        State {
            key: f.key,
            port: self.cold.port,
            forward: Adjacency { port: f.port, eni: b.key.eni, mac: f.mac },
            backward: Adjacency { port: b.port, eni: f.key.eni, mac: b.mac },
            track: self.cold.track,
            opened: self.cold.opened,
            frames: f.frames.saturating_add(b.frames),
        }
    }

    /// The last packet of either direction, ms.
    pub fn seen(&self) -> u32 {
        let [a, b] = [self.flows[0].seen, self.flows[1].seen];
        if (a.wrapping_sub(b) as i32) > 0 { a } else { b }
    }
}

/// A flow's place: the record's number, and the direction in the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// The handle of direction `dir` (0: the opener's) of a record.
    pub fn new(record: u32, dir: usize) -> Handle {
        Handle(record << 1 | dir as u32)
    }

    /// The record's number.
    #[inline]
    pub fn record(self) -> u32 {
        self.0 >> 1
    }

    /// The direction: 0 is the opener's.
    #[inline]
    pub fn dir(self) -> usize {
        (self.0 & 1) as usize
    }
}

const CHUNK: usize = 1024;

/// The connections of one thread: a slab of records and an index of their flows.
pub struct Connections {
    chunks: Vec<Box<[Connection]>>,
    free: Vec<u32>,
    made: u32,
    used: u32,
    index: exact::Index,
    seed: u64,
}

impl Connections {
    /// An empty table; `seed` keys the hash, so that nobody outside can aim at one bucket.
    pub fn new(seed: u64) -> Self {
        Connections {
            chunks: Vec::new(),
            free: Vec::new(),
            made: 0,
            used: 0,
            index: exact::Index::with_capacity(0),
            seed,
        }
    }

    /// Records in use.
    pub fn len(&self) -> usize {
        self.used as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Records ever made, in use or free: the range of a sweep.
    pub fn capacity(&self) -> u32 {
        self.made
    }

    /// The hash of a key in this table.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        key.table_hash(self.seed)
    }

    /// Brings the place of a hash near.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// The flow with this key.
    #[inline]
    pub fn find(&self, hash: u64, key: &FlowKey) -> Option<Handle> {
        self.index.find(hash, |h| self.flow(Handle(h)).key == *key).map(Handle)
    }

    /// A record by its number.
    #[inline]
    pub fn get(&self, record: u32) -> &Connection {
        &self.chunks[record as usize / CHUNK][record as usize % CHUNK]
    }

    /// A record by its number.
    #[inline]
    pub fn get_mut(&mut self, record: u32) -> &mut Connection {
        &mut self.chunks[record as usize / CHUNK][record as usize % CHUNK]
    }

    #[inline]
    fn flow(&self, handle: Handle) -> &Flow {
        &self.get(handle.record()).flows[handle.dir()]
    }

    /// Makes a record for `key`; the other direction is added by [`pair`](Self::pair).
    pub fn insert(&mut self, key: &FlowKey, port: u16, now_ms: u32) -> u32 {
        let record = self.free.pop().unwrap_or_else(|| {
            if self.made as usize == self.chunks.len() * CHUNK {
                self.chunks.push(vec![EMPTY; CHUNK].into_boxed_slice());
            }
            self.made += 1;
            self.made - 1
        });
        let c = self.get_mut(record);
        *c = EMPTY;
        c.flows[0].key = *key;
        c.flows[0].seen = now_ms;
        c.flows[1].seen = now_ms;
        c.cold = Cold { used: true, port, opened: now_ms, ..EMPTY.cold };
        self.used += 1;
        self.add(Handle::new(record, 0));
        record
    }

    /// Adds the answers' direction, whose packets have `key`.
    pub fn pair(&mut self, record: u32, key: &FlowKey) {
        self.unpair(record);
        let c = self.get_mut(record);
        c.flows[1].key = *key;
        c.cold.paired = true;
        self.add(Handle::new(record, 1));
    }

    /// Whether packets with this key are of this direction of a record.
    #[inline]
    pub fn is_of(&self, record: u32, dir: usize, key: &FlowKey) -> bool {
        let connection = self.get(record);
        (dir == 0 || connection.cold.paired) && connection.flows[dir].key == *key
    }

    /// Takes the answers' direction away, if there is one.
    pub fn unpair(&mut self, record: u32) {
        if !self.get(record).cold.paired {
            return;
        }
        let key = self.get(record).flows[1].key;
        self.index.remove(key.table_hash(self.seed), Handle::new(record, 1).0);
        self.get_mut(record).cold.paired = false;
    }

    fn add(&mut self, handle: Handle) {
        let hash = self.hash(&self.flow(handle).key);
        let (chunks, seed) = (&self.chunks, self.seed);
        self.index.insert(hash, handle.0, |h| {
            let h = Handle(h);
            let record = h.record() as usize;
            chunks[record / CHUNK][record % CHUNK].flows[h.dir()].key.table_hash(seed)
        });
    }

    /// Ends a record.
    pub fn remove(&mut self, record: u32) {
        self.unpair(record);
        let key = self.get(record).flows[0].key;
        self.index.remove(key.table_hash(self.seed), Handle::new(record, 0).0);
        self.get_mut(record).cold.used = false;
        self.free.push(record);
        self.used -= 1;
    }

    /// Bytes that the table holds, index included.
    pub fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Connection>()
            + self.free.capacity() * size_of::<u32>()
            + self.index.memory_bytes()
    }
}

const EMPTY: Connection = Connection {
    flows: [Flow {
        key: FlowKey::new(0, 0, 0, 0, 0),
        stamp: 0,
        verdict: VerdictId(u32::MAX),
        seen: 0,
        frames: 0,
        port: 0,
        mac: [0; 6],
    }; 2],
    cold: Cold {
        track: Track {
            tcp: TcpState::None,
            replied: false,
            sides: [TcpSide { end: 0, max_end: 0, max_window: 0, scale: 0, fin: false }; 2],
        },
        opened: 0,
        in_flight: 0,
        port: 0,
        generation: 0,
        tier: Tier::Host,
        used: false,
        paired: false,
        ended: false,
        adopted: false,
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn key(n: u16) -> FlowKey {
        FlowKey::new(1, 2, n, 80, 6).with_eni(1)
    }

    proptest! {
        #[test]
        fn both_directions_are_found_until_removed(ops in proptest::collection::vec((0u16..40, 0u8..3), 1..300)) {
            let mut table = Connections::new(7);
            let mut reference: HashMap<u16, (u32, bool)> = HashMap::new();
            for (n, op) in ops {
                match (op, reference.get(&n).copied()) {
                    (0, None) => {
                        let record = table.insert(&key(n), 1, 5);
                        reference.insert(n, (record, false));
                    }
                    (1, Some((record, _))) => {
                        table.pair(record, &key(n).reversed(2));
                        reference.insert(n, (record, true));
                    }
                    (2, Some((record, _))) => {
                        table.remove(record);
                        reference.remove(&n);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), reference.len());
                for n in 0..40 {
                    let there = reference.get(&n);
                    let (k, r) = (key(n), key(n).reversed(2));
                    prop_assert_eq!(
                        table.find(table.hash(&k), &k),
                        there.map(|t| Handle::new(t.0, 0))
                    );
                    prop_assert_eq!(
                        table.find(table.hash(&r), &r),
                        there.filter(|t| t.1).map(|t| Handle::new(t.0, 1))
                    );
                }
            }
        }
    }
}
