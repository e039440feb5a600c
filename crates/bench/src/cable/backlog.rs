//! What waits for a processor before any receiver sees it.

use std::fs;
use std::io;

use ropewalk_io::packet::cable::{CARD, Cable};

const SETTING: &str = "/proc/sys/net/core/netdev_max_backlog";
const STATISTICS: &str = "/proc/net/softnet_stat";
const INTERFACES: &str = "/proc/thread-self/net/dev";

/// Has more packets wait for each processor of this machine than the kernel's thousand, as long as it is there: a processor
/// that is away for 4 ms would cost packets that no receiver could save. A card has a ring of its own for that.
pub(crate) struct LongBacklog {
    before: String,
}

impl LongBacklog {
    /// So many packets.
    ///
    /// # Errors
    /// What the kernel says, mostly that only the administrator may.
    pub(crate) fn of(packets: u32) -> io::Result<Self> {
        let before = fs::read_to_string(SETTING)?;
        fs::write(SETTING, packets.to_string())?;
        Ok(Self { before })
    }
}

/// Packets that were dropped before any receiver could see them: by the processors of this machine since it was started, and at
/// both ends of a cable, whose ring of 256 packets nobody can make longer.
///
/// # Errors
/// What the kernel says.
pub(crate) fn dropped_on_the_way(cable: &Cable) -> io::Result<u64> {
    let ends = [&cable.source, &cable.sink].map(|host| host.inside(|| fs::read_to_string(INTERFACES)));
    let at_ends = ends.into_iter().map(|text| Ok(dropped_at_card(&text?))).sum::<io::Result<u64>>()?;
    Ok(dropped_by_processors(&fs::read_to_string(STATISTICS)?) + at_ends)
}

impl Drop for LongBacklog {
    fn drop(&mut self) {
        // Nothing depends on it but the next figures of somebody else, and there is nobody to tell.
        let _ = fs::write(SETTING, self.before.trim());
    }
}

/// A line for each processor, of hexadecimal numbers: taken, dropped, and so on.
fn dropped_by_processors(statistics: &str) -> u64 {
    let second = |line: &str| line.split_whitespace().nth(1).and_then(|number| u64::from_str_radix(number, 16).ok());
    statistics.lines().filter_map(second).sum()
}

/// Behind a card's name eight numbers of what came and eight of what left, the fourth of each what was dropped.
fn dropped_at_card(interfaces: &str) -> u64 {
    let card = interfaces.lines().find_map(|line| line.trim_start().strip_prefix(CARD)?.strip_prefix(':'));
    let numbers: Vec<u64> = card.unwrap_or_default().split_whitespace().map(|text| text.parse().unwrap_or(0)).collect();
    [3, 11].iter().filter_map(|at| numbers.get(*at)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_all_processors_are_added_up() {
        assert_eq!(dropped_by_processors("0003f6a1 0000000a 00000002\n00000b12 000000ff 00000000\n"), 265);
        assert_eq!(dropped_by_processors(""), 0);
    }

    #[test]
    fn drops_of_a_card_are_those_of_both_directions() {
        let lo = "    lo: 1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8";
        let card = format!("Inter-| Receive\n{lo}\n  {CARD}: 64 1 0 30 0 0 0 0 128 2 0 12 0 0 0 0\n");
        assert_eq!((dropped_at_card(&card), dropped_at_card(lo)), (42, 0));
    }
}
