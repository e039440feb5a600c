//! Which card has an address: what the kernel has found out. It is not asked for here: the first packets to an address leave
//! through a socket, and that makes the kernel ask.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ropewalk_terms::Instant;
use ropewalk_wire::internet::MacAddress;

/// How soon the kernel is looked at again: while somebody's card is not known, and to see whether one has changed.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_secs(1);

/// The most addresses that are kept.
const MOST: usize = 1024;

/// The addresses that packets are sent to.
pub(super) struct Neighbours {
    /// The kernel's table of the namespace and card in which this was made.
    table: Option<File>,
    card: String,
    /// By address; without a card as long as that is not known.
    known: Vec<(Ipv4Addr, Option<MacAddress>)>,
    due: Instant,
}

impl Neighbours {
    pub(super) fn new(card: &str) -> Self {
        let table = File::open("/proc/thread-self/net/arp").ok();
        Self { table, card: card.to_owned(), known: Vec::with_capacity(MOST), due: Instant::ZERO }
    }

    /// The card that has an address, if that is known; what is not will be looked for.
    #[inline]
    pub(super) fn card_of(&mut self, address: Ipv4Addr) -> Option<MacAddress> {
        match self.known.binary_search_by_key(&address, |known| known.0) {
            Ok(place) => self.known[place].1,
            Err(place) => {
                if self.known.len() < MOST {
                    self.known.insert(place, (address, None));
                    self.due = Instant::ZERO;
                }
                None
            }
        }
    }

    /// Looks at the kernel's table if it is time to.
    pub(super) fn refresh(&mut self, now: Instant) {
        if self.known.is_empty() || now < self.due {
            return;
        }
        let Self { table, card, known, .. } = self;
        if let Some(table) = table {
            each_line(table, |line| {
                let Some((address, mac)) = entry(line, card) else { return };
                if let Ok(place) = known.binary_search_by_key(&address, |known| known.0) {
                    known[place].1 = Some(mac);
                }
            });
        }
        let all = self.known.iter().all(|known| known.1.is_some());
        self.due = now.after(if all { LATER } else { SOON });
    }
}

/// Goes through a file's lines, without an allocation. Lines of more than a kilobyte are not such as are looked for.
fn each_line(file: &File, mut use_it: impl FnMut(&str)) {
    let (mut buffer, mut offset) = ([0; 1024], 0);
    while let Ok(length) = file.read_at(&mut buffer, offset) {
        let Some(end) = buffer[..length].iter().rposition(|&byte| byte == b'\n') else { return };
        core::str::from_utf8(&buffer[..end]).unwrap_or_default().lines().for_each(&mut use_it);
        offset += end as u64 + 1;
    }
}

/// A line of `/proc/net/arp`: address, type, flags, card, mask, device. Flag 2 says that the card has answered.
fn entry(line: &str, card: &str) -> Option<(Ipv4Addr, MacAddress)> {
    let mut words = line.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let flags = u32::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()?;
    let mut mac = MacAddress::default();
    let mut bytes = words.next()?.split(':');
    for byte in &mut mac.0 {
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    (flags & 2 != 0 && words.nth(1)? == card).then_some((address, mac))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TABLE: &str = "IP address       HW type     Flags       HW address            Mask     Device\n\
                         10.77.0.2        0x1         0x2         02:00:00:00:00:0a     *        veth0\n\
                         10.77.0.3        0x1         0x0         00:00:00:00:00:00     *        veth0\n\
                         10.77.0.4        0x1         0x2         02:00:00:00:00:0c     *        veth1\n";

    #[test]
    fn cards_that_have_answered_are_found() {
        let found: Vec<_> = TABLE.lines().filter_map(|line| entry(line, "veth0")).collect();
        assert_eq!(found, [(Ipv4Addr::new(10, 77, 0, 2), MacAddress([2, 0, 0, 0, 0, 10]))]);
    }

    #[test]
    fn an_address_is_looked_for_once_it_was_asked_for_also_in_a_long_table() {
        let path = std::env::temp_dir().join(format!("ropewalk-neighbours-{}", std::process::id()));
        let mut file = File::create_new(&path).expect("a file of the test's own");
        for _ in 0..50 {
            file.write_all(TABLE.replace("10.77.0.2", "10.77.1.2").as_bytes()).expect("room");
        }
        file.write_all(TABLE.as_bytes()).expect("room");
        let table = File::open(&path).ok();
        std::fs::remove_file(&path).expect("the test's own file");
        let mut neighbours = Neighbours { table, ..Neighbours::new("veth0") };
        let (known, silent) = (Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3));
        neighbours.refresh(Instant::ZERO);
        assert_eq!((neighbours.card_of(known), neighbours.card_of(silent)), (None, None));
        neighbours.refresh(Instant::ZERO);
        assert_eq!(neighbours.card_of(known), Some(MacAddress([2, 0, 0, 0, 0, 10])));
        assert_eq!((neighbours.card_of(silent), neighbours.due), (None, Instant::ZERO.after(SOON)));
    }
}
