//! Captures of both kinds and orders, what lies between link and datagram, and damage.

mod files;
mod properties;
mod traffic;

use super::*;
use crate::internet::{EtherType, EthernetHeader, Ipv4Header, MacAddress, UDP_PROTOCOL, UdpHeader, VlanTag};
use core::net::{Ipv4Addr, SocketAddrV4};
use ropewalk_terms::Utc;

const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 9);

/// An IPv4 packet with this payload.
fn ipv4(protocol: u8, payload: &[u8], change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
    let mut header = Ipv4Header::new(SOURCE, DESTINATION, protocol);
    change(&mut header);
    let mut packet = vec![0; header.byte_count()];
    header.write(payload.len(), &mut packet).expect("it fits");
    packet.extend_from_slice(payload);
    packet
}

/// A datagram from port 9000 to port 9001.
fn udp(payload: &[u8]) -> Vec<u8> {
    let header =
        UdpHeader { source: SocketAddrV4::new(SOURCE, 9000), destination: SocketAddrV4::new(DESTINATION, 9001) };
    let mut datagram = vec![0; 8];
    header.write([payload].into_iter(), &mut datagram).expect("it fits");
    datagram.extend_from_slice(payload);
    datagram
}

/// A segment of a connection from port 5000 to port 5001.
fn tcp(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x13, 0x88, 0x13, 0x89];
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    segment
}

fn ethernet(vlan: Option<u16>, ip: &[u8]) -> Vec<u8> {
    let (destination, source) = (MacAddress([2; 6]), MacAddress([4; 6]));
    let header = EthernetHeader { destination, source, vlan: vlan.map(VlanTag), ether_type: EtherType::IPV4 };
    let mut frame = vec![0; header.byte_count()];
    header.write(&mut frame).expect("it fits");
    frame.extend_from_slice(ip);
    frame
}

/// A datagram as it lies on a cable.
fn frame(payload: &[u8]) -> Vec<u8> {
    ethernet(None, &ipv4(UDP_PROTOCOL, &udp(payload), |_| {}))
}

fn packet(link: LinkType, bytes: &[u8]) -> Packet<'_> {
    Packet { time: None, interface: 0, link, bytes, original_bytes: bytes.len() as u32 }
}

/// What a reader made of a file: packets with their times, and everything that went wrong.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    packets: Vec<(Option<i64>, u16, Vec<u8>)>,
    damaged: Vec<CaptureError>,
    end: Option<CaptureError>,
    left: usize,
}

/// Reads a file of which `step` bytes more are there each time that the reader asks.
fn read(file: &[u8], step: usize) -> Read {
    let (mut reader, mut read, mut at, mut there) = (CaptureReader::new(), Read::default(), 0, 0);
    loop {
        let bytes = match reader.next(&file[at..there]) {
            Err(error) => {
                read.end = Some(error);
                break;
            }
            Ok(Found::Needs(needed)) => {
                assert!(needed > there - at, "what is there is enough");
                if there == file.len() {
                    break;
                }
                there = file.len().min(there + step);
                continue;
            }
            Ok(Found::Other { bytes }) => bytes,
            Ok(Found::Damaged { bytes, error }) => {
                read.damaged.push(error);
                bytes
            }
            Ok(Found::Packet { bytes, packet }) => {
                read.packets.push((packet.time.map(|time| time.0), packet.link.0, packet.bytes.to_vec()));
                bytes
            }
        };
        assert!(bytes > 0 && bytes <= there - at);
        at += bytes;
    }
    read.left = file.len() - at;
    read
}

/// A capture of ours with these packets, a microsecond apart.
fn written(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    encode_interface(LinkType::ETHERNET, &mut file);
    for (index, packet) in packets.iter().enumerate() {
        encode_packet(Utc(1_700_000_000_000_000_000 + 1000 * index as i64), packet, &mut file);
    }
    file
}
