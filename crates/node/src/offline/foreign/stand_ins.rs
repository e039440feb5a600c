//! From which addresses boards are played on one machine, which does not have theirs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Each board's own address, and the one that stands in for it here. All of 127.0.0.0/8 is every machine's own.
#[derive(Clone, Debug, Default)]
pub(super) struct StandIns {
    known: BTreeMap<IpAddr, Ipv4Addr>,
}

impl StandIns {
    /// What stands in for an address: itself where it is one of this kind, otherwise 127.0.0.N with the last number of it, or the
    /// lowest that is left where another board has that already.
    pub(super) fn of(&mut self, own: IpAddr) -> Ipv4Addr {
        if let Some(known) = self.known.get(&own) {
            return *known;
        }
        let last = match own {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let here = |last: u8| Ipv4Addr::new(127, 0, 0, last);
        let free = |address: &Ipv4Addr| !self.known.values().any(|known| known == address);
        let address = match own {
            IpAddr::V4(own) if own.is_loopback() => own,
            _ => {
                let mut candidates =
                    std::iter::once(last).chain(1..255).filter(|last| (1..255).contains(last)).map(here);
                candidates.find(free).unwrap_or(Ipv4Addr::LOCALHOST)
            }
        };
        self.known.insert(own, address);
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_board_has_an_address_of_its_own_and_keeps_it() {
        let mut stand_ins = StandIns::default();
        let mut of = |text: &str| stand_ins.of(text.parse().expect("an address")).to_string();
        let boards = ["192.168.10.1", "192.168.10.2", "10.0.0.2", "10.0.0.255", "127.0.0.9", "fe80::7", "10.0.0.2"];
        let found = boards.map(&mut of);
        assert_eq!(found, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.9", "127.0.0.7", "127.0.0.3"]);
    }
}
