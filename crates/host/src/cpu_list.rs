//! Lists of CPUs as the kernel writes them: `0-3,8,10-11`.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A set of logical CPUs, in ascending order. As text a list such as `0-3,8`; empty for none.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(with = "String")]
pub struct CpuList(Vec<u32>);

/// A text is no list of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is no list of CPUs: write for example 0-3,8 (numbers below {}, ranges upwards)", CpuList::MOST)]
pub struct CpuListError {
    /// The text that was given.
    pub text: String,
}

impl CpuList {
    /// CPU numbers are below this; the kernel supports at most 8,192.
    pub const MOST: u32 = 8192;

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in the list.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs that are in both lists.
    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }

    /// The CPUs that are in either list.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// The CPUs of this list that are not in the other.
    pub fn without(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| !other.contains(cpu)).collect()
    }

    /// Whether some CPU is in both lists.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.iter().any(|cpu| other.contains(cpu))
    }

    /// Whether every CPU of this list is in the other.
    pub fn is_within(&self, other: &Self) -> bool {
        self.iter().all(|cpu| other.contains(cpu))
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }
}

/// As the kernel writes it.
impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Reads a list; an empty text is an empty list, as the kernel writes it.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let wrong = || CpuListError { text: text.trim().to_owned() };
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&cpu| cpu < Self::MOST).ok_or_else(wrong);
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = |run: &[u32]| match run {
            [first, .., last] => format!("{first}-{last}"),
            alone => format!("{}", alone[0]),
        };
        let runs: Vec<String> = self.0.chunk_by(|one, next| *next == one + 1).map(run).collect();
        out.pad(&runs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        let list: CpuList = "0-2,8,10-11\n".parse().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 8, 10, 11]);
        assert_eq!(list.intersection(&"2-9".parse().unwrap()).to_string(), "2,8");
        assert!(" \n".parse::<CpuList>().unwrap().is_empty());
        assert!(list.contains(8) && !list.contains(9));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "3-1", "1,,2", "-1", "0-4294967295", "8192", "1-", "1 2"] {
            assert_eq!(text.parse::<CpuList>(), Err(CpuListError { text: text.to_owned() }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_goes_there_and_back(cpus in prop::collection::vec(0..300u32, 0..40)) {
            let list: CpuList = cpus.into_iter().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }

        #[test]
        fn lists_are_sets(left in prop::collection::vec(0..60u32, 0..40), right in prop::collection::vec(0..60u32, 0..40)) {
            let (left, right): (CpuList, CpuList) = (left.into_iter().collect(), right.into_iter().collect());
            let (both, rest, all) = (left.intersection(&right), left.without(&right), left.union(&right));
            for cpu in 0..60 {
                let (is_left, is_right) = (left.contains(cpu), right.contains(cpu));
                prop_assert_eq!(both.contains(cpu), is_left && is_right);
                prop_assert_eq!(rest.contains(cpu), is_left && !is_right);
                prop_assert_eq!(all.contains(cpu), is_left || is_right);
            }
            prop_assert_eq!(left.overlaps(&right), !both.is_empty());
            prop_assert_eq!(left.is_within(&right), rest.is_empty());
            prop_assert_eq!(all.first(), left.first().into_iter().chain(right.first()).min());
        }

        /// A set written in any order, with any ranges, is the same set.
        #[test]
        fn ranges_and_single_cpus_mean_the_same(parts in prop::collection::vec((0..200u32, 0..9u32), 1..8)) {
            let text: Vec<String> = parts.iter().map(|(first, more)| match more {
                0 => first.to_string(),
                more => format!("{first}-{}", first + more),
            }).collect();
            let alone: CpuList = parts.iter().flat_map(|(first, more)| *first..=first + more).collect();
            prop_assert_eq!(text.join(",").parse::<CpuList>(), Ok(alone));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9, a]{0,20}") {
            if let Ok(list) = text.parse::<CpuList>() {
                prop_assert!(list.iter().all(|cpu| cpu < CpuList::MOST));
            }
        }
    }
}
