//! Every frame of the captures made by others, through devices of several shapes: nothing crashes, each frame ends in exactly one
//! counter, every account balances after every step, and nothing stays inside. The captures lie in the folder that
//! `SOFTDPU_SHARED` names, or in `shared` beside the workspace.

use crate::common::*;
use crate::vectors::Devices;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use wire::ethernet::ethertype;

/// Link types by number: those whose packets are frames, or become ones, and the names of the others.
fn link_type(number: i32) -> Result<Link, String> {
    // The upper bits say other things, as the length of an FCS.
    match number & 0xffff {
        1 => Ok(Link::Ethernet),
        12 | 14 | 101 => Ok(Link::Ip),
        228 => Ok(Link::Ipv4),
        229 => Ok(Link::Ipv6),
        0 => Err("NULL".into()),
        9 => Err("PPP".into()),
        50 => Err("PPP_HDLC".into()),
        104 => Err("C_HDLC".into()),
        105 => Err("IEEE802_11".into()),
        107 => Err("FRELAY".into()),
        108 => Err("LOOP".into()),
        113 => Err("LINUX_SLL".into()),
        127 => Err("IEEE802_11_RADIOTAP".into()),
        276 => Err("LINUX_SLL2".into()),
        other => Err(format!("link type {other}")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Ethernet,
    /// IP of the version that the first byte says.
    Ip,
    Ipv4,
    Ipv6,
}

impl Link {
    /// The packet as a frame.
    fn frame(self, packet: &[u8]) -> Vec<u8> {
        let ethertype = match self {
            Link::Ethernet => return packet.to_vec(),
            Link::Ipv6 => ethertype::IPV6,
            Link::Ip if packet.first().is_some_and(|b| b >> 4 == 6) => ethertype::IPV6,
            Link::Ip | Link::Ipv4 => ethertype::IPV4,
        };
        [&GATEWAY[..], &mac(BLUE_1), &ethertype.to_be_bytes(), packet].concat()
    }
}

/// One record: a frame, or the name of a link type that is not read.
type Record = Result<Vec<u8>, String>;

fn records(path: &Path, file: &[u8]) -> Vec<Record> {
    let read = |link: Linktype, packet: &[u8]| link_type(link.0).map(|link| link.frame(packet));
    let mut reader = create_reader(file.len().max(1 << 16) * 2, Cursor::new(file))
        .unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
    let (mut links, mut out) = (Vec::new(), Vec::new());
    loop {
        match reader.next() {
            Ok((length, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => links = vec![header.network],
                    PcapBlockOwned::Legacy(record) => out.push(read(links[0], record.data)),
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => links.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        links.push(interface.linktype)
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(p)) => {
                        out.push(read(links[p.if_id as usize], p.packet_data()));
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(p)) => out.push(read(links[0], p.packet_data())),
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return out,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
            }
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
}

/// How many records a file holds, by the lengths that it tells alone.
fn count(file: &[u8]) -> usize {
    let ng = file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
    let big = if ng { file[8] == 0x1a } else { file[0] == 0xa1 };
    let word = |at: usize| {
        let word: [u8; 4] = file.get(at..at + 4)?.try_into().ok()?;
        Some(if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) } as usize)
    };
    let (mut at, mut records) = (if ng { 0 } else { 24 }, 0);
    while at < file.len() {
        let (packet, length) = match ng {
            true => (matches!(word(at), Some(3 | 6)), word(at + 4)),
            // A record's header has 16 bytes; in one variant, 24.
            false => {
                (true, word(at + 8).map(|n| n + if matches!(word(0), Some(0xa1b2_cd34)) { 24 } else { 16 }))
            }
        };
        let Some(length) = length.filter(|length| *length >= 12 && at + length <= file.len()) else { break };
        records += usize::from(packet);
        at += length;
    }
    records
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, out),
            path if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") => out.push(path),
            _ => {}
        }
    }
}

#[test]
fn every_frame_of_others_ends_in_one_counter() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("SOFTDPU_SHARED").map_or(beside, PathBuf::from).join("captures");
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    paths.sort();
    if paths.is_empty() {
        println!("skipped: there are no captures in {}", folder.display());
        return;
    }
    let mut devices = Devices::new();
    let (mut held, mut sent, mut unread) = (0, 0, BTreeMap::<String, usize>::new());
    for path in &paths {
        let name = path.strip_prefix(&folder).unwrap_or(path).display();
        let file = fs::read(path).expect("a capture");
        let records = records(path, &file);
        let expected = count(&file);
        assert!(expected > 0, "{name}: no record");
        assert_eq!(records.len(), expected, "{name}: records read, records in it");
        held += expected;
        for (n, record) in records.iter().enumerate() {
            match record {
                Ok(frame) => {
                    sent += 1;
                    devices.send(&format!("{name}, record {}", n + 1), frame);
                }
                Err(link) => *unread.entry(format!("{name} ({link})")).or_default() += 1,
            }
        }
    }
    let not_read: usize = unread.values().sum();
    for (name, records) in &unread {
        println!("not read: {name}, {records} records");
    }
    println!("{sent} frames of {} captures went in, {not_read} records were not read", paths.len());
    assert_eq!(sent + not_read, held, "all that the folder holds");
    let forwarded = devices.finish(sent);
    assert!(forwarded > sent / 4, "{forwarded} of {sent} frames got through an open device");
}

#[test]
fn both_formats_are_read() {
    // One record of four bytes each: pcap of either byte order, with an FCS length beside the link type, and pcapng.
    let little = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let big = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    let pcap = |network| [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, network, 0, 0, 4, 4, 0x4141_4141];
    let pcap_big = |network| [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, network, 0, 0, 4, 90, 0x4141_4141];
    let ng = [
        vec![0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28],
        vec![1, 20, 101, 0, 20],
        vec![6, 36, 0, 0, 0, 4, 4, 0x4141_4141, 36],
    ];
    let rows = [
        ("pcap", little(&pcap(1)), Ok(b"AAAA".to_vec())),
        ("the other byte order, cut short by its snap length", big(&pcap_big(1)), Ok(b"AAAA".to_vec())),
        ("an FCS length", little(&pcap(0x4400_0001)), Ok(b"AAAA".to_vec())),
        ("pcapng, raw IP", little(&ng.concat()), Ok(Link::Ip.frame(b"AAAA"))),
        ("another link type", little(&pcap(113)), Err("LINUX_SLL".into())),
    ];
    for (name, file, expected) in rows {
        assert_eq!((records(Path::new(name), &file), count(&file)), (vec![expected], 1), "{name}");
    }
}
