//! The exit status and its reasons, as accounts and reports carry them.

use ropewalk_terms::{Asked, Fact, Facts, Status};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// With which status a command ends, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct StatusSummary {
    /// The exit status.
    #[schemars(with = "Status")]
    pub code: u8,
    /// The facts that lead to a status other than 0, with their counts; docs/cli.md, "Exit status", has their names.
    #[schemars(with = "BTreeMap<String, NonZeroU64>")]
    pub reasons: BTreeMap<&'static str, u64>,
}

impl StatusSummary {
    /// What these facts lead to.
    pub fn of(facts: &Facts, asked: Asked) -> Self {
        let reasons = facts.reasons(asked).map(|(fact, count)| (fact.name(), count));
        Self { code: facts.status(asked) as u8, reasons: reasons.collect() }
    }

    /// Nothing was lost, misplaced or doubtful.
    pub const fn is_good(&self) -> bool {
        self.code == Status::Good as u8
    }
}

/// The unit of the fact with this name, such as `fragments`; empty if the name already says it.
pub fn unit(name: &str) -> &'static str {
    Fact::from_name(name).map_or("", Fact::unit)
}

/// Facts with these names and counts, as flags of fragments have them; other names are left out.
pub fn named<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> impl Iterator<Item = (Fact, u64)> {
    counts.into_iter().filter_map(|(name, count)| Some((Fact::from_name(name)?, count)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::message::FragmentFlags;

    #[test]
    fn every_flag_that_puts_a_fragment_in_doubt_leads_to_a_status() {
        let all = FragmentFlags::DOUBTS.iter().fold(FragmentFlags::default(), |all, (flag, _)| all.with(*flag));
        assert_eq!((0..32).filter(|bit| FragmentFlags(1 << bit).has_error()).count(), FragmentFlags::DOUBTS.len());
        assert!(all.has_error() && all.doubts().eq(0..FragmentFlags::DOUBTS.len()));
        for (_, name) in FragmentFlags::DOUBTS {
            let facts = Facts::default().with(named([(name, 1)]));
            assert_eq!(StatusSummary::of(&facts, Asked::Taken).reasons, [(name, 1)].into());
        }
    }
}
