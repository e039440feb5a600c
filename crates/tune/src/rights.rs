//! Who may write a setting, as the kernel decides it, and what of a plan this process may not.

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ropewalk_host::{Capability, Rights};

use crate::cards::CardError;
use crate::{Place, Plan, Setting, SettingError};

/// Who may write a setting.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Right {
    /// root alone, whatever capabilities others have: /proc/sys outside of `net` (`test_perm` in fs/proc/proc_sysctl.c).
    Root,
    /// root, of whom the kernel asks for CAP_SYS_ADMIN besides: `kernel.numa_balancing`.
    RootWithSysAdmin,
    /// Whoever has CAP_NET_ADMIN: /proc/sys/net, and cards by netlink.
    NetAdmin,
    /// Whom the file lets: /proc/irq and most of /sys.
    File,
    /// Whom the file lets, of whom the kernel asks for CAP_NET_ADMIN besides: /sys/class/net.
    FileWithNetAdmin,
    /// Whom the file lets, of whom the kernel asks for CAP_SYS_ADMIN besides: `cpuidle`.
    FileWithSysAdmin,
    /// Whom the thread's process belongs to, and whoever has CAP_SYS_NICE: sched_setaffinity(2).
    Nice,
}

impl Right {
    /// Who may write this file, which has no leading slash.
    pub(crate) fn of_file(path: &str) -> Self {
        match path {
            "proc/sys/kernel/numa_balancing" => Self::RootWithSysAdmin,
            _ if path.starts_with("proc/") && path.contains("/task/") => Self::Nice,
            _ if path.starts_with("proc/sys/net/") => Self::NetAdmin,
            _ if path.starts_with("proc/sys/") => Self::Root,
            _ if path.starts_with("sys/class/net/") || path.starts_with("sys/devices/virtual/net/") => {
                Self::FileWithNetAdmin
            }
            _ if path.starts_with("sys/devices/system/cpu/") && path.contains("/cpuidle/") => Self::FileWithSysAdmin,
            _ => Self::File,
        }
    }

    /// What somebody needs to have it, in words.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::RootWithSysAdmin => "root with CAP_SYS_ADMIN",
            Self::NetAdmin => "root or CAP_NET_ADMIN",
            Self::File => "root or CAP_DAC_OVERRIDE",
            Self::FileWithNetAdmin => "root, or CAP_DAC_OVERRIDE and CAP_NET_ADMIN",
            Self::FileWithSysAdmin => "root, or CAP_DAC_OVERRIDE and CAP_SYS_ADMIN",
            Self::Nice => "root or CAP_SYS_NICE",
        }
    }

    /// What the kernel asks of root, too.
    const fn asked_of_root(self) -> Option<Capability> {
        match self {
            Self::Root | Self::NetAdmin | Self::File => None,
            Self::FileWithNetAdmin => Some(Capability::NetAdmin),
            Self::RootWithSysAdmin | Self::FileWithSysAdmin => Some(Capability::SysAdmin),
            Self::Nice => Some(Capability::SysNice),
        }
    }

    /// What may be missing to root, as the rest of a sentence that names the host first.
    pub(crate) fn or_missing(self) -> String {
        self.asked_of_root().map(|one| format!(", or {} is missing", one.name())).unwrap_or_default()
    }
}

/// What of a plan this process may not change, by what is missing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Forbidden {
    /// How many settings the plan has.
    pub planned: usize,
    /// What is missing, and the settings that are not changed without it.
    pub missing: Vec<(String, Vec<Setting>)>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.missing.iter().map(|(_, settings)| settings.len()).sum();
        write!(out, "this process may not change {count} of the {} settings, and nothing is changed:", self.planned)?;
        for (why, settings) in &self.missing {
            let names: Vec<_> = settings.iter().map(Setting::to_string).collect();
            write!(out, "\n  {}: {why}", names.join(", "))?;
        }
        write!(out, "\nrun it with these rights, or leave them out with --except and --only")
    }
}

impl Place {
    /// Looks whether this process may change all that is planned. Nothing is written.
    ///
    /// # Errors
    /// What it may not, all of it.
    pub fn permits(&self, plan: &Plan) -> Result<(), Forbidden> {
        let own = if self.is_live() { Rights::read(Path::new("/proc/self")) } else { Rights::default() };
        let mut missing: Vec<(String, Vec<Setting>)> = Vec::new();
        for change in &plan.changes {
            let Some(why) = self.refusal(&change.setting, &own).as_ref().and_then(why) else { continue };
            match missing.iter_mut().find(|(other, _)| *other == why) {
                Some((_, settings)) => settings.push(change.setting.clone()),
                None => missing.push((why, vec![change.setting.clone()])),
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Forbidden { planned: plan.changes.len(), missing }) }
    }

    /// Why a setting cannot be written, as far as that shows without writing.
    fn refusal(&self, setting: &Setting, own: &Rights) -> Option<SettingError> {
        match setting {
            Setting::File { path, .. } => {
                let asked = Right::of_file(path).asked_of_root();
                let lacks = asked.is_some_and(|capability| own.lacks(capability));
                self.opens(path).err().or_else(|| lacks.then(|| SettingError::denied(path)))
            }
            Setting::Mtu { interface } | Setting::Card { interface, .. } => {
                let source = || rustix::io::Errno::PERM.into();
                let refused = || CardError::Refused { interface: interface.clone(), source: source() }.into();
                own.lacks(Capability::NetAdmin).then(refused)
            }
            Setting::Thread(thread) => {
                let directory = self.directory_of(thread).ok()??;
                let may = if self.is_live() {
                    let owner = std::fs::metadata(directory).ok()?.uid();
                    owner == rustix::process::geteuid().as_raw() || !own.lacks(Capability::SysNice)
                } else {
                    OpenOptions::new().write(true).open(directory.join("status")).is_ok()
                };
                (!may).then(|| SettingError::denied(&thread.path()))
            }
        }
    }
}

/// What is missing, where it is a right.
fn why(error: &SettingError) -> Option<String> {
    match error {
        SettingError::NotAllowed { right, .. } => Some(format!("needs {}", right.needs())),
        SettingError::NotHere { right, .. } => Some(format!(
            "refused even to root: in a container or network namespace it belongs to the host{}",
            right.or_missing()
        )),
        SettingError::ReadOnly { tree, .. } => Some(format!("/{tree} is mounted read-only, as in most containers")),
        SettingError::Card(CardError::Refused { .. }) => Some(format!("needs {}", Right::NetAdmin.needs())),
        _ => None,
    }
}
