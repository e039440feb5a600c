//! Two hosts on one machine with a cable between them, for tests and benches: network namespaces and a pair of virtual
//! Ethernet cards. They go with what refers to them. Only the administrator may make them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

mod work;

/// The name of the card in either host.
pub const CARD: &str = "veth0";
/// The address of the host that sends.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of the host that receives.
pub const SINK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A host: a network namespace, which goes with its last descriptor, socket and card.
pub struct Host(OwnedFd);

impl Host {
    fn new() -> io::Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: of this thread alone, which ends here, the network namespace changes.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        });
        made.join().expect("the thread does not panic").map(Self)
    }

    /// Does something in this host, on a thread of its own: sockets that are opened there belong to it wherever they are
    /// used.
    ///
    /// # Panics
    /// If what is done there does.
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
    /// What the kernel says.
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
    /// Lays a cable that carries packets of up to `mtu` bytes, with so many queues at each end.
    ///
    /// # Errors
    /// What the kernel says, mostly that the right is missing.
    pub fn lay(mtu: u32, queues: u32) -> io::Result<Self> {
        let (source, sink) = (Host::new()?, Host::new()?);
        let cards = cards(mtu, queues, sink.0.as_fd());
        source.inside(|| request(&cards))?;
        source.settle(SOURCE)?;
        sink.settle(SINK)?;
        Ok(Self { source, sink })
    }

    /// Lets each host find the other one's card, so that no packet has to wait for that, or is lost since the kernel has not
    /// yet noticed that the cable is there.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Attributes alone, behind a head.
    fn part(head: &[u8]) -> Self {
        Self(head.to_vec())
    }
}

/// The head of messages about cards.
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

/// Asks the kernel of the present namespace for it.
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
