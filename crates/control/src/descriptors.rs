//! What this process may have open: connections of those who watch must leave enough for the run's own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises what this process may have open by so many, as far as it may, and says how many connections of at most so many there can be.
pub(crate) fn make_room(connections: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current else { return connections };
    let wanted = before.saturating_add(connections as u64);
    let wanted = maximum.map_or(wanted, |most| wanted.min(most));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    room(before, if is_raised { wanted } else { before }, connections)
}

/// What came on top is for connections, and the run keeps what it had. Where that is less than half of what it had, they share.
fn room(before: u64, now: u64, connections: usize) -> usize {
    (now - before).max(before / 2).min(connections as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_run_what_it_had_or_half_of_it() {
        for (before, now, expected) in
            [(1024, 3072, 2048), (1024, 1024, 512), (3000, 4096, 1500), (1024, 1800, 776), (20_000, 20_000, 2048)]
        {
            assert_eq!(room(before, now, 2048), expected, "{before} {now}");
        }
    }
}
