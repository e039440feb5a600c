//! Captures: any bytes are read to an end, and what their packets carry is found the same way however they come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::capture::{CaptureReader, Carried, Found, Streams, Stretches, Traffic};

/// What datagrams and connections of a file carry, of which `step` bytes more are there whenever more are needed.
fn carried(file: &[u8], step: usize) -> Vec<u8> {
    let (mut reader, mut traffic, mut streams) = (CaptureReader::new(), Traffic::new(), Streams::new());
    let (mut out, mut stretches, mut at, mut there) = (Vec::new(), Stretches::default(), 0, 0);
    loop {
        let window = &file[at..there];
        let bytes = match reader.next(window) {
            Err(_) => return out,
            Ok(Found::Needs(needed)) => {
                assert!(needed > window.len(), "what is there is not enough");
                if there == file.len() {
                    return out;
                }
                there = file.len().min(there + step);
                continue;
            }
            Ok(Found::Other { bytes } | Found::Damaged { bytes, .. }) => bytes,
            Ok(Found::Packet { bytes, packet }) => {
                match traffic.accept(&packet) {
                    Carried::Datagram(datagram) => out.extend_from_slice(datagram.payload),
                    Carried::Segment(segment) => {
                        stretches.clear();
                        streams.accept(&segment, &mut stretches);
                        stretches.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
                    }
                    Carried::Other(ip) => out.extend_from_slice(ip.payload),
                    Carried::Aside(_) => {}
                }
                bytes
            }
        };
        assert!((1..=window.len()).contains(&bytes), "what is done with was there");
        at += bytes;
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = carried(bytes, bytes.len().max(1));
    assert_eq!(carried(bytes, 7), whole);
});
