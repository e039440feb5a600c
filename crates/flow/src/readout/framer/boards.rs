//! Which of several boards that send to the same place a datagram comes from.

/// Boards by what tells them apart: their address, or a number in their frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boards {
    /// The names of boards, each with the board's index: most have one.
    known: Vec<(u128, usize)>,
    /// How many there can be.
    most: usize,
}

impl Boards {
    /// These boards, and no others. Addresses are numbers: see [`Boards::of_address`].
    pub fn new(boards: Vec<u128>) -> Self {
        Self::of_names(boards.into_iter().map(|board| vec![board]).collect())
    }

    /// The same for boards that have several names each.
    pub fn of_names(boards: Vec<Vec<u128>>) -> Self {
        let most = boards.len();
        let named = |(index, names): (usize, Vec<u128>)| names.into_iter().map(move |name| (name, index));
        Self { known: boards.into_iter().enumerate().flat_map(named).collect(), most }
    }

    /// So many boards, whoever they are, in the order in which they show themselves.
    pub fn of_count(most: usize) -> Self {
        Self { known: Vec::with_capacity(most), most }
    }

    /// What stands for an address.
    pub fn of_address(address: core::net::IpAddr) -> u128 {
        match address.to_canonical() {
            core::net::IpAddr::V4(address) => u128::from(u32::from(address)),
            core::net::IpAddr::V6(address) => u128::from(address),
        }
    }

    /// Which board it is; none where it is none of them, and no more are expected.
    pub fn index_of(&mut self, board: u128) -> Option<usize> {
        let known = self.known.iter().find(|&&(name, _)| name == board).map(|&(_, index)| index);
        let next = self.known.len();
        if known.is_none() && next < self.most {
            self.known.push((board, next));
            return Some(next);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_are_known_or_come_one_after_the_other() {
        let address = |last| Boards::of_address(core::net::IpAddr::from([192, 168, 10, last]));
        let mut two = Boards::new(vec![address(2), address(1)]);
        assert_eq!([1, 2, 3].map(|last| two.index_of(address(last))), [Some(1), Some(0), None]);
        let mut any = Boards::of_count(2);
        assert_eq!([7, 5, 7, 9, 5].map(|board| any.index_of(board)), [Some(0), Some(1), Some(0), None, Some(1)]);
    }

    #[test]
    fn a_board_of_several_names_is_one() {
        let mut two = Boards::of_names(vec![vec![7, 1], vec![8]]);
        assert_eq!([1, 8, 7, 2].map(|name| two.index_of(name)), [Some(0), Some(1), Some(0), None]);
    }

    #[test]
    fn an_address_is_the_same_board_in_both_of_its_forms() {
        let mapped = core::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        assert_eq!(Boards::of_address(mapped.into()), Boards::of_address([10, 0, 0, 1].into()));
    }
}
