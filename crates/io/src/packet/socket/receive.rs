//! Receiving from a socket, one packet or a batch at a time.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_memory::{ByteQueue, Payload, Staging};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::internet::Ipv4Header;

use super::send::SocketSender;
use super::{
    Batch, Control, Membership, NO_ADDRESS, Room, bound, from_kernel, index_with, interface_with, set_option,
    set_receive_buffer, socket_memory,
};
use crate::packet::probe::Around;
use crate::packet::{
    Flow, MOST_BATCH, MemoryInUse, Packet, PacketError, PacketMemory, QueueInUse, ReceiveConfig, ReceiveCounters,
    ReceiveMechanism, Receiver, SendConfig,
};

/// Bytes of the longest header that IP puts in front of a raw packet.
const MOST_IP_HEADER: usize = 60;
/// Bytes of the longest train of coupled UDP packets.
const MOST_TRAIN: usize = 65_535;

/// Receives a flow from a socket.
pub struct SocketReceiver {
    socket: Arc<OwnedFd>,
    /// `None` if it was taken, or there is no group.
    membership: Option<Membership>,
    groups_lost: Arc<AtomicU64>,
    address: SocketAddr,
    config: ReceiveConfig,
    memory: PacketMemory,
    /// Bytes of room for one packet.
    room: usize,
    batch: Batch,
    /// Coupled packets, while they are cut apart.
    train: ByteQueue,
    counters: ReceiveCounters,
    /// The kernel's number of drops at the last reading.
    drops: u32,
    around: Around,
}

impl SocketReceiver {
    /// Opens a socket and binds it.
    ///
    /// # Errors
    /// Impossible settings, an address that is in use or not this machine's, or no right to open a raw socket.
    pub fn new(config: ReceiveConfig, memory: impl Into<PacketMemory>) -> Result<Self, PacketError> {
        let memory = memory.into();
        let room = room(&config, &memory)?;
        let (socket, address) = bound(config.flow, scoped(&config), config.is_shared)?;
        let refused = |what: &'static str| move |source: io::Error| PacketError::of(what, address, source);
        let (socket, groups_lost) = (Arc::new(socket), Arc::default());
        let membership = address.ip().is_multicast().then(|| {
            Membership::join(&socket, address, config.interface, &groups_lost).map_err(refused("cannot join the group"))
        });
        let membership = membership.transpose()?;
        set_receive_buffer(&socket, config.socket_buffer).map_err(refused("cannot set the receive buffer"))?;
        if config.mechanism == ReceiveMechanism::UdpGro {
            set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1).map_err(refused("the kernel couples no packets"))?;
        }
        let drops = socket_memory(&socket).drops;
        let around = Around::new(interface_with(config.interface.unwrap_or(address.ip())));
        let batch = if config.mechanism == ReceiveMechanism::RecvMmsg { config.batch } else { 1 };
        Ok(Self {
            socket,
            membership,
            groups_lost,
            address,
            config,
            memory,
            room,
            batch: Batch::new(batch),
            train: ByteQueue::with_capacity(1),
            counters: ReceiveCounters::default(),
            drops,
            around,
        })
    }

    /// Makes a sender over the same socket: it sends from the receiver's address, so that its packets can be answered.
    /// The flow and the address in its configuration are replaced by the receiver's.
    ///
    /// # Errors
    /// As [`SocketSender::new`].
    pub fn sender(&self, config: SendConfig, staging: Staging) -> Result<SocketSender, PacketError> {
        let SocketAddr::V4(address) = self.address else {
            return Err(PacketError::Config { what: "packets are sent over IPv4 alone" });
        };
        let config = SendConfig { flow: self.config.flow, address, ..config };
        SocketSender::over(Arc::clone(&self.socket), address, config, staging)
    }

    /// Takes the watch over the membership of its multicast group, if it has joined one; once.
    pub fn take_membership(&mut self) -> Option<Membership> {
        self.membership.take()
    }

    /// Receives one packet into the memory. False if there is nothing to receive, or no room.
    fn receive_one(&mut self, packets: &mut Vec<Packet>) -> bool {
        let Some((start, _)) = self.memory.room(self.room) else {
            self.counters.dry += 1;
            return false;
        };
        let mut from = NO_ADDRESS;
        let mut address_bytes = size_of_val(&from) as libc::socklen_t;
        // A header as for batches would mean two more copies, which the kernel checks.
        // SAFETY: writes to the room, which is ours until it is taken, and to an address of this size.
        let received = unsafe {
            let address = (&raw mut from).cast();
            let socket = self.socket.as_raw_fd();
            libc::recvfrom(socket, start.cast(), self.room, libc::MSG_DONTWAIT, address, &raw mut address_bytes)
        };
        self.counters.calls += 1;
        let Ok(bytes) = usize::try_from(received) else { return false };
        // A truncated packet is detected by its length: the room has a byte more than the largest packet.
        self.take(bytes, 0, 0, &from, packets);
        true
    }

    /// Receives one packet, or a train of them, into the memory. False if there is nothing to receive, or no room.
    fn receive_train(&mut self, packets: &mut Vec<Packet>) -> bool {
        let Some((start, _)) = self.memory.room(self.room) else {
            self.counters.dry += 1;
            return false;
        };
        self.batch.prepare(0, start, self.room);
        let mut control = Control::EMPTY;
        let header = &mut self.batch.headers[0].msg_hdr;
        (header.msg_control, header.msg_controllen) = (control.address(), Control::BYTES);
        // SAFETY: writes to the room, which is ours until it is taken, to the batch's address, and to the control
        // message.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), header, libc::MSG_DONTWAIT) };
        self.counters.calls += 1;
        let (flags, control_bytes) = (header.msg_flags, header.msg_controllen);
        header.msg_control = core::ptr::null_mut();
        header.msg_controllen = 0;
        let Ok(bytes) = usize::try_from(received) else { return false };
        let from = self.batch.addresses[0];
        match control.segment(control_bytes) {
            Some(segment) if segment < bytes && flags & libc::MSG_TRUNC == 0 => {
                self.take_train(bytes, segment, from_kernel(&from), packets);
            }
            _ => self.take(bytes, flags, 0, &from, packets),
        }
        true
    }

    /// Delivers the packets of a train.
    fn take_train(&mut self, bytes: usize, segment: usize, from: SocketAddr, packets: &mut Vec<Packet>) {
        // SAFETY: the kernel has just written that many bytes.
        unsafe { self.memory.take(bytes, 0) }.into_iter().for_each(|slice| self.train.push(slice));
        while !self.train.is_empty() {
            let payload = self.train.take(segment.min(self.train.len()));
            self.hand_on(from, payload, packets);
        }
    }

    /// Receives a batch of packets by one call. False if there is nothing to receive, or no room.
    fn receive_many(&mut self, most: usize, packets: &mut Vec<Packet>) -> bool {
        let Some((start, bytes)) = self.memory.room(self.room) else {
            self.counters.dry += 1;
            return false;
        };
        let count = most.min(bytes / self.room).min(self.batch.headers.len());
        for index in 0..count {
            // Within the room, which is that many times as large.
            self.batch.prepare(index, start.wrapping_add(index * self.room), self.room);
        }
        let headers = self.batch.headers.as_mut_ptr();
        // SAFETY: writes to the room, which is ours until it is taken, and to the batch's addresses and headers.
        let received = unsafe {
            libc::recvmmsg(self.socket.as_raw_fd(), headers, count as u32, libc::MSG_DONTWAIT, core::ptr::null_mut())
        };
        self.counters.calls += 1;
        let Ok(received) = usize::try_from(received) else { return false };
        for index in 0..received {
            let libc::mmsghdr { msg_hdr, msg_len } = self.batch.headers[index];
            let from = self.batch.addresses[index];
            // The room of a packet ends where that of the next one begins, except for the last one.
            let distance = if index + 1 < received { self.room } else { 0 };
            self.take(msg_len as usize, msg_hdr.msg_flags, distance, &from, packets);
        }
        received == count
    }

    /// Takes a packet of `bytes` bytes out of the room.
    fn take(&mut self, bytes: usize, flags: i32, distance: usize, from: &Room, packets: &mut Vec<Packet>) {
        // SAFETY: the kernel has just written that many bytes.
        let slice = unsafe { self.memory.take(bytes, distance) };
        let mut payload = slice.map(Payload::from).unwrap_or_default();
        if let Flow::Ip(_) = self.config.flow
            && let IpAddr::V4(own) = self.address.ip()
            && !take_header_off(&mut payload, own)
        {
            return;
        }
        if flags & libc::MSG_TRUNC != 0 {
            self.counters.lost.add(Cause::Truncated, 1);
        } else {
            self.hand_on(from_kernel(from), payload, packets);
        }
    }

    fn hand_on(&mut self, from: SocketAddr, payload: Payload, packets: &mut Vec<Packet>) {
        if payload.len() > self.config.largest {
            self.counters.lost.add(Cause::Truncated, 1);
            return;
        }
        let from = if self.config.flow == Flow::Udp { from } else { SocketAddr::new(from.ip(), 0) };
        self.counters.packets += 1;
        self.counters.bytes += payload.len() as u64;
        packets.push(Packet { from, to: 0, payload, came: None });
    }
}

/// The address to bind to: a link-local IPv6 group needs an interface.
fn scoped(config: &ReceiveConfig) -> SocketAddr {
    match (config.address, config.interface) {
        (SocketAddr::V6(mut group), Some(interface)) if group.ip().is_multicast() => {
            group.set_scope_id(index_with(interface));
            group.into()
        }
        (address, _) => address,
    }
}

/// Removes the header of a raw packet, and returns whether the packet was sent to this address: until a raw socket is
/// bound to its own address it gets the packets of all.
fn take_header_off(packet: &mut Payload, own: Ipv4Addr) -> bool {
    let Some(header) = packet.read_array::<{ Ipv4Header::MIN_LEN }>(0) else { return false };
    packet.skip(usize::from(header[0] & 0xF) * 4);
    own.is_unspecified() || header[16..] == own.octets()
}

/// Bytes of room for a packet, including the IP header if it is received too.
fn room(config: &ReceiveConfig, memory: &PacketMemory) -> Result<usize, PacketError> {
    let room = match (config.mechanism, config.flow) {
        (ReceiveMechanism::UdpGro, Flow::Udp) => MOST_TRAIN,
        (ReceiveMechanism::UdpGro, Flow::Ip(_)) => {
            return Err(PacketError::Config { what: "the kernel couples UDP packets alone; use recvmmsg for raw IP" });
        }
        (_, Flow::Udp) => config.largest,
        (_, Flow::Ip(_)) => config.largest + MOST_IP_HEADER,
    };
    // Rooms of a batch are adjacent and aligned; an extra byte detects packets that are too long.
    let room = (room + 1).next_multiple_of(16);
    if !(1..=MOST_BATCH).contains(&config.batch) {
        return Err(PacketError::Config { what: "a batch has 1 to 1024 packets" });
    }
    if config.largest == 0 || room > memory.largest() {
        return Err(PacketError::Config {
            what: "a block must have room for the largest packet (65,536 bytes where packets are coupled)",
        });
    }
    Ok(room)
}

impl AsFd for SocketReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Receiver for SocketReceiver {
    fn receive(&mut self, _now: Instant, packets: &mut Vec<Packet>) -> usize {
        let (before, most) = (packets.len(), self.config.batch);
        while packets.len() - before < most {
            let left = most - (packets.len() - before);
            let goes_on = match self.config.mechanism {
                ReceiveMechanism::RecvFrom => self.receive_one(packets),
                ReceiveMechanism::UdpGro => self.receive_train(packets),
                // One call for each batch, unless the block's end cut it short.
                ReceiveMechanism::RecvMmsg => self.receive_many(left, packets),
            };
            if !goes_on {
                break;
            }
        }
        packets.len() - before
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn prepare_wait(&mut self) -> bool {
        // The descriptor stays readable as long as packets wait.
        true
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&mut self) -> ReceiveCounters {
        let (drops, around) = (socket_memory(&self.socket).drops, self.around.read());
        let dropped = u64::from(drops.wrapping_sub(self.drops));
        // A socket's count does not give the cause. UDP counts wrong checksums for all its sockets together.
        let wrong = around.get(Cause::BadChecksum).saturating_sub(self.counters.around.get(Cause::BadChecksum));
        let wrong = if self.config.flow == Flow::Udp { wrong.min(dropped) } else { 0 };
        self.counters.lost.add(Cause::BadChecksum, wrong);
        self.counters.lost.add(Cause::SocketQueueFull, dropped - wrong);
        (self.drops, self.counters.around) = (drops, around);
        self.counters.groups_lost = self.groups_lost.load(Ordering::Relaxed);
        self.counters
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        self.memory.in_use()
    }

    fn queue_in_use(&mut self) -> QueueInUse {
        let memory = socket_memory(&self.socket);
        let packet = counted_as(self.config.largest);
        QueueInUse { used: memory.waiting.into(), room: memory.allowed.into(), packet }
    }
}

/// Maximum bytes that the kernel counts for a packet with such a payload (`truesize`): a buffer of a power of two,
/// which includes headers and the shared information (`skb_shared_info`, 320 bytes), and a description of 256 bytes. A
/// packet that arrived in fragments is counted as all of them.
const fn counted_as(payload_bytes: usize) -> u64 {
    ((payload_bytes + 512).next_power_of_two() + 256) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_memory::{Owner, Pool, PoolConfig};
    use ropewalk_wire::internet::{IpHeaders, IpNumber, PacketBuilder};

    #[test]
    fn a_receiver_moves_to_the_thread_that_uses_it() {
        const fn moves<T: Send>() {}
        moves::<SocketReceiver>();
    }

    #[test]
    fn a_raw_packet_that_came_for_others_before_the_socket_was_bound_is_not_taken() {
        let mut pool = Pool::new(PoolConfig::heap("packets", 4096, 1)).expect("memory");
        let mut loan = pool.loan(Owner::SHARED).expect("a block");
        let (from, own) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut taken = |to, options: &[u8]| {
            let (from, to) = (from.octets(), Ipv4Addr::octets(&to));
            let mut header = Ipv4Header::new(3, 64, IpNumber(253), from, to).expect("short");
            header.options = options.try_into().expect("whole words");
            let builder = PacketBuilder::ip(IpHeaders::Ipv4(header, Default::default()));
            let mut bytes = Vec::new();
            builder.write(&mut bytes, IpNumber(253), b"abc").expect("room");
            let mut payload = loan.append(&bytes).map(Payload::from).expect("room");
            take_header_off(&mut payload, own).then(|| payload.to_vec())
        };
        assert_eq!(taken(own, &[]), Some(b"abc".to_vec()));
        assert_eq!(taken(own, &[1; 12]), Some(b"abc".to_vec()), "options are no payload");
        assert_eq!(taken(Ipv4Addr::new(10, 0, 0, 3), &[]), None);
        let mut runt = loan.append(&[0x45; 19]).map(Payload::from).expect("room");
        assert!(!take_header_off(&mut runt, own));
        let mut any = loan.append(&[0x45; 21]).map(Payload::from).expect("room");
        assert!(take_header_off(&mut any, Ipv4Addr::UNSPECIFIED) && any.len() == 1);
    }
}
