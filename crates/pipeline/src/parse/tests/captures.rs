//! Captures made by others, where they are at hand: `SOFTDPU_SHARED`, or `shared` beside the workspace.

use super::*;
use std::path::{Path, PathBuf};

fn word(bytes: &[u8], at: usize, big: bool) -> Option<usize> {
    let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) } as usize)
}

/// The records of a pcap file, or the enhanced packet blocks of a pcapng file; what is cut short ends the list.
fn records(file: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut read = |header: usize, length_at: usize, big, at: usize| {
        let length = word(file, at + length_at, big)?;
        out.push(file.get(at + header..at + header + length)?);
        Some(at + header + length)
    };
    match file.first_chunk() {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => {
            let big = file.get(8) == Some(&0x1a);
            let mut at = 0;
            while let (Some(kind), Some(length @ 12..)) = (word(file, at, big), word(file, at + 4, big)) {
                if kind == 6 {
                    read(28, 20, big, at);
                }
                at += length;
            }
        }
        Some(magic) => {
            let big = magic[0] == 0xa1;
            let mut at = 24;
            while let Some(next) = read(16, 8, big, at) {
                at = next;
            }
        }
        None => {}
    }
    out
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
            out.push(path);
        }
    }
}

#[test]
fn frames_of_others_never_panic() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("SOFTDPU_SHARED").map_or(beside, PathBuf::from);
    let mut paths = Vec::new();
    files(&shared.join("captures"), &mut paths);
    if paths.is_empty() {
        println!("skipped: no captures in {}", shared.display());
        return;
    }
    let (mut frames, mut parsed) = (0, 0);
    for path in &paths {
        let file = std::fs::read(path).unwrap();
        let records = records(&file);
        assert!(!records.is_empty(), "{}: no record read", path.display());
        for bytes in records {
            // Whatever the link type: as a frame, and as an IP packet of either version behind a made-up header.
            for frame in [bytes.to_vec(), frame(ethertype::IPV4, bytes), frame(ethertype::IPV6, bytes)] {
                for meta in [Meta::default(), gso()] {
                    check(&frame, &meta).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                }
                parsed += usize::from(parse(&frame, &Meta::default()).is_ok());
            }
            frames += 1;
        }
    }
    println!("{frames} frames of {} captures, {parsed} parsed", paths.len());
    assert!(frames > 1000 && parsed > 100, "{frames} frames, {parsed} parsed");
}
