//! Frames that the kernel copies packets into and sends from (AF_XDP): one memory, four rings.
#![allow(unsafe_code)]

use super::ring::exchange;
use super::socket::set;
use super::{BATCH, card_number, deaf, program};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a receiver's frame.
const FRAME: usize = 2048;
/// Maximum bytes queued for sending, as the kernel counts them.
const LEAVING: i32 = 4 << 20;
/// How long a socket that was just closed may occupy its queue: the kernel cleans up later.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Our side of one ring; the other side is the kernel's.
struct Ring<T> {
    map: (*mut u8, usize),
    producer: *mut u32,
    consumer: *mut u32,
    entries: *mut T,
    size: u32,
    /// Our position.
    own: u32,
}

impl<T: Copy> Ring<T> {
    fn map(socket: &OwnedFd, place: u64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base =
            unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED | MapFlags::POPULATE, socket, place) }?;
        let at = |offset: u64| base.cast::<u8>().wrapping_add(offset as usize);
        let (producer, consumer) = (at(offsets.producer).cast(), at(offsets.consumer).cast());
        Ok(Self { map: (base.cast(), bytes), producer, consumer, entries: at(offsets.desc).cast(), size, own: 0 })
    }

    fn shared(&self, number: *mut u32) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, and accessed as an atomic alone, here and in the kernel.
        unsafe { AtomicU32::from_ptr(number) }
    }

    /// As the producer: free places.
    fn room(&self) -> u32 {
        self.size - self.own.wrapping_sub(self.shared(self.consumer).load(Ordering::Acquire))
    }

    /// As the producer: puts an entry into a free place. The kernel sees it after [`publish`](Self::publish).
    fn put(&mut self, entry: T) {
        // SAFETY: within the ring, whose size is a power of two.
        unsafe { self.entries.add((self.own & (self.size - 1)) as usize).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    fn publish(&self) {
        self.shared(self.producer).store(self.own, Ordering::Release);
    }

    /// As the consumer: available entries.
    fn available(&self) -> u32 {
        self.shared(self.producer).load(Ordering::Acquire).wrapping_sub(self.own)
    }

    /// As the consumer: takes an available entry. Its place is free after [`release`](Self::release).
    fn take(&mut self) -> T {
        // SAFETY: within the ring, and written by the kernel.
        let entry = unsafe { self.entries.add((self.own & (self.size - 1)) as usize).read() };
        self.own = self.own.wrapping_add(1);
        entry
    }

    fn release(&self) {
        self.shared(self.consumer).store(self.own, Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped when this was made, and this is the only owner.
        let unmapped = unsafe { munmap(self.map.0.cast(), self.map.1) };
        debug_assert!(unmapped.is_ok(), "its own addresses can be unmapped");
    }
}

/// A socket at a card's first queue, with its memory.
pub(super) struct XdpSocket {
    pub(super) socket: OwnedFd,
    memory: (*mut u8, usize),
    frame_bytes: usize,
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    transmit: Ring<libc::xdp_desc>,
}

// SAFETY: memory that this process and the kernel share, of which this is the only user here.
unsafe impl Send for XdpSocket {}

impl XdpSocket {
    /// Opens a socket with this many frames of this many bytes: 2,048 or 4,096.
    pub(super) fn open(card: u32, frames: usize, frame_bytes: usize) -> io::Result<Self> {
        let family = AddressFamily::from_raw(libc::AF_XDP as u16);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &LEAVING)?;
        let (bytes, protection) = (frames * frame_bytes, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE | MapFlags::POPULATE) }?;
        let memory = libc::xdp_umem_reg {
            addr: base as u64,
            len: bytes as u64,
            chunk_size: frame_bytes as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(socket.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        let size = frames.next_power_of_two() as u32;
        for name in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set(socket.as_fd(), libc::SOL_XDP, name, &size)?;
        }
        let offsets = offsets(&socket)?;
        let (receive, transmit) = (libc::XDP_PGOFF_RX_RING as u64, libc::XDP_PGOFF_TX_RING as u64);
        let opened = Self {
            memory: (base.cast(), bytes),
            frame_bytes,
            fill: Ring::map(&socket, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, size)?,
            completion: Ring::map(&socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, size)?,
            receive: Ring::map(&socket, receive, &offsets.rx, size)?,
            transmit: Ring::map(&socket, transmit, &offsets.tx, size)?,
            socket,
        };
        opened.bind(card)?;
        Ok(opened)
    }

    fn bind(&self, card: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: card,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let (begin, length) = (Instant::now(), size_of_val(&address) as libc::socklen_t);
        loop {
            // SAFETY: reads an address of this length.
            let result = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) };
            let error = io::Error::last_os_error();
            match result {
                0 => return Ok(()),
                _ if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < GONE_AFTER => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return Err(error),
            }
        }
    }

    /// A frame, which must not be in the kernel's hands.
    pub(super) fn frame(&mut self, place: usize, bytes: usize) -> &mut [u8] {
        assert!(place + bytes <= self.memory.1, "within the memory");
        // SAFETY: within the mapping, which was made with zeros; borrowed with the socket.
        unsafe { std::slice::from_raw_parts_mut(self.memory.0.add(place), bytes) }
    }

    /// Queues bytes of the memory; false if the ring is full.
    pub(super) fn put(&mut self, place: usize, bytes: usize) -> bool {
        let has_room = self.transmit.room() > 0;
        if has_room {
            self.transmit.put(libc::xdp_desc { addr: place as u64, len: bytes as u32, options: 0 });
        }
        has_room
    }

    /// Sends what is queued: the kernel has copied all of it when this returns. From then on, frames that were sent can
    /// receive again, if `is_received` says that they were received.
    pub(super) fn send(&mut self, is_received: bool) -> io::Result<()> {
        self.transmit.publish();
        loop {
            let socket = self.socket.as_raw_fd();
            // SAFETY: sends the frames of the ring; the call has no bytes of its own.
            let sent = unsafe { libc::sendto(socket, null_mut(), 0, libc::MSG_DONTWAIT, null_mut(), 0) };
            let error = io::Error::last_os_error();
            for _ in 0..self.completion.available() {
                let place = self.completion.take();
                if is_received {
                    self.fill.put(place - place % self.frame_bytes as u64);
                }
            }
            self.completion.release();
            self.fill.publish();
            if self.transmit.room() == self.transmit.size {
                return Ok(());
            }
            let goes_on = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS));
            if sent < 0 && !goes_on {
                return Err(error);
            }
        }
    }
}

impl Drop for XdpSocket {
    fn drop(&mut self) {
        // The kernel keeps the pages while the socket exists, so they may be unmapped first.
        // SAFETY: mapped when this was made, and this is the only owner.
        let unmapped = unsafe { munmap(self.memory.0.cast(), self.memory.1) };
        debug_assert!(unmapped.is_ok(), "its own addresses can be unmapped");
    }
}

/// The hardware address of a card.
fn card_address(card: &str, socket: BorrowedFd<'_>) -> io::Result<[u8; 6]> {
    // SAFETY: names, numbers and a pointer that is not used, for which zeros are good.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(card.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: reads a name and writes an address, both within the structure.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the field that was written.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok([0, 1, 2, 3, 4, 5].map(|at| address[at] as u8))
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let nothing = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: nothing, tx: nothing, fr: nothing, cr: nothing };
    let mut length = size_of_val(&offsets) as libc::socklen_t;
    let (level, name, to) = (libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, (&raw mut offsets).cast());
    // SAFETY: writes numbers, at most as many bytes as there are.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut length) };
    if result == 0 { Ok(offsets) } else { Err(io::Error::last_os_error()) }
}

/// Receives every IPv4 packet to a card that comes in at its first queue.
pub(super) struct XdpLoop {
    socket: XdpSocket,
    /// The program, attached while this exists.
    _program: [OwnedFd; 2],
    /// Shows the kernel a listener.
    pub(super) listener: (OwnedFd, SocketAddrV4),
}

impl XdpLoop {
    pub(super) fn open(address: SocketAddrV4, card: &str, frames: usize) -> io::Result<Self> {
        let listener = deaf(address, false)?;
        let mac = card_address(card, listener.0.as_fd())?;
        let card = card_number(card, listener.0.as_fd())?;
        let mut socket = XdpSocket::open(card, frames, FRAME)?;
        (0..frames).for_each(|frame| socket.fill.put((frame * FRAME) as u64));
        socket.fill.publish();
        let program = program::attach(card, mac, &socket.socket)?;
        Ok(Self { socket, _program: program, listener })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.socket.as_fd()
    }

    pub(super) fn receive(&mut self) -> u64 {
        let XdpSocket { receive, fill, .. } = &mut self.socket;
        let count = receive.available().min(BATCH as u32);
        for _ in 0..count {
            // The kernel left room in front of the packet.
            fill.put(receive.take().addr / FRAME as u64 * FRAME as u64);
        }
        receive.release();
        fill.publish();
        count.into()
    }

    pub(super) fn echo(&mut self) -> u64 {
        let count = self.socket.receive.available().min(BATCH as u32);
        for _ in 0..count {
            let entry = self.socket.receive.take();
            let (place, bytes) = (entry.addr as usize, entry.len as usize);
            exchange(self.socket.frame(place, bytes));
            // There is a place for each frame.
            self.socket.put(place, bytes);
        }
        self.socket.receive.release();
        if count > 0 {
            // A card that is down sends nothing, which shows as missing packets.
            let _ = self.socket.send(true);
        }
        count.into()
    }
}

/// Bytes of a frame: the maximum of an AF_XDP socket.
const FLOOD_FRAME: usize = 4096;

/// Prepared frames, each with its number.
pub struct Flood {
    socket: XdpSocket,
    lengths: Vec<u16>,
    /// Frames queued, and frames accepted by the kernel.
    queued: u64,
    sent: u64,
}

impl Flood {
    /// Prepares these frames at a card.
    ///
    /// # Errors
    /// The kernel's error, mostly missing permission; `InvalidInput` for frames that are too long.
    pub fn open(card: &str, frames: &[Vec<u8>]) -> io::Result<Self> {
        if frames.is_empty() || frames.iter().any(|frame| frame.len() > FLOOD_FRAME) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let any = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        let mut socket =
            XdpSocket::open(card_number(card, any.as_fd())?, frames.len().next_multiple_of(64), FLOOD_FRAME)?;
        for (index, frame) in frames.iter().enumerate() {
            socket.frame(index * FLOOD_FRAME, frame.len()).copy_from_slice(frame);
        }
        let lengths = frames.iter().map(|frame| frame.len() as u16).collect();
        Ok(Self { socket, lengths, queued: 0, sent: 0 })
    }

    /// The bytes of a frame, which may change between [`flush`](Self::flush) and [`put`](Self::put).
    pub fn frame(&mut self, index: usize) -> &mut [u8] {
        let bytes = usize::from(self.lengths[index]);
        self.socket.frame(index * FLOOD_FRAME, bytes)
    }

    /// Queues a frame; false if the queue is full.
    pub fn put(&mut self, index: usize) -> bool {
        let is_queued = self.socket.put(index * FLOOD_FRAME, usize::from(self.lengths[index]));
        self.queued += u64::from(is_queued);
        is_queued
    }

    /// Hands the queued frames to the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.queued > self.sent {
            self.socket.send(false)?;
            self.sent = self.queued;
        }
        Ok(())
    }

    /// Frames that the kernel has accepted.
    pub const fn sent(&self) -> u64 {
        self.sent
    }
}
