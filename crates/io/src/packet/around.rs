//! What the machine lost, of whatever flow: the kernel's own counts, as differences from when the receiver was made.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ropewalk_terms::{ByCause, Cause};

/// The longest of these files: `snmp` has about 1.5 kB, and `dev` a line of 130 bytes for each interface.
const MOST_BYTES: usize = 8192;

/// The kernel's files, which stay open: reading them allocates nothing.
pub(super) struct Around {
    /// Counts of IP and UDP in this network namespace.
    protocols: Option<File>,
    /// The same of IPv6.
    protocols_v6: Option<File>,
    /// Counts of all interfaces.
    interfaces: Option<File>,
    /// The one that is looked at; none: all of them.
    interface: Option<String>,
    /// What they said at first.
    before: ByCause,
}

impl Around {
    /// Looks at the counts of this network namespace, and of an interface in it, or of all.
    pub(super) fn new(interface: Option<String>) -> Self {
        // A file that is not there counts nothing: /proc may not be mounted.
        let protocols = File::open("/proc/thread-self/net/snmp").ok();
        let protocols_v6 = File::open("/proc/thread-self/net/snmp6").ok();
        let interfaces = File::open("/proc/thread-self/net/dev").ok();
        let mut around = Self { protocols, protocols_v6, interfaces, interface, before: ByCause::default() };
        around.before = around.absolute();
        around
    }

    /// What was lost since.
    pub(super) fn read(&self) -> ByCause {
        let (now, mut since) = (self.absolute(), ByCause::default());
        for (cause, count) in now.iter() {
            since.set(cause, count.saturating_sub(self.before.get(cause)));
        }
        since
    }

    fn absolute(&self) -> ByCause {
        let mut counts = ByCause::default();
        with_text(self.protocols.as_ref(), |text| {
            counts.set(Cause::Malformed, field(text, "Ip:", "InHdrErrors"));
            counts.set(Cause::NotReassembled, field(text, "Ip:", "ReasmFails"));
            counts.set(Cause::BadChecksum, field(text, "Udp:", "InCsumErrors"));
            counts.set(Cause::SocketQueueFull, field(text, "Udp:", "RcvbufErrors"));
        });
        with_text(self.protocols_v6.as_ref(), |text| {
            counts.add(Cause::Malformed, named(text, "Ip6InHdrErrors"));
            counts.add(Cause::NotReassembled, named(text, "Ip6ReasmFails"));
            counts.add(Cause::BadChecksum, named(text, "Udp6InCsumErrors"));
            counts.add(Cause::SocketQueueFull, named(text, "Udp6RcvbufErrors"));
        });
        with_text(self.interfaces.as_ref(), |text| {
            counts.set(Cause::InterfaceDropped, received_and_dropped(text, self.interface.as_deref()));
        });
        counts
    }
}

/// Shows a file's text, as far as it can be read.
fn with_text(file: Option<&File>, use_it: impl FnOnce(&str)) {
    let mut bytes = [0; MOST_BYTES];
    let Some(Ok(length)) = file.map(|file| file.read_at(&mut bytes, 0)) else { return };
    if let Ok(text) = core::str::from_utf8(&bytes[..length]) {
        use_it(text);
    }
}

/// A number of `/proc/net/snmp`: a line of names, then a line of numbers, both with the protocol in front.
fn field(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let place = names.split_ascii_whitespace().position(|word| word == name);
    let number = place.and_then(|place| numbers.split_ascii_whitespace().nth(place));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A number of `/proc/net/snmp6`, which has a line for each name.
fn named(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let number = lines.find(|(known, _)| *known == name).map(|(_, number)| number.trim());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A number of `/proc/net/dev`, which has a line for each interface with bytes, packets, errors and drops: of one of them, or
/// of all together.
fn received_and_dropped(text: &str, interface: Option<&str>) -> u64 {
    let all = text.lines().filter_map(|line| line.trim_start().split_once(':'));
    let chosen = all.filter(|(name, _)| interface.is_none_or(|wanted| wanted == *name));
    let dropped = |numbers: &str| numbers.split_ascii_whitespace().nth(3)?.parse::<u64>().ok();
    chosen.filter_map(|(_, numbers)| dropped(numbers)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_names() {
        let text = "Ip: Forwarding ReasmFails FragOKs\nIp: 1 17 3\nUdp: InCsumErrors\nUdp: 5\nUdpLite: InCsumErrors\nUdpLite: 9\n";
        assert_eq!(field(text, "Ip:", "ReasmFails"), 17);
        assert_eq!(field(text, "Udp:", "InCsumErrors"), 5);
        let text_v6 = "Ip6InHdrErrors                  \t3\nUdp6InErrors \t4\nUdp6RcvbufErrors                \t7\n";
        assert_eq!(["Udp6RcvbufErrors", "Udp6InErrors", "Udp6In"].map(|name| named(text_v6, name)), [7, 4, 0]);
        assert_eq!((field(text, "Udp:", "NoPorts"), field(text, "Tcp:", "InSegs"), field("", "Ip:", "x")), (0, 0, 0));
    }

    #[test]
    fn drops_of_an_interface_are_found_by_its_name() {
        let text = "Inter-| Receive\n face |bytes packets errs drop\n  eth1: 1 2 3 4 0\n  eth10: 5 6 7 8 0\n";
        assert_eq!(
            [Some("eth1"), Some("eth10"), Some("eth"), None].map(|name| received_and_dropped(text, name)),
            [4, 8, 0, 12]
        );
    }

    #[test]
    fn what_happened_before_does_not_count() {
        let around = Around::new(Some("lo".to_owned()));
        assert!(around.protocols.is_some() && around.interfaces.is_some(), "Linux has these files");
        assert!(around.read().total() <= around.absolute().total());
    }
}
