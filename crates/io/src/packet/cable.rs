//! Two hosts on one machine with a cable between them, for tests and benchmarks: network namespaces and a pair of
//! virtual Ethernet cards. They are removed with the last reference to them. Only the administrator may make them.
#![allow(unsafe_code)]

use core::mem::zeroed;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::thread::{
    CpuSet, LinkNameSpaceType, UnshareFlags, move_into_link_name_space, sched_setaffinity, unshare_unsafe,
};

/// The name of the card on each host.
pub const CARD: &str = "veth0";
/// The address of the sending host.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of the receiving host.
pub const SINK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A host: a network namespace, removed with its last descriptor, socket and card.
pub struct Host(OwnedFd);

impl Host {
    fn new() -> io::Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: changes the network namespace only of this thread, which ends here.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        });
        made.join().expect("the thread does not panic").map(Self)
    }

    /// Runs a function in this host, on a separate thread. Sockets that are opened there belong to the host wherever
    /// they are used.
    ///
    /// # Panics
    /// If the function panics.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let on_a_thread = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).expect("a namespace of ours");
            what()
        };
        let done = std::thread::scope(|scope| scope.spawn(on_a_thread).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Brings the card up or takes it down.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_up(&self, is_up: bool) -> io::Result<()> {
        self.inside(|| request(&up(CARD, is_up)))
    }

    fn settle(&self, address: Ipv4Addr) -> io::Result<()> {
        self.inside(|| {
            request(&up("lo", true))?;
            request(&up(CARD, true))?;
            request(&named(CARD, address)?)
        })
    }
}

/// Two hosts and the cable.
pub struct Cable {
    /// The host at [`SOURCE`].
    pub source: Host,
    /// The host at [`SINK`].
    pub sink: Host,
}

impl Cable {
    /// Lays a cable that carries packets of up to `mtu` bytes, with `queues` queues at each end.
    ///
    /// # Errors
    /// An error of the kernel, mostly a missing right.
    pub fn lay(mtu: u32, queues: u32) -> io::Result<Self> {
        let (source, sink) = (Host::new()?, Host::new()?);
        let cards = cards(mtu, queues, sink.0.as_fd());
        source.inside(|| request(&cards))?;
        source.settle(SOURCE)?;
        sink.settle(SINK)?;
        Ok(Self { source, sink })
    }

    /// Lets each host find the other one's card, so that no packet has to wait for that, or is lost because the kernel
    /// has not yet noticed the cable.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn resolve(&self) -> io::Result<()> {
        let sink = self.sink.inside(|| UdpSocket::bind((SINK, 0)))?;
        let source = self.source.inside(|| UdpSocket::bind((SOURCE, 0)))?;
        source.send_to(b"?", sink.local_addr()?)?;
        let (_, from) = sink.recv_from(&mut [0; 1])?;
        sink.send_to(b"!", from)?;
        source.recv_from(&mut [0; 1]).map(|_| ())
    }
}

/// A message to the kernel's table of cards and addresses (rtnetlink(7)).
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: i32, head: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&((flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(head);
        Self(bytes)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Makes a list of attributes behind a head.
    fn part(head: &[u8]) -> Self {
        Self(head.to_vec())
    }
}

/// Makes the head of messages about cards.
fn card(flags: u32, changed: u32) -> Vec<u8> {
    let mut head = vec![0; 8];
    head.extend_from_slice(&flags.to_ne_bytes());
    head.extend_from_slice(&changed.to_ne_bytes());
    head
}

fn up(name: &str, is_up: bool) -> Message {
    let up = libc::IFF_UP as u32;
    Message::new(libc::RTM_NEWLINK, 0, &card(if is_up { up } else { 0 }, up)).with(libc::IFLA_IFNAME, name.as_bytes())
}

fn cards(mtu: u32, queues: u32, peer: BorrowedFd<'_>) -> Message {
    const VETH_INFO_PEER: u16 = 1;
    let described = |message: Message| {
        message
            .with(libc::IFLA_IFNAME, CARD.as_bytes())
            .with(libc::IFLA_MTU, &mtu.to_ne_bytes())
            .with(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes())
            .with(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes())
    };
    let there = described(Message::part(&card(0, 0))).with(libc::IFLA_NET_NS_FD, &peer.as_raw_fd().to_ne_bytes());
    let data = Message::part(&[]).with(VETH_INFO_PEER, &there.0);
    let kind = Message::part(&[]).with(libc::IFLA_INFO_KIND, b"veth").with(libc::IFLA_INFO_DATA, &data.0);
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    described(Message::new(libc::RTM_NEWLINK, flags, &card(0, 0))).with(libc::IFLA_LINKINFO, &kind.0)
}

fn named(name: &str, address: Ipv4Addr) -> io::Result<Message> {
    let socket = net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let index = net::netdevice::name_to_index(&socket, name)?;
    let mut head = vec![libc::AF_INET as u8, 24, 0, 0];
    head.extend_from_slice(&index.to_ne_bytes());
    let octets = address.octets();
    let message = Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE, &head);
    Ok(message.with(libc::IFA_LOCAL, &octets).with(libc::IFA_ADDRESS, &octets))
}

/// Sends the request to the kernel of the present namespace.
fn request(message: &Message) -> io::Result<()> {
    // NETLINK_ROUTE is number 0, which is the default.
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut bytes = message.0.clone();
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    net::send(&socket, &bytes, SendFlags::empty())?;
    let mut answer = [0; 4096];
    let (length, _) = net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // Behind the header of 16 bytes, as a negative number.
    match answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Features of the kernel for several packets at once (`ethtool.h`): cut large ones apart later, put small ones
/// together.
const CUT_LATER: u32 = 0x1f;
const PUT_TOGETHER: u32 = 0x2c;

impl Host {
    /// Makes this CPU do the kernel's part of receiving (RPS). Has no effect on packets taken by a program at the card
    /// (AF_XDP).
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn receive_on(&self, cpu: u32) -> io::Result<()> {
        self.write_of_card("queues/rx-0/rps_cpus", &format!("{:x}", 1_u64.checked_shl(cpu).unwrap_or(0)))
    }

    /// Writes into one of the card's files.
    fn write_of_card(&self, name: &str, text: &str) -> io::Result<()> {
        self.inside(|| {
            // The files of a namespace's cards are visible through a mount that was made in it.
            // SAFETY: changes the mounts only of this thread, which ends here.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
            mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
            mount(Some(c"sysfs"), c"/sys", Some(c"sysfs"), 0)?;
            std::fs::write(format!("/sys/class/net/{CARD}/{name}"), text)
        })
    }

    fn set_feature(&self, feature: u32, is_on: bool) -> io::Result<()> {
        self.inside(|| {
            let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
            let mut value = [feature, is_on.into()];
            // SAFETY: names and pointers, for which zeros are valid.
            let mut request: libc::ifreq = unsafe { zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(CARD.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
            // SAFETY: the request reads a name and two numbers, which outlive it.
            let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    }
}

impl Cable {
    /// Makes a kernel thread do the kernel's part of receiving at the sink, for programs at the card too, on this CPU
    /// and with a lower priority than the calling thread (threaded NAPI): while no other thread wants the CPU, or at
    /// the lowest real-time priority if the caller has one. Packets beyond the sink's capacity are then lost at the
    /// card, where that costs nothing: no work is done for a packet that could not be processed in time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receive_by_thread(&self, cpu: u32) -> io::Result<()> {
        // Without these two a card of this kind has no separate queue.
        self.source.set_feature(CUT_LATER, false)?;
        self.sink.set_feature(PUT_TOGETHER, true)?;
        self.sink.write_of_card("threaded", "1")?;
        let queue = self.queue_of_sink()?;
        // The thread was made, but it may not have its name yet.
        let thread = (0..TRIES).find_map(|_| kernel_thread(&format!("napi/{CARD}-{queue}")));
        let thread = thread.ok_or_else(|| io::Error::other("the card's queue has no thread"))?;
        let mut cpus = CpuSet::new();
        cpus.set(cpu as usize);
        sched_setaffinity(Some(thread), &cpus)?;
        // SAFETY: asks for a number.
        let is_real_time = matches!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_FIFO | libc::SCHED_RR);
        let policy = if is_real_time { libc::SCHED_FIFO } else { libc::SCHED_IDLE };
        let priority = libc::sched_param { sched_priority: is_real_time.into() };
        // SAFETY: reads a number.
        let result = unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &raw const priority) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The number of the queue by which the sink's card receives, taken from a received packet.
    fn queue_of_sink(&self) -> io::Result<u32> {
        let sink = self.sink.inside(|| UdpSocket::bind((SINK, 0)))?;
        let source = self.source.inside(|| UdpSocket::bind((SOURCE, 0)))?;
        source.send_to(b"?", sink.local_addr()?)?;
        sink.recv_from(&mut [0; 1])?;
        let (mut number, mut length) = (0_u32, size_of::<u32>() as libc::socklen_t);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID);
        // SAFETY: writes a number, whose size is given.
        let result =
            unsafe { libc::getsockopt(sink.as_raw_fd(), level, name, (&raw mut number).cast(), &raw mut length) };
        if result == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
    }
}

/// Number of attempts to find a thread.
const TRIES: usize = 1000;

/// The kernel's thread with this name.
fn kernel_thread(name: &str) -> Option<Pid> {
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let found = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        (found.trim_end() == name).then(|| Pid::from_raw(number))?
    })
}

/// Mounts a new file system, or changes a mount.
fn mount(what: Option<&CStr>, place: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let address = |text: Option<&CStr>| text.map_or(core::ptr::null(), CStr::as_ptr);
    // SAFETY: reads texts that end with a zero, or null pointers.
    let result = unsafe { libc::mount(address(what), place.as_ptr(), address(kind), flags, core::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
