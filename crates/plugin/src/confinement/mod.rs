//! What the process of a plug-in gives up, for all kinds of plug-ins.
//!
//! ```text
//!  LastWords --> before_loading --> its library is loaded --> before_work --> it computes, and speaks over what it was given
//!  who ends      no rights, no       constructors run          no files       everything else ends it, and an Ending says
//!  says why      terminal; reads                                              what that was
//!                files alone
//! ```
//! The constructors of a library are ordinary code of it, so the process gives up everything harmful before they run.
//! `before_work` follows after them. It takes back what loading needed, and catches mistakes of plug-ins; hostile code
//! was stopped before.
//!
//! Rights, the terminal, memory and processes are given up on every system. System calls (seccomp: a list of allowed
//! calls, so that a forgotten one is refused) and files (landlock) are limited if the kernel can; if not, [`Missing`]
//! reports it. A program is not loaded but replaces the process (`before_program`), which loses access to files, to
//! other processes and to rights only. The confinement cannot be undone; it lasts until the process ends.

mod last_words;

use core::ffi::{c_int, c_long};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::{fmt, io};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use rustix::io::Errno;
use rustix::process::{
    Gid, Resource, Rlimit, Signal, Uid, getpid, getppid, getrlimit, getuid, set_parent_process_death_signal, setrlimit,
    setsid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use last_words::{CRASHES, READ_ONLY};

pub use last_words::{LastWords, WORDS, WORDS_BYTES};

/// Memory that a library and its dependencies may take while they are loaded, in bytes, beside the memory that is
/// allowed afterwards.
const LIBRARY: u64 = 1 << 30;

/// Resources that the process of a plug-in keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confinement {
    /// Memory that it may take beside the memory mapped when its work begins, in bytes.
    pub memory: u64,
    /// Process id of its starter. The process dies with the starter's thread.
    pub starter: u32,
    /// Descriptors over which it may read, write, send and receive, in addition to reading standard input and writing
    /// standard output and standard error.
    pub speaks_over: Vec<RawFd>,
}

/// Limits that this system does not support.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// System calls are not limited.
    pub seccomp: bool,
    /// Files remain accessible.
    pub landlock: bool,
}

impl Missing {
    /// Combines the missing limits of both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { seccomp: self.seccomp || other.seccomp, landlock: self.landlock || other.landlock }
    }

    /// Explains to users what is missing.
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        let seccomp = "seccomp is refused here: its process may make any call of the system that its user may";
        let landlock = "landlock is refused here: its process may open files that its user may";
        let both = "seccomp and landlock are refused here: its process may do all that its user may";
        match (self.seccomp, self.landlock) {
            (false, false) => None,
            (true, false) => Some(seccomp),
            (false, true) => Some(landlock),
            (true, true) => Some(both),
        }
        .into_iter()
    }
}

impl Confinement {
    /// From now on this process can do little else than load a library: it reads files that every user may read, starts
    /// no process or thread, opens no connection, has no terminal, changes nothing of other processes, and dies with
    /// its starter. `prepare` runs after the loss of rights, before files and system calls are limited.
    ///
    /// # Errors
    /// If the system refuses a limit that every system has, if other threads run (they would keep what this one gives
    /// up), or if the starter has ended.
    pub fn before_loading(&self, prepare: impl FnOnce()) -> io::Result<Missing> {
        be_alone()?;
        leave_terminal()?;
        set_limit(Resource::Core, 0)?;
        set_limit(Resource::As, self.memory.saturating_add(LIBRARY).saturating_add(mapped()?))?;
        set_limit(Resource::Nproc, 0)?;
        set_no_new_privs(true)?;
        drop_all()?;
        // A change of the user cancels the death signal, so this comes after it.
        self.die_with_starter()?;
        prepare();
        let landlock = allow(Files::Read).is_err();
        let own = [0, own_id()];
        let seccomp = (self.lasting())
            .map(|filter| filter.allow(LOADING))
            .and_then(|filter| filter.allow_by_argument(LOADING_BY_ARGUMENT))
            .and_then(|filter| filter.allow_where(LIMITS, 0, &own))
            .and_then(Filter::allow_reading_of_files)
            .and_then(Filter::install);
        Ok(Missing { seccomp: seccomp.is_err(), landlock })
    }

    /// From now on this process only computes and communicates over its descriptors: it opens no file, and takes no
    /// more memory than allowed. Call [`Confinement::before_loading`] first.
    ///
    /// # Errors
    /// If the system refuses a limit that every system has.
    pub fn before_work(&self) -> io::Result<Missing> {
        // A process that took more while it was loaded keeps that and gets nothing more: a limit cannot be raised.
        let present = getrlimit(Resource::As).maximum.unwrap_or(u64::MAX);
        set_limit(Resource::As, self.memory.saturating_add(mapped()?).min(present))?;
        let landlock = allow(Files::None).is_err();
        let refused = [ASKED_BY_THE_WAY, FILTERING].concat();
        // The first filter allows the calls that install the second one, which then forbids them.
        let seccomp =
            (self.lasting()).and_then(|filter| filter.allow(&refused).install()).and_then(|()| refuse(&refused));
        Ok(Missing { seccomp: seccomp.is_err(), landlock })
    }

    /// From now on this process, and the program that replaces it, may read and start files but change none. It opens
    /// no TCP connection, looks into no other process, has no terminal, gains no rights, has no rights of root but to
    /// read files, takes no more memory of its own than allowed, and dies with its starter. Its system calls are not
    /// limited, because a program may need any.
    ///
    /// # Errors
    /// As [`Confinement::before_loading`].
    pub fn before_program(&self) -> io::Result<Missing> {
        be_alone()?;
        leave_terminal()?;
        set_limit(Resource::Core, 0)?;
        // Memory that others can write to, such as shared memory, does not count as its own.
        set_limit(Resource::Data, self.memory)?;
        set_no_new_privs(true)?;
        keep(CapabilitySet::DAC_READ_SEARCH)?;
        self.die_with_starter()?;
        Ok(Missing { seccomp: false, landlock: allow(Files::ReadAndStart).is_err() })
    }

    /// The system calls that are allowed at any time.
    fn lasting(&self) -> io::Result<Filter> {
        let speaks_over: Vec<_> = self.speaks_over.iter().map(|&descriptor| descriptor as u32).collect();
        let prints_too: Vec<_> = speaks_over.iter().copied().chain([1, 2]).collect();
        let reads_too: Vec<_> = speaks_over.iter().copied().chain([0]).collect();
        Filter::default()
            .allow(COMPUTING)
            .allow_where(READING, 0, &reads_too)?
            .allow_where(SPEAKING, 0, &speaks_over)?
            .allow_where(PRINTING, 0, &prints_too)?
            // `abort` ends this process with a signal. Signals to other processes are forbidden.
            .allow_where(SIGNALLING, 0, &[own_id()])
    }

    fn die_with_starter(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != self.starter) {
            return Err(io::Error::other("the process that started it has gone"));
        }
        Ok(())
    }
}

fn set_limit(resource: Resource, most: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

fn own_id() -> u32 {
    getpid().as_raw_nonzero().get() as u32
}

/// Fails if other threads run: rights belong to each thread.
fn be_alone() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("it has {threads} threads, and each keeps its rights"))),
    }
}

/// Signals of a terminal go to the run, which ends this process itself. The plug-in cannot type into that terminal
/// either.
fn leave_terminal() -> io::Result<()> {
    match setsid() {
        // The process leads a process group already. That is enough if it leads the session as well.
        Err(Errno::PERM) if session()? == own_id() => Ok(()),
        left => Ok(left.map(drop)?),
    }
}

/// The session of this process; 0 if its leader is outside this PID namespace, as in a container.
/// `rustix::process::getsid` takes that 0 for a process id and panics.
fn session() -> io::Result<u32> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain anything. State, parent, process group and session follow it.
    let session = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(3)?.parse().ok());
    session.ok_or_else(|| io::Error::other("/proc/self/stat does not show the session"))
}

/// Memory that this process has mapped, in bytes.
fn mapped() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm does not say how much is mapped"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// User and group without rights.
const NOBODY: u32 = 65_534;

/// From now on this process and its children do not run as root and have no capabilities. If there is no other user, as
/// in a container with a single one, the process keeps its user, and that user's rights to files.
fn drop_all() -> io::Result<()> {
    bound(CapabilitySet::empty())?;
    if getuid().is_root() {
        // Drops the capabilities even if the change of the user fails.
        let _ = become_nobody();
    }
    keep_in_effect(CapabilitySet::empty())
}

/// Drops all capabilities of this process, and of programs that replace it, except those in `kept`.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    bound(kept)?;
    keep_in_effect(kept)
}

fn become_nobody() -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(NOBODY))?;
    Ok(set_thread_uid(Uid::from_raw(NOBODY))?)
}

/// Limits the capabilities of programs that replace this process.
fn bound(kept: CapabilitySet) -> io::Result<()> {
    if capabilities(None)?.permitted.contains(CapabilitySet::SETPCAP) {
        for one in CapabilitySet::all().difference(kept).iter() {
            // An older kernel does not know all of them.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    Ok(())
}

fn keep_in_effect(kept: CapabilitySet) -> io::Result<()> {
    let left = capabilities(None)?.permitted & kept;
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() },
    )?)
}

/// Files that may be accessed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Files {
    /// All files that the user may read, except devices; for reading.
    Read,
    /// All files that the user may read; for reading and execution.
    ReadAndStart,
    /// No files.
    None,
}

/// All accesses that this program can forbid. The kernel forbids the ones that it knows.
const KNOWN: ABI = ABI::V6;
/// Harmless devices that libraries read.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// From now on the calling thread and its children access these files only. They use no TCP, connect to no abstract
/// socket, send no signals to others, and look into no other process.
///
/// # Errors
/// If the kernel has no landlock.
fn allow(files: Files) -> io::Result<()> {
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

/// The directories at the top of the file system, except devices and terminals.
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

/// Flags that open a file for changes, or create it.
const CHANGES: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;

/// A list of allowed system calls; the last entry for a call counts. A call outside the list is not made. It becomes
/// the signal SIGSYS, whose handler learns the number of the call.
#[derive(Clone, Debug, Default)]
struct Filter(BTreeMap<i64, Vec<SeccompRule>>);

impl Filter {
    /// Allows these calls with any arguments.
    fn allow(mut self, calls: &[Call]) -> Self {
        self.0.extend(calls.iter().map(|&(_, number)| (number, Vec::new())));
        self
    }

    /// Allows these calls if the lower half of that argument is one of the values.
    fn allow_where(self, calls: &[Call], argument: u8, values: &[u32]) -> io::Result<Self> {
        let is_one = values.iter().map(|&value| (SeccompCmpOp::Eq, u64::from(value)));
        self.allow_if(calls, argument, is_one)
    }

    /// Allows these calls if the argument is one that the list names.
    fn allow_by_argument(self, calls: &[(Call, Argument)]) -> io::Result<Self> {
        calls.iter().try_fold(self, |filter, (call, argument)| filter.allow_where(&[*call], argument.0, argument.1))
    }

    /// Allows opening files for reading.
    fn allow_reading_of_files(self) -> io::Result<Self> {
        self.allow_if(OPENING, 2, [(SeccompCmpOp::MaskedEq(CHANGES), libc::O_RDONLY as u64)])
    }

    fn allow_if(
        mut self,
        calls: &[Call],
        argument: u8,
        conditions: impl IntoIterator<Item = (SeccompCmpOp, u64)>,
    ) -> io::Result<Self> {
        let rule = |(operation, value)| {
            let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)?;
            SeccompRule::new(vec![condition])
        };
        let rules = conditions.into_iter().map(rule).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        self.0.extend(calls.iter().map(|&(_, number)| (number, rules.clone())));
        Ok(self)
    }

    /// Applies the list to all threads of this process. Earlier filters stay in force.
    fn install(self) -> io::Result<()> {
        install(self.0, SeccompAction::Trap, SeccompAction::Allow)
    }
}

/// From now on these calls fail, and their caller continues. Another rule must allow them.
fn refuse(calls: &[Call]) -> io::Result<()> {
    let rules = calls.iter().map(|&(_, number)| (number, Vec::new())).collect();
    install(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

fn install(rules: BTreeMap<i64, Vec<SeccompRule>>, others: SeccompAction, these: SeccompAction) -> io::Result<()> {
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, others, these, machine).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

/// A system call: its name in C, and its number.
type Call = (&'static str, c_long);

/// Index of an argument, from 0, and its allowed values.
type Argument = (u8, &'static [u32]);

/// A list of calls from the names of their numbers.
macro_rules! calls {
    ($($(#[$attribute:meta])* $name:ident)*) => { &[$($(#[$attribute])* (stringify!($name), libc::$name)),*] };
}

macro_rules! call {
    ($name:ident) => {
        (stringify!($name), libc::$name)
    };
}

/// System calls of a computation: memory, time, waiting, its own signals, its identity and place, its end.
const COMPUTING: &[Call] = calls! {
    SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_futex SYS_getrandom
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_sched_yield
    SYS_ppoll
    #[cfg(target_arch = "x86_64")] SYS_poll
    #[cfg(target_arch = "x86_64")] SYS_pause
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack SYS_restart_syscall
    SYS_getpid SYS_getppid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid
    SYS_uname SYS_sysinfo SYS_getrusage SYS_getcpu SYS_sched_getaffinity
    SYS_lseek SYS_fstat SYS_close SYS_exit SYS_exit_group
};

/// Calls for the descriptors that the process was given.
const SPEAKING: &[Call] = calls! { SYS_sendto SYS_recvfrom };

/// Calls for standard input in addition.
const READING: &[Call] = calls! { SYS_read };

/// Calls for standard output in addition.
const PRINTING: &[Call] = calls! { SYS_write SYS_writev };

/// Calls with which a process ends itself.
const SIGNALLING: &[Call] = calls! { SYS_tgkill };

/// Calls for loading a library in addition to opening files, and for the last step of the confinement.
const LOADING: &[Call] = calls! {
    SYS_read SYS_readv SYS_pread64 SYS_getdents64 SYS_getcwd SYS_readlinkat SYS_newfstatat SYS_statx SYS_faccessat
    SYS_statfs SYS_fstatfs SYS_set_robust_list SYS_set_tid_address
    #[cfg(target_arch = "x86_64")] SYS_readlink
    #[cfg(target_arch = "x86_64")] SYS_access
    #[cfg(target_arch = "x86_64")] SYS_stat
    #[cfg(target_arch = "x86_64")] SYS_arch_prctl
    SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_seccomp
};

/// The same for powerful calls, limited by an argument to what loading needs: asking for the kind of a terminal or
/// descriptor, naming its thread and memory, and giving up more rights.
const LOADING_BY_ARGUMENT: &[(Call, Argument)] = &[
    (call!(SYS_ioctl), (1, &[libc::TCGETS as u32, libc::TIOCGWINSZ as u32, libc::FIONREAD as u32])),
    (
        call!(SYS_fcntl),
        (1, &[libc::F_GETFD as u32, libc::F_SETFD as u32, libc::F_GETFL as u32, libc::F_DUPFD_CLOEXEC as u32]),
    ),
    (
        call!(SYS_prctl),
        (
            0,
            &[
                libc::PR_SET_NO_NEW_PRIVS as u32,
                libc::PR_SET_NAME as u32,
                libc::PR_GET_NAME as u32,
                libc::PR_CAPBSET_READ as u32,
                libc::PR_SET_VMA as u32,
            ],
        ),
    ),
];

/// Resource limits of the process in the first argument.
const LIMITS: &[Call] = calls! { SYS_prlimit64 };

/// Opens files.
const OPENING: &[Call] = calls! { SYS_openat };

/// Calls that libraries, the C library first of all, make in passing and can do without. They fail, and the library
/// continues.
const ASKED_BY_THE_WAY: &[Call] = calls! {
    SYS_ioctl SYS_fcntl SYS_newfstatat SYS_statx SYS_faccessat SYS_readlinkat SYS_prctl SYS_prlimit64
    #[cfg(target_arch = "x86_64")] SYS_readlink
    #[cfg(target_arch = "x86_64")] SYS_access
    #[cfg(target_arch = "x86_64")] SYS_stat
};

/// Calls of the last step of the confinement after it has limited the calls.
const FILTERING: &[Call] = calls! { SYS_seccomp };

/// Calls that a misbehaving plug-in would make, listed to report them by name.
const OTHERS: &[Call] = calls! {
    SYS_socket SYS_socketpair SYS_connect SYS_bind SYS_sendmsg SYS_recvmsg SYS_clone SYS_clone3 SYS_execve SYS_execveat
    SYS_kill SYS_tkill SYS_ptrace SYS_openat2 SYS_unlinkat SYS_mkdirat SYS_renameat2 SYS_memfd_create SYS_dup SYS_dup3
    SYS_pipe2 SYS_eventfd2 SYS_process_vm_readv SYS_process_vm_writev SYS_pwrite64 SYS_ftruncate SYS_fallocate SYS_mount
    SYS_shmget SYS_shmat SYS_io_uring_setup SYS_bpf SYS_setpriority SYS_sched_setscheduler SYS_sched_setaffinity SYS_wait4
    SYS_setuid SYS_setgid SYS_setgroups SYS_setresuid SYS_setresgid SYS_setsid SYS_setpgid SYS_capset
    #[cfg(target_arch = "x86_64")] SYS_open
    #[cfg(target_arch = "x86_64")] SYS_creat
    #[cfg(target_arch = "x86_64")] SYS_fork
    #[cfg(target_arch = "x86_64")] SYS_vfork
    #[cfg(target_arch = "x86_64")] SYS_unlink
    #[cfg(target_arch = "x86_64")] SYS_rename
    #[cfg(target_arch = "x86_64")] SYS_dup2
    #[cfg(target_arch = "x86_64")] SYS_pipe
    #[cfg(target_arch = "x86_64")] SYS_alarm
};

/// Name of a system call, if known.
fn name_of(number: u64) -> Option<&'static str> {
    let all = [OTHERS, OPENING, LOADING, ASKED_BY_THE_WAY, PRINTING, READING, SPEAKING, SIGNALLING, COMPUTING];
    let found = all.into_iter().flatten().find(|(_, known)| u64::try_from(*known) == Ok(number));
    found.map(|(name, _)| name.trim_start_matches("SYS_"))
}

/// How a process of a plug-in ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It made a forbidden system call. The number is missing if the call was made in a place without a signal handler,
    /// such as the start of a thread.
    Forbidden(Option<u64>),
    /// It wrote to read-only memory.
    WroteToReadOnly,
    /// It crashed with this signal.
    Crashed {
        /// The signal's number.
        signal: c_int,
        /// It had hardly any of its allowed memory left.
        is_out_of_memory: bool,
    },
    /// This signal from outside ended it.
    Ended(c_int),
    /// It ended by itself with this status.
    Left(c_int),
}

impl Ending {
    /// Derives the end from the process status and from the report that it left, which is zero if it left none. The
    /// report is trusted only for the reason of the end.
    pub fn new(status: ExitStatus, words: [u64; WORDS]) -> Self {
        let [signal, about, is_out_of_memory] = words;
        let is_forbidden = signal == libc::SIGSYS as u64 && status.code() == Some(128 + libc::SIGSYS);
        match status.signal() {
            _ if is_forbidden => Self::Forbidden(Some(about)),
            Some(libc::SIGSYS) => Self::Forbidden(None),
            Some(same) if same as u64 == signal && about == READ_ONLY => Self::WroteToReadOnly,
            Some(same) if same as u64 == signal => {
                Self::Crashed { signal: same, is_out_of_memory: is_out_of_memory != 0 }
            }
            // A program of the user leaves no report, nor does a process without stack for the handler.
            Some(crash) if CRASHES.contains(&crash) => Self::Crashed { signal: crash, is_out_of_memory: false },
            Some(other) => Self::Ended(other),
            None => Self::Left(status.code().unwrap_or(0)),
        }
    }
}

fn name_of_signal(signal: c_int) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGFPE => "SIGFPE".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        libc::SIGTERM => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(None) => {
                out.write_str("it made a system call that is forbidden in its process, as the start of a thread is")
            }
            Self::Forbidden(Some(number)) => match name_of(*number) {
                Some(name) => write!(out, "it called `{name}`, which is forbidden in its process"),
                None => write!(out, "it made the system call {number}, which is forbidden in its process"),
            },
            Self::WroteToReadOnly => out.write_str("it wrote to what it may only read"),
            Self::Crashed { signal, is_out_of_memory: false } => {
                write!(out, "it crashed ({})", name_of_signal(*signal))
            }
            Self::Crashed { signal, is_out_of_memory: true } => {
                write!(out, "it crashed ({}) when its `memory` had run out", name_of_signal(*signal))
            }
            Self::Ended(signal) => write!(out, "it was ended from outside ({})", name_of_signal(*signal)),
            Self::Left(status) => write!(out, "it ended by itself, with status {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_once() {
        let texts = |seccomp, landlock| Missing { seccomp, landlock }.texts().collect::<Vec<_>>();
        assert_eq!(texts(false, false), [""; 0]);
        assert!(texts(true, false)[0].starts_with("seccomp is refused"));
        assert!(texts(false, true)[0].starts_with("landlock is refused"));
        assert!(texts(true, true)[0].starts_with("seccomp and landlock are refused"));
        let (one, other) = (Missing { seccomp: true, landlock: false }, Missing { seccomp: false, landlock: true });
        assert_eq!(one.or(other), Missing { seccomp: true, landlock: true });
        assert_eq!(Missing::default().or(other), other);
    }

    const fn killed(signal: c_int) -> i32 {
        signal
    }

    const fn left(status: c_int) -> i32 {
        status << 8
    }

    fn told(status: i32, words: [u64; WORDS]) -> String {
        Ending::new(ExitStatus::from_raw(status), words).to_string()
    }

    #[test]
    fn what_ended_it_is_named() {
        let openat = libc::SYS_openat as u64;
        assert!(told(left(159), [31, openat, 0]).contains("called `openat`"));
        assert!(told(left(159), [31, 9999, 0]).contains("system call 9999"));
        assert_eq!(told(killed(11), [11, READ_ONLY, 0]), "it wrote to what it may only read");
        assert_eq!(told(killed(11), [11, 0, 0]), "it crashed (SIGSEGV)");
        assert_eq!(told(killed(6), [6, 0, 1]), "it crashed (SIGABRT) when its `memory` had run out");
        assert_eq!(told(killed(9), [0; 3]), "it was ended from outside (SIGKILL)");
        assert_eq!(told(killed(11), [0; 3]), "it crashed (SIGSEGV)", "without a word");
        assert!(told(killed(31), [0; 3]).starts_with("it made a system call that is forbidden"));
        assert_eq!(told(left(3), [0; 3]), "it ended by itself, with status 3");
    }

    #[test]
    fn words_that_do_not_fit_the_end_are_not_believed() {
        assert_eq!(told(killed(9), [11, READ_ONLY, 1]), "it was ended from outside (SIGKILL)");
        assert_eq!(told(left(0), [31, 257, 0]), "it ended by itself, with status 0");
    }
}
