//! What a process must be able to have open: counted before the run, so that none is refused a file in the middle of it.

use super::assemble::RunError;
use crate::configuration::{Configuration, SourceSection};
use crate::drive::{MOST_STRANGERS, MOST_UNKNOWN};
use ropewalk_terms::Role;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Standard streams, the logbook, pages, libraries, what the system is asked, and some to spare.
const PROCESS: u64 = 40;
/// What a thread waits with and is woken by, and a listening socket.
const NODE: u64 = 8;
/// A connection, and the next one while the first has not ended.
const SOURCE: u64 = 2;
/// What feeds a source that has a way in of its own, or its splitter's process.
const FEED: u64 = 6;
/// The file of a stream that is written, the next one, the last one while it is closed, and a directory.
const STREAM: u64 = 4;
/// A filter's process with its memories and bells.
const FILTER: u64 = 8;

/// Raises the soft limit to the hard one, and refuses where that is too low for the nodes of this process: all of them, or this one.
pub(super) fn make_room(configuration: &Configuration, node: Option<(Role, u16)>) -> Result<(), RunError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Where it may not be raised it is compared with as it is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let (needed, most) = (needed(configuration, node), getrlimit(Resource::Nofile).current);
    match most {
        Some(most) if most < needed => Err(RunError::Unfit(format!(
            "files and connections: this process needs {needed} descriptors and may have {most}; raise the hard limit, \
             as `ulimit -Hn {needed}` does for root, `nofile` in limits.conf or `LimitNOFILE=` of a systemd unit"
        ))),
        _ => Ok(()),
    }
}

/// How many descriptors the nodes of this process may need at a time.
fn needed(configuration: &Configuration, node: Option<(Role, u16)>) -> u64 {
    let is_here = |role, index: usize| node.is_none_or(|node| node == (role, index as u16));
    let others = node.map_or(0, |_| (configuration.readout.len() + configuration.builder.len()) as u64);
    let streams = configuration.stream.len().max(1) as u64;
    let filters = configuration.filter.iter().map(|filter| u64::from(filter.units)).sum::<u64>();
    let mut needed = PROCESS + NODE;
    let readouts = configuration.readout.iter().enumerate();
    for (_, readout) in readouts.filter(|(index, _)| is_here(Role::Readout, *index)) {
        needed += 2 * NODE + MOST_UNKNOWN as u64 + if others > 0 { MOST_STRANGERS as u64 } else { 0 };
        needed +=
            configuration.source.iter().filter(|source| source.readout == readout.name).map(of_source).sum::<u64>();
    }
    let builders = (0..configuration.builder.len()).filter(|&index| is_here(Role::Builder, index)).count() as u64;
    needed += builders * (NODE + streams * STREAM + filters * FILTER);
    let managers = if node.is_some_and(|(role, _)| role == Role::Manager) { MOST_STRANGERS as u64 } else { 0 };
    needed + managers + SOURCE * others
}

fn of_source(source: &SourceSection) -> u64 {
    let has_way = source.listen.is_some() || source.connect.is_some() || source.input.is_some();
    let feeds = [has_way, source.program.is_some(), source.splitter.is_some()];
    let feeds = feeds.into_iter().filter(|&feeds| feeds).count() as u64;
    SOURCE + feeds * FEED + u64::from(source.emulate.is_some())
}
