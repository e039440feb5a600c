//! The measurements: the limits of the machine, and Ropewalk's rates on it.

use crate::emulated::{SlinkConfig, set_congestion_control};
use crate::memory::{FAR_BEYOND_CACHES, copy_gigabytes_per_second, scan_gigabytes_per_second};
use crate::memory::{MID_PAGE, PlacedBytes};
use crate::processor::{core_scaling, pin, wake_up_microseconds};
use crate::run::{RunPlan, USUAL_POOL_MIB, scratch};
use crate::{DoctorError, Scale, disk};
use ropewalk_io::packet::{Flow, PacketMemory, ReceiveConfig, Receiver, SocketReceiver};
use ropewalk_io::wait::Waiter;
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_memory::{Pool, PoolConfig};
use rustix::net::sockopt;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// CPUs that the process may use.
    pub cpus: usize,
    /// Throughput of two CPUs relative to one: 2 for two cores, about 1 for two threads of a core.
    pub two_cpus_do: f64,
    /// Microseconds to wake a thread on another CPU.
    pub wake_up_us: f64,
    /// Copy bandwidth of memory beyond the caches, in 10^9 bytes/s.
    pub memory_copy: f64,
    /// Memory read word by word, in 10^9 bytes a second.
    pub memory_scan: f64,
    /// Data over one TCP connection of the loopback, 64 KiB a send, with nothing done to it, in 10^9 bytes a second.
    pub loopback: f64,
    /// Datagrams of 1 KiB that one thread can send over the loopback in a second.
    pub datagrams: f64,
    /// The part of these datagrams, 0 to 1, that was received.
    pub datagrams_kept: f64,
    /// Data that reaches the disk in order, past the page cache; if that is not possible, through it and synchronised every
    /// 64 MiB. In 10^9 bytes a second.
    pub disk: f64,
    /// What took the disk's time meanwhile, in words; null in memory and over the network.
    pub disk_says: Option<String>,
    /// A short probe past the page cache, in 10^9 bytes a second; null if files can be written only one way.
    pub disk_direct: Option<f64>,
    /// The same through the page cache.
    pub disk_buffered: Option<f64>,
    /// Milliseconds to write and sync one short record.
    pub disk_sync_ms: f64,
    /// Whole runs of Ropewalk, by the size of their fragments.
    pub built: Vec<Built>,
}

/// A run of Ropewalk with as much data as it takes.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Built {
    /// How many streams came in.
    pub streams: usize,
    /// Bytes of payload in each fragment.
    pub fragment_bytes: usize,
    /// Whether the events were written to run files.
    pub is_written: bool,
    /// Payload of the events that were built, in 10^9 bytes a second.
    pub gigabytes_per_second: f64,
}

impl Built {
    /// Fragments a second.
    pub fn fragments_per_second(&self) -> f64 {
        self.gigabytes_per_second * 1e9 / self.fragment_bytes as f64
    }
}

/// Streams of the measured runs.
const STREAMS: usize = 16;
/// Sizes of their fragments, in bytes.
const SIZES: [usize; 3] = [256, 2048, 16 << 10];
/// The size with which writing is measured too.
const WRITTEN: usize = 2048;
/// Bytes of a datagram.
const DATAGRAM: usize = 1024;

/// Measures for about twenty seconds.
///
/// # Errors
/// If the system refuses an operation.
pub fn measure(output: &Path, scale: Scale) -> Result<Measured, DoctorError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let pair = (cpus > 1).then_some([0, 1]);
    let moment = Duration::from_millis(scale.choose(5, 150, 150));
    let second = Duration::from_millis(scale.choose(30, 1000, 1000));
    let bytes = scale.choose(1 << 20, FAR_BEYOND_CACHES, FAR_BEYOND_CACHES);
    let (datagrams, datagrams_kept) = datagrams(second, pair)?;
    let disk = disk::measure(output, 2 * second).map_err(DoctorError::system("the disk"))?;
    let mut built = Vec::new();
    for (fragment_bytes, is_written) in SIZES.map(|size| (size, false)).into_iter().chain([(WRITTEN, true)]) {
        let gigabytes_per_second = run(output, (fragment_bytes, is_written), scale, pair)?;
        built.push(Built { streams: STREAMS, fragment_bytes, is_written, gigabytes_per_second });
    }
    Ok(Measured {
        cpus,
        two_cpus_do: if cpus > 1 { core_scaling([0, 1], moment) } else { 1.0 },
        wake_up_us: wake_up_microseconds(pair, 2 * moment).map_err(DoctorError::system("waking a thread"))?,
        memory_copy: copy_gigabytes_per_second(bytes, 5),
        memory_scan: scan_gigabytes_per_second(bytes, 5),
        loopback: loopback(second, pair).map_err(DoctorError::system("TCP over loopback"))?,
        datagrams,
        datagrams_kept,
        disk: disk.rate,
        disk_says: disk.says,
        disk_direct: disk.probe.map(|probe| probe.direct / 1e9),
        disk_buffered: disk.probe.map(|probe| probe.buffered / 1e9),
        disk_sync_ms: disk.sync_ms,
        built,
    })
}

/// 10^9 bytes a second over one TCP connection of the loopback.
fn loopback(duration: Duration, cpus: Option<[usize; 2]>) -> io::Result<f64> {
    const SEND: usize = 64 << 10;
    const BUFFER: usize = 4 << 20;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut to = TcpStream::connect(listener.local_addr()?)?;
    let (mut from, _) = listener.accept()?;
    for socket in [&to, &from] {
        set_congestion_control(socket);
        sockopt::set_socket_send_buffer_size(socket, BUFFER)?;
        sockopt::set_socket_recv_buffer_size(socket, BUFFER)?;
        socket.set_nodelay(true)?;
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        // The sockets are moved into their threads: closing one ends the other thread, even after a panic.
        scope.spawn(move || {
            pin(cpus.map(|[_, sender]| sender));
            let message = PlacedBytes::new(SEND, MID_PAGE);
            while !is_over.load(Ordering::Relaxed) && to.write_all(&message).is_ok() {}
        });
        let receiving = scope.spawn(move || {
            pin(cpus.map(|[receiver, _]| receiver));
            let mut buffer = vec![0; 256 << 10];
            let mut receive = |duration: Duration| {
                let (began, mut bytes) = (Instant::now(), 0);
                while began.elapsed() < duration {
                    match from.read(&mut buffer)? {
                        0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                        received => bytes += received,
                    }
                }
                Ok(bytes as f64 / began.elapsed().as_secs_f64() / 1e9)
            };
            let measured = receive(duration / 4).and_then(|_| receive(duration));
            is_over.store(true, Ordering::Relaxed);
            measured
        });
        receiving.join().unwrap_or_else(|_| Err(io::Error::other("a panic")))
    })
}

/// Datagrams that one thread sends in a second, and the share of them that another one receives.
fn datagrams(duration: Duration, cpus: Option<[usize; 2]>) -> Result<(f64, f64), DoctorError> {
    let pool = PoolConfig::anonymous("doctor datagrams", 256 << 10, 8);
    let memory = PacketMemory::pool(Pool::new(pool).map_err(DoctorError::wrong)?);
    let config = ReceiveConfig::new(Flow::Udp, (Ipv4Addr::LOCALHOST, 0));
    let mut receiver = SocketReceiver::new(config, memory).map_err(DoctorError::wrong)?;
    let mut waiter = Waiter::new().map_err(DoctorError::system("descriptors"))?;
    if let Some(descriptor) = receiver.wait_descriptor() {
        waiter.watch(descriptor).map_err(DoctorError::system("watching a socket"))?;
    }
    let to = receiver.address();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            pin(cpus.map(|[receiver, _]| receiver));
            let (mut count, mut packets) = (0, Vec::new());
            loop {
                // Read before the last receive: then nothing is in flight.
                let is_last = is_over.load(Ordering::Acquire);
                let came = receiver.receive(MonotonicClock.now(), &mut packets);
                packets.clear();
                count += came;
                if came == 0 {
                    if is_last {
                        return count;
                    }
                    if receiver.prepare_wait() {
                        waiter.wait(Some(Duration::from_millis(1)));
                    }
                }
            }
        });
        // On a separate thread: the calling thread's next measurement would inherit its processor.
        let sent = scope.spawn(|| send(to, duration, cpus)).join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
        is_over.store(true, Ordering::Release);
        let received = receiving.join().unwrap_or(0);
        let (sent, seconds) = sent.map_err(DoctorError::system("datagrams over loopback"))?;
        Ok((sent as f64 / seconds, received as f64 / (sent as f64).max(1.0)))
    })
}

fn send(to: SocketAddr, duration: Duration, cpus: Option<[usize; 2]>) -> io::Result<(u64, f64)> {
    pin(cpus.map(|[_, sender]| sender));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(to)?;
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < duration {
        socket.send(&[0x5a; DATAGRAM])?;
        sent += 1;
    }
    Ok((sent, began.elapsed().as_secs_f64()))
}

fn run(
    output: &Path,
    (fragment_bytes, write): (usize, bool),
    scale: Scale,
    cpus: Option<[usize; 2]>,
) -> Result<f64, DoctorError> {
    let plan = RunPlan {
        sender: SlinkConfig { streams: STREAMS, fragment_bytes, ..SlinkConfig::default() },
        builders: 1,
        check_crc: true,
        write,
        filter: "",
        warm_up: Duration::from_millis(scale.choose(20, 300, 300)),
        interval: Duration::from_millis(scale.choose(60, 2000, 2000)),
        // The disk has its own thread, which must not share the nodes' processor.
        cpus: cpus.filter(|_| !write),
        pool_mib: USUAL_POOL_MIB,
        output: scratch(output, "doctor-run"),
    };
    Ok(plan.run()?.gigabytes_per_second)
}
