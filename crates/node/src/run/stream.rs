//! Subscribing to a server of chunks, and what that has in common with serving: drives, turned by the calling thread.

use crate::drive::Drive;
use crate::drive::stream::{ClientConfig, ClientReport, ClientState, StreamClient};
use crate::offline::OfflineError;
use ropewalk_io::EndpointError;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_io::wait::{Idle, Waiter};
use ropewalk_memory::{Payload, Pool, PoolConfig, PoolError, Staging};
use ropewalk_wire::stream::{ChunkHead, RefuseReason};
use std::time::Duration;

/// The longest sleep: whoever watches is asked at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Blocks of 256 KiB that are received into.
const RECEIVE_BLOCKS: (usize, usize) = (256 << 10, 64);
/// Blocks that heads and other small messages are staged in.
const STAGING_BLOCKS: (usize, usize) = (128 << 10, 64);
/// The longest chunk that a subscriber believes in, in bytes: all of it must fit into its receive pool.
pub const LARGEST_CHUNK_BYTES: u64 = 8 << 20;

/// Why blocks are not served, or chunks do not come.
#[derive(Debug, thiserror::Error)]
pub enum StreamRunError {
    /// The file.
    #[error(transparent)]
    File(#[from] OfflineError),
    /// The network.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The system gives no thread or no descriptor.
    #[error("no thread or no descriptor: {0}")]
    System(#[from] std::io::Error),
    /// What is wanted cannot be.
    #[error("{0}")]
    Unfit(String),
    /// The server refuses.
    #[error("{address} refuses the subscription: {why}")]
    Refused {
        /// Which server.
        address: String,
        /// Why, and what to do.
        why: String,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("{why}; is a server there? `--reconnect` waits for it")]
    Lost {
        /// Where and why.
        why: String,
    },
}

/// Takes chunks from a server until it has ended, `config.chunks` came, or `watch` says false.
///
/// # Errors
/// Where the server cannot be reached, refuses, or goes away and `config.reconnect` is not set.
pub fn subscribe(
    config: ClientConfig,
    take: impl FnMut(ChunkHead, Payload),
    mut watch: impl FnMut(&ClientReport, &ClientState) -> bool,
) -> Result<ClientReport, StreamRunError> {
    let address = config.address.clone();
    let endpoints = Tcp::new(TcpConfig::default(), pool("chunks", RECEIVE_BLOCKS)?)?;
    let staging = Staging::new(pool("messages", STAGING_BLOCKS)?);
    let config = ClientConfig { most_chunk_bytes: config.most_chunk_bytes.min(LARGEST_CHUNK_BYTES as u32), ..config };
    let mut client = StreamClient::new(config, endpoints, staging, take);
    turn(&mut client, Waiter::new()?, |client| {
        if !watch(client.report(), client.state()) {
            client.stop();
        }
    })?;
    match client.state() {
        ClientState::Refused(reason) => Err(StreamRunError::Refused { address, why: refusal(*reason) }),
        ClientState::Lost(why) => Err(StreamRunError::Lost { why: why.clone() }),
        _ => Ok(client.report().clone()),
    }
}

fn refusal(reason: RefuseReason) -> String {
    match reason {
        RefuseReason::Version(version) => {
            let own = ropewalk_wire::stream::STREAM_VERSION;
            format!("it speaks version {version} of the protocol, this program version {own}; use the same program")
        }
        RefuseReason::Full => "it has as many subscribers as it takes; see its `--subscribers`".to_owned(),
        RefuseReason::Share => {
            "the members of the group share it in another way; use their `--balance`, or another group".to_owned()
        }
    }
}

pub(super) fn pool(name: &str, (block_size, blocks): (usize, usize)) -> Result<Pool, PoolError> {
    Pool::new_untouched(PoolConfig::anonymous(name, block_size, blocks))
}

/// Turns a drive until it is done; `watch` is called between turns, some times a second.
pub(super) fn turn<D: Drive>(drive: &mut D, mut waiter: Waiter, mut watch: impl FnMut(&mut D)) -> std::io::Result<()> {
    let mut descriptors = Vec::new();
    drive.wait_descriptors(&mut descriptors);
    for descriptor in descriptors {
        waiter.watch(descriptor)?;
    }
    let clock = MonotonicClock;
    let (mut idle, mut watched) = (Idle::default(), ropewalk_terms::Instant::ZERO);
    while !drive.is_done() {
        let now = clock.now();
        if now.since(watched) >= LONGEST_SLEEP {
            watched = now;
            watch(drive);
        }
        if idle.is_long_enough(now, drive.turn(now)) {
            let until =
                drive.next_deadline().unwrap_or(ropewalk_terms::Instant::FAR_FUTURE).min(now.after(LONGEST_SLEEP));
            if drive.prepare_wait() && until > now {
                waiter.wait(Some(until.since(now)));
            }
        }
    }
    Ok(())
}
