//! Which processor does the kernel's part of receiving, and when. A cable between two namespaces has no interrupts: without a
//! word the sender's processor does it all.
#![allow(unsafe_code)]

use core::mem::zeroed;
use std::ffi::CStr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use rustix::process::Pid;
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity, unshare_unsafe};

use super::{CARD, Cable, Host, SINK, SOURCE};

/// What the kernel may do with several packets at once (`ethtool.h`): cut large ones apart later, put small ones together.
const CUT_LATER: u32 = 0x1f;
const PUT_TOGETHER: u32 = 0x2c;

impl Host {
    /// Has this CPU do the kernel's part of receiving (RPS). What a program at the card takes (AF_XDP) is not concerned.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive_on(&self, cpu: u32) -> io::Result<()> {
        self.write_of_card("queues/rx-0/rps_cpus", &format!("{:x}", 1_u64.checked_shl(cpu).unwrap_or(0)))
    }

    /// Writes into one of the card's files.
    fn write_of_card(&self, name: &str, text: &str) -> io::Result<()> {
        self.inside(|| {
            // The files of a namespace's cards are seen through a mount that was made in it.
            // SAFETY: of this thread alone, which ends here, the mounts change.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
            mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
            mount(Some(c"sysfs"), c"/sys", Some(c"sysfs"), 0)?;
            std::fs::write(format!("/sys/class/net/{CARD}/{name}"), text)
        })
    }

    fn set_feature(&self, feature: u32, is_on: bool) -> io::Result<()> {
        self.inside(|| {
            let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
            let mut value = [feature, is_on.into()];
            // SAFETY: names and pointers, for which zeros are good.
            let mut request: libc::ifreq = unsafe { zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(CARD.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
            // SAFETY: the request reads a name and two numbers, which outlive it.
            let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    }
}

impl Cable {
    /// Has a thread of the kernel's do its part of receiving at the sink, for programs at the card too, on this CPU and behind
    /// the calling thread (threaded NAPI): while nobody else wants the CPU, or at the lowest real-time priority where the
    /// caller has one. Then what is more than the sink can take is lost at the card, where that costs nothing, and no work is
    /// put into a packet that nobody will have time for.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive_by_thread(&self, cpu: u32) -> io::Result<()> {
        // Without these two a card of this kind has no queue of its own.
        self.source.set_feature(CUT_LATER, false)?;
        self.sink.set_feature(PUT_TOGETHER, true)?;
        self.sink.write_of_card("threaded", "1")?;
        let queue = self.queue_of_sink()?;
        // It was made, but it may not have named itself yet.
        let thread = (0..TRIES).find_map(|_| kernel_thread(&format!("napi/{CARD}-{queue}")));
        let thread = thread.ok_or_else(|| io::Error::other("the card's queue has no thread"))?;
        let mut cpus = CpuSet::new();
        cpus.set(cpu as usize);
        sched_setaffinity(Some(thread), &cpus)?;
        // SAFETY: asks for a number.
        let is_real_time = matches!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_FIFO | libc::SCHED_RR);
        let policy = if is_real_time { libc::SCHED_FIFO } else { libc::SCHED_IDLE };
        let priority = libc::sched_param { sched_priority: is_real_time.into() };
        // SAFETY: reads a number.
        let result = unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &raw const priority) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The number of the queue by which the sink's card receives, as a packet says that came through it.
    fn queue_of_sink(&self) -> io::Result<u32> {
        let sink = self.sink.inside(|| UdpSocket::bind((SINK, 0)))?;
        let source = self.source.inside(|| UdpSocket::bind((SOURCE, 0)))?;
        source.send_to(b"?", sink.local_addr()?)?;
        sink.recv_from(&mut [0; 1])?;
        let (mut number, mut length) = (0_u32, size_of::<u32>() as libc::socklen_t);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID);
        // SAFETY: writes a number, whose size is given.
        let result =
            unsafe { libc::getsockopt(sink.as_raw_fd(), level, name, (&raw mut number).cast(), &raw mut length) };
        if result == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
    }
}

/// How often a thread is looked for.
const TRIES: usize = 1000;

/// The thread of the kernel's with this name.
fn kernel_thread(name: &str) -> Option<Pid> {
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let found = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        (found.trim_end() == name).then(|| Pid::from_raw(number))?
    })
}

/// Mounts a file system of its own, or changes a mount.
fn mount(what: Option<&CStr>, place: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let address = |text: Option<&CStr>| text.map_or(core::ptr::null(), CStr::as_ptr);
    // SAFETY: reads texts that end with a zero, or none.
    let result = unsafe { libc::mount(address(what), place.as_ptr(), address(kind), flags, core::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
