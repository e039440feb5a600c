//! Landlock: files, addresses and other processes out of reach (Linux 5.13 and later).

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use std::io;
use std::path::PathBuf;

/// Which files may be reached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Files {
    /// All that the user may read but devices, to be read.
    Read,
    /// All that the user may read, to be read and to be started.
    ReadAndStart,
    /// None.
    None,
}

/// All that this program knows to forbid: of it the kernel forbids what it can.
const KNOWN: ABI = ABI::V6;
/// Devices that do no harm, and that libraries read.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// From now on the calling thread, and all that it starts, reaches these files alone; it does nothing over TCP, connects to no abstract
/// socket, sends no signal to others, and looks into no process outside.
///
/// # Errors
/// Where the kernel has no landlock.
pub(super) fn allow(files: Files) -> io::Result<()> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let (paths, access) = match files {
        Files::Read => (all_but_devices()?, read),
        Files::ReadAndStart => (vec![PathBuf::from("/")], read | AccessFs::Execute),
        Files::None => (Vec::new(), read),
    };
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(KNOWN)))
        .and_then(|rules| rules.scope(Scope::from_all(KNOWN)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(paths, access)))
        .and_then(|rules| rules.restrict_self())
        .map_err(io::Error::other)?;
    match restricted.ruleset {
        RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// What lies at the top of the file system, but for devices, terminals among them.
fn all_but_devices() -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<_> = DEVICES.map(PathBuf::from).into();
    for entry in std::fs::read_dir("/")? {
        let entry = entry?;
        if entry.file_name() != "dev" {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}
