//! Which calls of the system the process of a plug-in may make, and what they are called.

use core::ffi::c_long;

/// A call of the system: its name in C, and its number.
pub(super) type Call = (&'static str, c_long);

/// Which argument of a call, counted from 0, and the values that it may have.
pub(super) type Argument = (u8, &'static [u32]);

/// Calls by the names of their numbers.
macro_rules! calls {
    ($($(#[$attribute:meta])* $name:ident)*) => { &[$($(#[$attribute])* (stringify!($name), libc::$name)),*] };
}

macro_rules! call {
    ($name:ident) => {
        (stringify!($name), libc::$name)
    };
}

/// Whoever computes makes these: memory, time, waiting, signals of its own, what it is and where it runs, its end.
pub(super) const COMPUTING: &[Call] = calls! {
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

/// What is done with a descriptor that is there for it.
pub(super) const SPEAKING: &[Call] = calls! { SYS_sendto SYS_recvfrom };

/// What is done with standard input as well.
pub(super) const READING: &[Call] = calls! { SYS_read };

/// What is done with standard output as well.
pub(super) const PRINTING: &[Call] = calls! { SYS_write SYS_writev };

/// What a process ends itself with.
pub(super) const SIGNALLING: &[Call] = calls! { SYS_tgkill };

/// What the library's loading needs beside opening files, and what the last step of the confinement does.
pub(super) const LOADING: &[Call] = calls! {
    SYS_read SYS_readv SYS_pread64 SYS_getdents64 SYS_getcwd SYS_readlinkat SYS_newfstatat SYS_statx SYS_faccessat
    SYS_statfs SYS_fstatfs SYS_set_robust_list SYS_set_tid_address
    #[cfg(target_arch = "x86_64")] SYS_readlink
    #[cfg(target_arch = "x86_64")] SYS_access
    #[cfg(target_arch = "x86_64")] SYS_stat
    #[cfg(target_arch = "x86_64")] SYS_arch_prctl
    SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_seccomp
};

/// The same, for calls that can do much: an argument says whether it is what loading needs. It may ask what a terminal or descriptor is, name
/// its thread and memory, and give up more.
pub(super) const LOADING_BY_ARGUMENT: &[(Call, Argument)] = &[
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

/// Limits, of the process that the first argument names.
pub(super) const LIMITS: &[Call] = calls! { SYS_prlimit64 };

/// Opens files.
pub(super) const OPENING: &[Call] = calls! { SYS_openat };

/// What libraries ask by the way, the C library first of all, and can do without: it is refused, and they go on.
pub(super) const ASKED_BY_THE_WAY: &[Call] = calls! {
    SYS_ioctl SYS_fcntl SYS_newfstatat SYS_statx SYS_faccessat SYS_readlinkat SYS_prctl SYS_prlimit64
    #[cfg(target_arch = "x86_64")] SYS_readlink
    #[cfg(target_arch = "x86_64")] SYS_access
    #[cfg(target_arch = "x86_64")] SYS_stat
};

/// What the last step of the confinement does after it has limited the calls.
pub(super) const FILTERING: &[Call] = calls! { SYS_seccomp };

/// What plug-ins would do that do what they should not, so that it can be named.
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

/// What a call is called, where that is known.
pub(super) fn name_of(number: u64) -> Option<&'static str> {
    let all = [OTHERS, OPENING, LOADING, ASKED_BY_THE_WAY, PRINTING, READING, SPEAKING, SIGNALLING, COMPUTING];
    let found = all.into_iter().flatten().find(|(_, known)| u64::try_from(*known) == Ok(number));
    found.map(|(name, _)| name.trim_start_matches("SYS_"))
}
