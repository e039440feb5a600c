//! A filter in C that decides on events of files: in the filter unit's own process, which ends over what the filter does.

use super::filter::{EventFilter, FileEvent, Undecided};
use ropewalk_flow::filter::{Decision, TriggerView};
use ropewalk_flow::messages::{Fragment, FragmentFlags, FragmentMeta};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_plugin::filter::{Filter, FilterConfig, FilterEvent};
use ropewalk_terms::{Attempt, EventKey, RunNumber};
use ropewalk_wire::fed;

/// Memory for the fragments of one event: so many blocks of so many bytes.
const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 256;

/// A library's filter, which is shown one event after the other.
#[derive(Debug)]
pub struct LibraryFilter {
    filter: Filter,
    memory: Staging,
    /// Those of the event that it is shown.
    fragments: Vec<Fragment>,
}

impl LibraryFilter {
    /// Loads the library, and tells its filter that the run begins.
    ///
    /// # Errors
    /// Where the library is no filter, or does not want to, or there is no memory.
    pub fn new(config: &FilterConfig, run: RunNumber) -> Result<Self, Undecided> {
        let failed = |error: &dyn std::error::Error| Undecided(error.to_string());
        let mut filter = Filter::new(config).map_err(|error| failed(&error))?;
        let pool = Pool::new_untouched(PoolConfig::heap("fragments", BLOCK, BLOCKS)).map_err(|error| failed(&error))?;
        filter.begin_run(run);
        Ok(Self { filter, memory: Staging::new(pool), fragments: Vec::new() })
    }

    /// Takes the fragments of an event to where a filter may look at them.
    fn take(&mut self, event: &FileEvent<'_>) -> Result<(), Undecided> {
        self.fragments.clear();
        self.memory.pool_mut().collect();
        for fragment in event.fragments().ok_or_else(|| Undecided("its data are no FED fragments".to_owned()))? {
            let mut payload = Payload::default();
            for piece in fragment.bytes().chunks(self.memory.largest()) {
                let slice = self.memory.write(piece);
                payload.push(slice.ok_or_else(|| Undecided(format!("it is longer than {} bytes", BLOCK * BLOCKS)))?);
            }
            self.fragments.push(Fragment { meta: meta(fragment), payload });
        }
        Ok(())
    }
}

/// What is known of a fragment, as a readout unit would know it.
fn meta(fragment: &fed::Fragment<'_>) -> FragmentMeta {
    let header = fragment.header();
    let known = FragmentFlags::CRC_CHECKED.0 | FragmentFlags::HAS_BUNCH_CROSSING.0;
    let wrong = if fragment.check_crc().is_err() { FragmentFlags::CRC_ERROR.0 } else { 0 };
    FragmentMeta {
        source: header.source(),
        length: fragment.bytes().len() as u32,
        flags: FragmentFlags(known | wrong),
        bunch_crossing: header.bunch_crossing(),
        trigger_type: header.event_type().into(),
        raw_id: header.level1_id().into(),
        time: 0,
    }
}

/// An event of a file, as filters see it: FRD tells neither attempts nor what is missing.
struct Shown<'a> {
    key: EventKey,
    trigger_type: u16,
    fragments: &'a [Fragment],
}

impl FilterEvent for Shown<'_> {
    fn key(&self) -> EventKey {
        self.key
    }

    fn attempt(&self) -> Attempt {
        Attempt(1)
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn trigger_type(&self) -> u16 {
        self.trigger_type
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

impl EventFilter for LibraryFilter {
    fn decide(&mut self, event: &FileEvent<'_>) -> Result<Decision, Undecided> {
        self.take(event)?;
        let Self { filter, fragments, .. } = self;
        let shown = Shown { key: event.key(), trigger_type: event.trigger_type(), fragments };
        match filter.process(&shown) {
            Ok(Some(decision)) => Ok(Decision { accept: decision.accept, triggers: decision.bits }),
            Ok(None) => Err(Undecided(format!("the filter cannot decide on it: {}", filter.why()))),
            Err(nonsense) => Err(Undecided(nonsense.to_string())),
        }
    }
}

impl Drop for LibraryFilter {
    fn drop(&mut self) {
        self.filter.end_run();
    }
}
