//! The kernel's sockets.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;

use super::{BATCH, BarePackets, ROOM, bound};

/// Buffer for packets that the kernel has coalesced.
const TRAIN: usize = 65_536;
/// Bytes of the IP header, which precedes packets received directly over IP.
const IP_HEADER: usize = 20;
/// Control messages: a header of 16 bytes and a number.
const CONTROL: usize = 24;

/// A socket, and all arguments of its calls.
pub(super) struct SocketLoop {
    socket: OwnedFd,
    pub(super) address: SocketAddrV4,
    how: BarePackets,
    headers: Box<[libc::mmsghdr]>,
    pieces: Box<[libc::iovec]>,
    control: Box<Control>,
    /// The memory of the pieces, and the senders of the packets: read by the kernel alone.
    room: Box<[u8]>,
    _addresses: Box<[libc::sockaddr_in]>,
}

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: the pointers lead to what the loop owns.
unsafe impl Send for SocketLoop {}

impl SocketLoop {
    pub(super) fn open(how: BarePackets, address: SocketAddrV4, waiting: i32) -> io::Result<Self> {
        let (socket, address) = bound(address, how == BarePackets::RawIp)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &waiting)
            .or_else(|_| set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &waiting))?;
        if how == BarePackets::UdpGro {
            set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1)?;
        }
        let mut room = vec![0; (BATCH * ROOM).max(TRAIN)].into_boxed_slice();
        // SAFETY: numbers and pointers, for which zeros are good.
        let (unset, empty) = unsafe { (zeroed::<libc::sockaddr_in>(), zeroed::<libc::mmsghdr>()) };
        let mut addresses = vec![unset; BATCH].into_boxed_slice();
        let piece =
            |index| libc::iovec { iov_base: room.as_mut_ptr().wrapping_add(index * ROOM).cast(), iov_len: ROOM };
        let mut pieces: Box<[libc::iovec]> = (0..BATCH).map(piece).collect();
        let mut headers = vec![empty; BATCH].into_boxed_slice();
        for ((header, piece), address) in headers.iter_mut().zip(&mut pieces).zip(&mut addresses) {
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut *address).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        }
        if how == BarePackets::UdpGro {
            pieces[0].iov_len = TRAIN;
        }
        let control = Box::new(Control([0; CONTROL]));
        Ok(Self { socket, address, how, headers, pieces, control, room, _addresses: addresses })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn receive(&mut self) -> u64 {
        match self.how {
            BarePackets::RecvFrom => (0..BATCH as u64).take_while(|_| self.receive_one().is_some()).count() as u64,
            BarePackets::UdpGro => self.receive_train().map_or(0, |(bytes, each)| bytes.div_ceil(each) as u64),
            _ => self.receive_many() as u64,
        }
    }

    pub(super) fn echo(&mut self) -> u64 {
        match self.how {
            BarePackets::RecvFrom => (0..BATCH as u64).take_while(|_| self.echo_one()).count() as u64,
            BarePackets::UdpGro => self.echo_train(),
            _ => self.echo_many() as u64,
        }
    }

    fn receive_one(&mut self) -> Option<usize> {
        let header = &mut self.headers[0].msg_hdr;
        // SAFETY: writes to the room and to an address, whose sizes are given.
        let bytes = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                self.room.as_mut_ptr().cast(),
                ROOM,
                libc::MSG_DONTWAIT,
                header.msg_name.cast(),
                &raw mut header.msg_namelen,
            )
        };
        usize::try_from(bytes).ok()
    }

    fn echo_one(&mut self) -> bool {
        let Some(bytes) = self.receive_one() else { return false };
        let header = &self.headers[0].msg_hdr;
        let (room, to) = (self.room.as_ptr().cast(), header.msg_name.cast());
        // SAFETY: reads as many bytes of the room as were received, and an address.
        unsafe { libc::sendto(self.number(), room, bytes, libc::MSG_DONTWAIT, to, header.msg_namelen) };
        true
    }

    fn receive_many(&mut self) -> usize {
        let headers = self.headers.as_mut_ptr();
        // SAFETY: headers, pieces and addresses as `open` has set them; all of them are ours.
        let count = unsafe { libc::recvmmsg(self.number(), headers, BATCH as u32, libc::MSG_DONTWAIT, null_mut()) };
        usize::try_from(count).unwrap_or(0)
    }

    fn echo_many(&mut self) -> usize {
        let count = self.receive_many();
        let before = if self.how == BarePackets::RawIp { IP_HEADER } else { 0 };
        for (header, piece) in self.headers[..count].iter().zip(&mut self.pieces) {
            piece.iov_base = piece.iov_base.wrapping_byte_add(before);
            piece.iov_len = (header.msg_len as usize).saturating_sub(before);
        }
        let mut sent = 0;
        while sent < count {
            let (headers, left) = (self.headers[sent..count].as_mut_ptr(), (count - sent) as u32);
            // SAFETY: as above; the pieces are what was received.
            let now = unsafe { libc::sendmmsg(self.number(), headers, left, libc::MSG_DONTWAIT) };
            // What the kernel refuses is lost, as packets are.
            sent += usize::try_from(now).unwrap_or(0).max(1);
        }
        for piece in &mut self.pieces[..count] {
            (piece.iov_base, piece.iov_len) = (piece.iov_base.wrapping_byte_sub(before), ROOM);
        }
        count
    }

    /// The bytes of coalesced packets, and the bytes of each packet.
    fn receive_train(&mut self) -> Option<(usize, usize)> {
        let header = &mut self.headers[0].msg_hdr;
        (header.msg_control, header.msg_controllen) = (self.control.0.as_mut_ptr().cast(), CONTROL);
        // SAFETY: writes to the room, an address and a control message, as the header says.
        let bytes = unsafe { libc::recvmsg(self.socket.as_raw_fd(), header, libc::MSG_DONTWAIT) };
        let bytes = usize::try_from(bytes).ok()?;
        let [.., a, b, c, d, _, _, _, _] = self.control.0;
        let each = if header.msg_controllen >= 20 { i32::from_ne_bytes([a, b, c, d]) as usize } else { bytes };
        Some((bytes, each.max(1)))
    }

    fn echo_train(&mut self) -> u64 {
        let Some((bytes, each)) = self.receive_train() else { return 0 };
        let header = &mut self.headers[0].msg_hdr;
        header.msg_controllen = 0;
        if each < bytes {
            let segment = libc::cmsghdr { cmsg_len: 18, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
            header.msg_controllen = CONTROL;
            // SAFETY: room for a header of 16 bytes and a number, aligned to 8.
            unsafe { self.control.0.as_mut_ptr().cast::<libc::cmsghdr>().write(segment) };
            self.control.0[16..18].copy_from_slice(&(each as u16).to_ne_bytes());
        }
        self.pieces[0].iov_len = bytes;
        // SAFETY: reads what was received, the address and the control message, as the header says.
        unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const self.headers[0].msg_hdr, libc::MSG_DONTWAIT) };
        self.pieces[0].iov_len = TRAIN;
        bytes.div_ceil(each) as u64
    }
}

/// Sets a socket option.
pub(super) fn set<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (value, length) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: reads a value of this length.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A filter that accepts nothing.
pub(super) fn refuse_all(socket: BorrowedFd<'_>) -> io::Result<()> {
    filter(socket, &mut [step(libc::BPF_RET | libc::BPF_K, 0, 0)])
}

/// A filter that accepts IPv4 sent to this host, and nothing else.
pub(super) fn refuse_others(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (kind, carries) = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE, libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL);
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, kind as u32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 3, libc::PACKET_HOST.into()),
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, carries as u32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0x0800),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
    ];
    filter(socket, &mut steps)
}

/// One step of a filter: an operation, the number of steps to skip if it is false, and a number.
const fn step(code: u32, otherwise: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: otherwise, k }
}

fn filter(socket: BorrowedFd<'_>, steps: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}
