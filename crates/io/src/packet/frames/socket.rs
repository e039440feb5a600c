//! Network cards as known to the kernel, sockets that receive their frames, their filters, and sockets that stay mute.
//!
//! Programs that the kernel runs for each packet of a card are loaded directly with the system call (bpf(2)), which
//! takes two structures. A crate for it would add thirty others.
#![allow(unsafe_code)]

use core::mem::zeroed;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::packet::Flow;

/// The packets that a packet socket gets, before its filter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Nothing,
    /// IPv4, in parallel with the kernel's own protocols.
    Ipv4,
    /// All frames, before the kernel's own protocols see them.
    Everything,
}

/// IPv4, as packet sockets name it.
const ETHERTYPE_IPV4: u16 = 0x0800;

/// Makes a packet socket that gets nothing until it is bound: for whole frames (`RAW`), or for their contents without
/// the frame header (`DGRAM`).
pub(super) fn packet_socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(AddressFamily::PACKET, kind, flags, None)?)
}

/// Binds the socket to a card, to receive there.
pub(super) fn bind(socket: &OwnedFd, card: &Card, what: Seen) -> io::Result<()> {
    let kind = match what {
        Seen::Nothing => 0,
        Seen::Ipv4 => ETHERTYPE_IPV4,
        Seen::Everything => libc::ETH_P_ALL as u16,
    };
    // SAFETY: numbers, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = kind.to_be();
    address.sll_ifindex = card.index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: reads an address of this length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option that is a structure of numbers.
pub(super) fn set<T: Copy>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: reads a value of this length.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, core::ptr::from_ref(value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One step of a filter: an operation, the jump distances if it is true or false, and a number.
type Step = (u32, u8, u8, u32);

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF_BEHIND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const HAS_BITS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Offsets of the kernel's own data about a frame: its kind of destination, its protocol, and its VLAN.
const KIND: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
const CARRIES: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
const VLAN: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;

/// Offsets in a packet, which begins with its IP header if the socket does not want frames; those of the port are
/// relative to UDP's header.
const FRAGMENTATION: u32 = 6;
const PROTOCOL: u32 = 9;
const DESTINATION: u32 = 16;
const PORT: u32 = 2;

/// Lets nothing through.
const NOTHING: [Step; 1] = [(RETURN, 0, 0, 0)];

/// A jump to the step behind the last one of a list.
const BEHIND: u8 = u8::MAX;

/// Continues at the end for packets to this address, and behind it for others.
fn to(flow: Flow, address: SocketAddrV4) -> Vec<Step> {
    let mut steps: Vec<Step> = vec![
        (LOAD_BYTE, 0, 0, PROTOCOL),
        (EQUALS, 0, BEHIND, flow.protocol().into()),
        (LOAD_WORD, 0, 0, DESTINATION),
        (EQUALS, 0, BEHIND, u32::from(*address.ip())),
    ];
    if flow == Flow::Udp {
        steps.extend([
            (LOAD_HEADER_LENGTH, 0, 0, 0),
            (LOAD_HALF_BEHIND, 0, 0, PORT),
            (EQUALS, 0, BEHIND, address.port().into()),
        ]);
    }
    steps
}

/// Appends a return of `value` to the steps; a jump behind them leads to the steps that follow.
fn returning(mut steps: Vec<Step>, value: u32) -> Vec<Step> {
    steps.push((RETURN, 0, 0, value));
    let end = steps.len();
    for (place, step) in steps.iter_mut().enumerate() {
        for target in [&mut step.1, &mut step.2] {
            if *target == BEHIND {
                *target = (end - place - 1) as u8;
            }
        }
    }
    steps
}

/// Passes whole packets of a flow that were sent to this host and not to a VLAN, to a socket that does not want frames.
pub(super) fn filter(socket: &OwnedFd, flow: Flow, address: SocketAddrV4) -> io::Result<()> {
    let mut steps: Vec<Step> = vec![
        (LOAD_WORD, 0, 0, KIND),
        (EQUALS, 0, BEHIND, u32::from(libc::PACKET_HOST)),
        (LOAD_WORD, 0, 0, CARRIES),
        (EQUALS, 0, BEHIND, ETHERTYPE_IPV4.into()),
        (LOAD_WORD, 0, 0, VLAN),
        (HAS_BITS, BEHIND, 0, 0xFFF),
        (LOAD_HALF, 0, 0, FRAGMENTATION),
        (HAS_BITS, BEHIND, 0, 0x3FFF),
    ];
    steps.extend(to(flow, address));
    let mut steps = returning(steps, u32::MAX);
    steps.push((RETURN, 0, 0, 0));
    attach(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &steps)
}

/// Gives a packet to the socket of a group with the same index as the packet's address here; others go to the first
/// socket.
pub(super) fn steer(socket: &OwnedFd, addresses: &[(Flow, SocketAddrV4)]) -> io::Result<()> {
    let each = (0..).zip(addresses).flat_map(|(place, &(flow, address))| returning(to(flow, address), place));
    let steps: Vec<Step> = each.chain([(RETURN, 0, 0, 0)]).collect();
    attach(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &steps)
}

fn attach(socket: &OwnedFd, level: i32, name: i32, steps: &[Step]) -> io::Result<()> {
    let step = |&(code, jt, jf, k): &Step| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program: Vec<libc::sock_filter> = steps.iter().map(step).collect();
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // The kernel copies the steps.
    set(socket, level, name, &program)
}

/// Blocks all packets to a bound socket. To the kernel it is a listener, so that the kernel does not answer that the
/// port or the protocol is unreachable, and a port stays reserved.
pub(super) fn mute(socket: &OwnedFd) -> io::Result<()> {
    attach(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &NOTHING)
}

/// A network card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// Its address on the cable.
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet that it carries.
    pub mtu: usize,
}

impl Card {
    /// Looks up the card with this name through any socket of its network namespace.
    ///
    /// # Errors
    /// The kernel's error, mostly that the card does not exist.
    pub fn find(name: &str, socket: impl AsFd) -> io::Result<Self> {
        // SAFETY: names, numbers and a pointer that is not used, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let mut ask = |what: libc::c_ulong| {
            // SAFETY: these requests read a name and write an answer, both within the structure.
            let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, &raw mut request) };
            if result == 0 { Ok(request.ifr_ifru) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the fields that these requests have written.
        let (index, mac, mtu) = unsafe {
            (
                ask(libc::SIOCGIFINDEX)?.ifru_ifindex,
                ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr.sa_data,
                ask(libc::SIOCGIFMTU)?.ifru_mtu,
            )
        };
        let mac = [0, 1, 2, 3, 4, 5].map(|at| mac[at] as u8);
        Ok(Self { name: name.to_owned(), index: index as u32, mac, mtu: usize::try_from(mtu).unwrap_or(0) })
    }
}

#[cfg(test)]
#[test]
fn the_loop_is_a_card_and_others_are_not_there() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let card = Card::find("lo", &socket).expect("every machine has it");
    assert_eq!((card.mac, card.index, card.mtu > 1500), ([0; 6], 1, true));
    assert!(Card::find("no such card", &socket).is_err() && Card::find("", &socket).is_err());
    assert_eq!(Card::find(&"x".repeat(16), &socket).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
}

/// Bytes of an instruction.
const STEP: usize = 8;

const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    address: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    card: u32,
    attachment: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    card: u32,
    attachment: u32,
    flags: u32,
}

/// Kind of a program, by the kernel's numbers (`linux/bpf.h`).
#[derive(Copy, Clone)]
pub(super) struct ProgramKind {
    pub(super) kind: u32,
    pub(super) attachment: u32,
    pub(super) flags: u32,
}

/// Loads a program and attaches it to a card. It is detached when the returned value is dropped, or when the process
/// ends for any reason.
pub(super) fn attach_program(
    card: &Card,
    kind: ProgramKind,
    name: &[u8],
    instructions: &[u8],
    flags: u32,
) -> io::Result<OwnedFd> {
    let ProgramKind { kind, attachment, flags: of_program } = kind;
    let mut load = ProgramLoad {
        kind,
        instructions: (instructions.len() / STEP) as u32,
        address: instructions.as_ptr() as u64,
        // Any licence is valid: no function restricted to some licences is called.
        licence: c"Dual MIT/GPL".as_ptr() as u64,
        flags: of_program,
        attachment,
        ..ProgramLoad::default()
    };
    load.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: the instructions and the licence outlive the call, which only reads them.
    let program = unsafe { call(PROGRAM_LOAD, &load) }?;
    let link = LinkCreate { program: program.as_raw_fd() as u32, card: card.index, attachment, flags };
    // SAFETY: passes only numbers.
    unsafe { call(LINK_CREATE, &link) }
}

/// Makes a bpf(2) call that reads a structure and returns a descriptor.
///
/// # Safety
/// The pointers in the structure must be valid.
pub(super) unsafe fn call<T>(command: libc::c_int, what: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { ask(command, what) }?;
    // SAFETY: new, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes a bpf(2) call that reads a structure and returns a number.
///
/// # Safety
/// The pointers in the structure must be valid.
pub(super) unsafe fn ask<T>(command: libc::c_int, what: &T) -> io::Result<libc::c_int> {
    // SAFETY: a structure of this length; the kernel takes further fields behind it as zeros.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, core::ptr::from_ref(what), size_of::<T>()) };
    if result >= 0 { Ok(result as libc::c_int) } else { Err(io::Error::last_os_error()) }
}
