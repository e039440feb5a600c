use crate::{COUNTERS, Counter, Place};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How many counters stand in the account of a source.
const COUNT: usize = {
    let (mut count, mut index) = (0, 0);
    while index < COUNTERS.len() {
        count += is_in_account(COUNTERS[index]) as usize;
        index += 1;
    }
    count
};

/// These counters, in the order of their numbers.
const IN_ACCOUNT: [Counter; COUNT] = {
    let (mut list, mut count, mut index) = ([Counter::CrcErrors; COUNT], 0, 0);
    while index < COUNTERS.len() {
        if is_in_account(COUNTERS[index]) {
            list[count] = COUNTERS[index];
            count += 1;
        }
        index += 1;
    }
    list
};

const fn is_in_account(counter: Counter) -> bool {
    matches!(counter.places(), [Place::Account, ..])
}

/// The counters of a source that stand in its account beside those of [`crate::FragmentAccount`]: those with
/// [`Place::Account`]. Serialised as a map from [`Counter::account_name`] to the count.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceCounts([u64; COUNT]);

impl SourceCounts {
    /// Each counter with what `count` says of it.
    pub fn of(count: impl FnMut(Counter) -> u64) -> Self {
        Self(IN_ACCOUNT.map(count))
    }

    /// The count; 0 where the counter does not stand in accounts.
    pub fn get(&self, counter: Counter) -> u64 {
        self.iter().find(|(one, _)| *one == counter).map_or(0, |(_, count)| count)
    }

    /// Adds to the counter; does nothing where it does not stand in accounts.
    pub fn add(&mut self, counter: Counter, count: u64) {
        if let Some(index) = IN_ACCOUNT.iter().position(|one| *one == counter) {
            self.0[index] += count;
        }
    }

    /// All counters, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        IN_ACCOUNT.into_iter().zip(self.0)
    }
}

impl Serialize for SourceCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(counter, count)| (counter.account_name(), count)))
    }
}

impl JsonSchema for SourceCounts {
    fn schema_name() -> Cow<'static, str> {
        "SourceCounts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut count = |counter: Counter| {
            let mut schema = u64::json_schema(generator);
            schema.insert("description".to_owned(), counter.help().trim().into());
            (counter.account_name(), schema)
        };
        let properties: BTreeMap<_, _> = IN_ACCOUNT.map(&mut count).into();
        let required = IN_ACCOUNT.map(Counter::account_name);
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_account_is_counted_and_no_other() {
        let mut counts = SourceCounts::default();
        for &counter in COUNTERS {
            counts.add(counter, 1);
            let is_in_account = counter.places().contains(&Place::Account);
            assert_eq!(counts.get(counter), u64::from(is_in_account), "{}", counter.name());
        }
        assert_eq!(counts, SourceCounts::of(|_| 1));
    }
}
