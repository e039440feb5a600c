//! Two hosts with a cable between them: network namespaces and a pair of virtual Ethernet cards, made and removed here.
#![allow(unsafe_code)]

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The name of the card in either host.
pub(crate) const CARD: &str = "veth0";
/// Their addresses.
pub(crate) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const SINK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// What must be said where there are no namespaces to be had.
pub(crate) const NOT_ALLOWED: &str = "may not make network namespaces";

/// A host: a network namespace, which goes with its last descriptor, socket and card.
pub(crate) struct Host(OwnedFd);

impl Host {
    fn new() -> Result<Self, &'static str> {
        let made = std::thread::spawn(|| {
            // SAFETY: of this thread alone, which ends here, the network namespace changes.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok::<_, Errno>(File::open("/proc/thread-self/ns/net").expect("Linux names namespaces").into())
        });
        made.join().expect("the thread does not panic").map(Self).map_err(|_| NOT_ALLOWED)
    }

    /// Does something in this host: sockets that are opened there belong to it wherever they are used.
    pub(crate) fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let on_a_thread = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).expect("a namespace of ours");
            what()
        };
        std::thread::scope(|scope| scope.spawn(on_a_thread).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Brings the card up or takes it down.
    pub(crate) fn set_up(&self, is_up: bool) {
        self.inside(|| request(&up(CARD, is_up)));
    }

    fn settle(&self, address: Ipv4Addr) {
        self.inside(|| {
            request(&up("lo", true));
            request(&up(CARD, true));
            request(&named(CARD, address));
        });
    }
}

/// Two hosts and the cable.
pub(crate) struct Cable {
    pub(crate) source: Host,
    pub(crate) sink: Host,
}

impl Cable {
    /// Lays a cable that carries packets of up to `mtu` bytes, with so many queues at each end.
    pub(crate) fn lay(mtu: u32, queues: u32) -> Result<Self, &'static str> {
        let (source, sink) = (Host::new()?, Host::new()?);
        let cards = cards(mtu, queues, sink.0.as_fd());
        source.inside(|| request(&cards));
        source.settle(SOURCE);
        sink.settle(SINK);
        Ok(Self { source, sink })
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

fn named(name: &str, address: Ipv4Addr) -> Message {
    let socket = net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    let index = net::netdevice::name_to_index(&socket, name).expect("a card of ours");
    let mut head = vec![libc::AF_INET as u8, 24, 0, 0];
    head.extend_from_slice(&index.to_ne_bytes());
    let octets = address.octets();
    Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE, &head)
        .with(libc::IFA_LOCAL, &octets)
        .with(libc::IFA_ADDRESS, &octets)
}

/// Asks the kernel of the present namespace for it.
fn request(message: &Message) {
    // NETLINK_ROUTE is number 0, which is the default.
    let protocol = None;
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol);
    let socket = socket.expect("a netlink socket");
    let mut bytes = message.0.clone();
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    net::send(&socket, &bytes, SendFlags::empty()).expect("the kernel listens");
    let mut answer = [0; 4096];
    let (length, _) = net::recv(&socket, &mut answer[..], RecvFlags::empty()).expect("the kernel answers");
    let error = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
    assert_eq!(error.map(i32::from_ne_bytes), Some(0), "the kernel's answer, as a negative errno");
}

#[test]
fn packets_go_through_the_cable() {
    let cable = match Cable::lay(1500, 1) {
        Ok(cable) => cable,
        Err(why) => return ropewalk_tidy::skipped("namespaces::packets_go_through_the_cable", why),
    };
    let sink = cable.sink.inside(|| std::net::UdpSocket::bind((SINK, 0))).expect("its own address");
    let to = sink.local_addr().expect("a bound address");
    let source = cable.source.inside(|| std::net::UdpSocket::bind((SOURCE, 0))).expect("its own address");
    source.send_to(b"hello", to).expect("a way");
    let mut bytes = [0; 9];
    assert_eq!(sink.recv_from(&mut bytes).ok(), Some((5, source.local_addr().expect("a bound address"))));
}
