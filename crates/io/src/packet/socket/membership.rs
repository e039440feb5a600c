//! A socket's membership of a multicast group. The kernel drops it silently with the network card; it is joined again when the card is back.
#![allow(unsafe_code)]

use super::address::{index_of, index_with};
use super::open::{join, set_option};
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What has become of a membership since it was looked at last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MembershipChange {
    /// The card is gone, and the group with it: nothing comes.
    Lost,
    /// The group is joined again.
    JoinedAgain,
}

/// Watches over the membership of a receiver's socket, for as long as that lives.
#[derive(Debug)]
pub struct Membership {
    socket: Weak<OwnedFd>,
    group: SocketAddr,
    /// The address of the interface; none: where the kernel's routes lead to.
    interface: Option<IpAddr>,
    /// The name of the interface that the group's own address names.
    name: Option<CString>,
    /// The number of the interface at which the group is joined. A card that comes back has another one.
    index: u32,
    is_lost: bool,
    losses: Arc<AtomicU64>,
}

impl Membership {
    /// Joins the group. `losses` counts how often it was lost.
    pub(super) fn join(
        socket: &Arc<OwnedFd>,
        group: SocketAddr,
        interface: Option<IpAddr>,
        losses: &Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        join_at(socket, group, interface)?;
        let index = interface_of(group, interface);
        let (losses, name) = (Arc::clone(losses), name_of(scope_of(group)));
        Ok(Self { socket: Arc::downgrade(socket), group, interface, name, index, is_lost: false, losses })
    }

    /// Looks whether the card is there, and joins again where it is another one. Asks the system: for a thread that may wait.
    pub fn look(&mut self) -> Option<MembershipChange> {
        let socket = self.socket.upgrade()?;
        if !self.is_lost {
            if self.index == 0 || exists(self.index) {
                return None;
            }
            self.is_lost = true;
            self.losses.fetch_add(1, Ordering::Relaxed);
            return Some(MembershipChange::Lost);
        }
        self.rebind(&socket)?;
        // Without an interface of this address, or without a route, it fails.
        join_at(&socket, self.group, self.interface).ok()?;
        (self.index, self.is_lost) = (interface_of(self.group, self.interface), false);
        Some(MembershipChange::JoinedAgain)
    }

    /// A socket with a group that does not leave its link is bound to the card, which has another number now. None where it is not
    /// there, or this process may not.
    fn rebind(&mut self, socket: &OwnedFd) -> Option<()> {
        if let (SocketAddr::V6(group), Some(name)) = (&mut self.group, &self.name) {
            let index = self.interface.map_or_else(|| index_of(name), index_with);
            let number = i32::try_from(index).ok().filter(|&number| number > 0)?;
            set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, number).ok()?;
            group.set_scope_id(index);
        }
        Some(())
    }

    /// The group.
    pub const fn group(&self) -> IpAddr {
        self.group.ip()
    }
}

fn join_at(socket: &OwnedFd, group: SocketAddr, interface: Option<IpAddr>) -> std::io::Result<()> {
    join(socket, group.ip(), interface, interface.map_or_else(|| scope_of(group), index_with))
}

/// The number of the interface that the address itself names; 0 for none.
const fn scope_of(group: SocketAddr) -> u32 {
    if let SocketAddr::V6(group) = group { group.scope_id() } else { 0 }
}

/// The number of the interface at which the group is joined; 0 where that is not known.
fn interface_of(group: SocketAddr, interface: Option<IpAddr>) -> u32 {
    if let Some(interface) = interface {
        return index_with(interface);
    }
    let list = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    match group.ip() {
        IpAddr::V4(group) => joined_at(&list("igmp"), group),
        IpAddr::V6(_) if scope_of(group) != 0 => scope_of(group),
        IpAddr::V6(group) => joined_at_v6(&list("igmp6"), group),
    }
}

/// The last interface of the kernel's list at which the group is joined.
fn joined_at(list: &str, group: Ipv4Addr) -> u32 {
    let wanted = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    let (mut index, mut found) = (0, 0);
    for line in list.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !line.starts_with(char::is_whitespace) {
            index = first.parse().unwrap_or(0);
        } else if first == wanted {
            found = index;
        }
    }
    found
}

/// The same for the list of IPv6, each of whose lines has the interface's number, its name and the group.
fn joined_at_v6(list: &str, group: Ipv6Addr) -> u32 {
    let wanted = format!("{:032x}", u128::from(group));
    let mut lines = list.lines().rev().map(|line| line.split_whitespace());
    let found = lines.find_map(|mut words| {
        let index = words.next()?.parse().ok()?;
        (words.nth(1)? == wanted).then_some(index)
    });
    found.unwrap_or(0)
}

fn exists(index: u32) -> bool {
    name_of(index).is_some()
}

/// The name of the interface with this number.
fn name_of(index: u32) -> Option<CString> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: writes a name and its zero, for which there is room, and says where it is.
    let name = unsafe { libc::if_indextoname(index, name.as_mut_ptr()).as_ref().map(|name| CStr::from_ptr(name)) };
    name.map(CStr::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddrV6, UdpSocket};

    #[test]
    fn the_interface_of_a_group_is_found_in_the_kernels_list() {
        let group = |last| Ipv4Addr::new(239, 1, 2, last);
        let word = |last| format!("{:08X}", u32::from_ne_bytes(group(last).octets()));
        let list = format!(
            "Idx\tDevice    : Count Querier\tReporter\n1\tlo        :     1      V3\n\t\t\t\t{}     1 0:00000000\t\t0\n\
             7\teth0      :     2      V3\n\t\t\t\t{}     1 0:00000000\t\t0\n",
            word(3),
            word(4)
        );
        assert_eq!([3, 4, 5].map(|last| joined_at(&list, group(last))), [1, 7, 0]);
        let list = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n\
                    7    eth0            ff150000000000000000000000000009     1 00000004 0\n";
        let group = |last| Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0, last);
        assert_eq!([9, 8].map(|last| joined_at_v6(list, group(last))), [7, 0]);
    }

    #[test]
    fn a_group_whose_card_is_gone_is_lost_once_and_joined_again() {
        let socket = Arc::new(OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a socket")));
        let losses = Arc::new(AtomicU64::new(0));
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let mut membership =
            Membership::join(&socket, (group, 0).into(), Some(Ipv4Addr::LOCALHOST.into()), &losses).expect("a group");
        assert_eq!(membership.look(), None);
        let here = std::mem::replace(&mut membership.index, u32::MAX);
        assert_eq!(membership.look(), Some(MembershipChange::Lost));
        // The kernel has forgotten it with the card; here it has not.
        rustix::net::sockopt::set_ip_drop_membership(&socket, &group, &Ipv4Addr::LOCALHOST).expect("it was joined");
        assert_eq!(membership.look(), Some(MembershipChange::JoinedAgain));
        assert_eq!((membership.look(), membership.index, losses.load(Ordering::Relaxed)), (None, here, 1));
        drop(socket);
        membership.index = u32::MAX;
        assert_eq!(membership.look(), None, "nobody receives any more");
    }

    #[test]
    fn a_group_of_a_link_is_joined_again_at_the_card_s_new_number() {
        let here = index_of(c"lo");
        let group = SocketAddrV6::new(Ipv6Addr::new(0xFF12, 0, 0, 0, 0, 0, 0, 9), 0, 0, here);
        // SAFETY: asks who we are.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let Ok(socket) = UdpSocket::bind(group) else { return };
        let socket = Arc::new(OwnedFd::from(socket));
        let mut membership = Membership::join(&socket, group.into(), None, &Arc::default()).expect("a group");
        (membership.index, membership.group) = (u32::MAX, SocketAddrV6::new(*group.ip(), 0, 0, 7777).into());
        assert_eq!(membership.look(), Some(MembershipChange::Lost));
        rustix::net::sockopt::set_ipv6_drop_membership(&socket, group.ip(), here).expect("it was joined");
        assert_eq!(membership.look(), Some(MembershipChange::JoinedAgain));
        assert_eq!((membership.index, scope_of(membership.group)), (here, here));
    }
}
