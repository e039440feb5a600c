//! Lists of e-links as people write them: `1,8-15`, `all`.

use ropewalk_wire::felix::{ELINKS, ELink};
use std::fmt;
use std::str::FromStr;

/// Some e-links of a card: ranges in order, which do not touch each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ELinks(Vec<(u16, u16)>);

/// A text that is no list of e-links.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no list of e-links; they are numbers from 0 to 2047, such as 5, 1,8-15 or all")]
pub struct NoELinks(String);

impl ELinks {
    const LAST: u16 = ELINKS as u16 - 1;

    /// All e-links that there can be.
    pub fn all() -> Self {
        Self(vec![(0, Self::LAST)])
    }

    /// First and last of each range, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (ELink, ELink)> {
        self.0.iter().map(|&(first, last)| (ELink::new(first), ELink::new(last)))
    }

    /// Every e-link, in order.
    pub fn iter(&self) -> impl Iterator<Item = ELink> {
        self.0.iter().flat_map(|&(first, last)| first..=last).map(ELink::new)
    }

    fn of_ranges(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut().filter(|before| first <= before.1 + 1) {
                Some(before) => before.1 = before.1.max(last),
                None => joined.push((first, last)),
            }
        }
        Self(joined)
    }
}

impl FromStr for ELinks {
    type Err = NoELinks;

    fn from_str(text: &str) -> Result<Self, NoELinks> {
        if text.trim() == "all" {
            return Ok(Self::all());
        }
        let wrong = || NoELinks(text.to_owned());
        let number = |part: &str| part.trim().parse().ok().filter(|&number| number <= Self::LAST).ok_or_else(wrong);
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(wrong());
            }
            ranges.push((first, last));
        }
        Ok(Self::of_ranges(ranges))
    }
}

impl fmt::Display for ELinks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return out.write_str("all");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if first == last { write!(out, "{comma}{first}")? } else { write!(out, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}
