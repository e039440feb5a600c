//! The server's thread: it listens and hands connections to the accept loop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Bytes;
use ropewalk_monitor::alarms::Rule;
use ropewalk_node::configuration::{AlarmsSection, LogbookSection};
use ropewalk_node::session::ControlHandle;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::accept_loop::{self, AcceptLoop, CONNECTIONS, PATIENCE};
use crate::authorisation::{Authorisation, Token};
use crate::health_monitor::HealthMonitor;
use crate::logbook_writer::LogbookWriter;
use crate::notify::Notifier;
use crate::run_trends::NoRunTrend;
use crate::tls::Identity;
use crate::{api, streams};

/// Where and to whom run control is served.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Where it listens. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Needed where that is not loopback.
    pub token: Option<Token>,
    /// With it TLS is spoken, and nothing else.
    pub identity: Option<Identity>,
    /// Where the runs' directories are.
    pub output: PathBuf,
    /// When there is an alarm: `Configuration::alarm_rules`.
    pub alarms: Vec<Rule>,
    /// With which run the present one is compared from the beginning.
    pub reference: Option<u32>,
    /// Who hears of it without looking.
    pub hearers: AlarmsSection,
    /// Who has what is written into the logbook.
    pub logbook: LogbookSection,
}

/// Why it cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Anybody could give commands.
    #[error("{0}: whoever reaches this address could stop the run; give a token file, or listen on 127.0.0.1")]
    Open(SocketAddr),
    /// The address cannot be had.
    #[error("{address}: cannot listen here: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The rules of alarms do not fit together.
    #[error(transparent)]
    Alarms(#[from] ropewalk_monitor::alarms::AlarmError),
    /// There is nothing to compare with.
    #[error("[monitor] reference: {0}")]
    Reference(#[from] NoRunTrend),
    /// There is no thread or no runtime to be had.
    #[error("the thread of run control: {0}")]
    Thread(io::Error),
}

/// How long connections may go on when the server ends.
const FAREWELL: Duration = Duration::from_millis(300);

/// Threads that read accounts and notes, and so how many of them are in memory before it is known how long they are together.
const READERS: usize = 4;

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves from now on.
    ///
    /// # Errors
    /// Where the address cannot be had, or is open to others without a token.
    pub fn start(config: ControlConfig, control: ControlHandle) -> Result<Self, ControlError> {
        let given = config.listen;
        if !given.ip().is_loopback() && config.token.is_none() {
            return Err(ControlError::Open(given));
        }
        let listen = |source| ControlError::Listen { address: given, source };
        let listener = std::net::TcpListener::bind(given).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_io().enable_time().max_blocking_threads(READERS);
        let runtime = runtime.build().map_err(ControlError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let hearers = &config.hearers;
        let notifier = Notifier::start("alarms", &hearers.command, hearers.webhook.as_deref(), hearers.timeout.0);
        let notifier = notifier.map_err(ControlError::Thread)?;
        let alive_every = hearers.alive_every.map(|time| time.0);
        let health = Arc::new(HealthMonitor::new(&config.output, config.alarms.clone(), notifier, alive_every)?);
        health.compare_with(config.reference)?;
        let logbook =
            LogbookWriter::start(&config.output, &config.logbook, control.clone()).map_err(ControlError::Thread)?;
        let work = move || {
            runtime.block_on(serve(listener, config, control, (health, Arc::new(logbook)), stopped));
            runtime.shutdown_timeout(FAREWELL);
        };
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(work).map_err(ControlError::Thread)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, port filled in.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A server that has ended hears nothing any more.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    config: ControlConfig,
    control: ControlHandle,
    (health, logbook): (Arc<HealthMonitor>, Arc<LogbookWriter>),
    mut stopped: oneshot::Receiver<()>,
) {
    // It was bound and is not blocking: the runtime takes it.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let (sender, receiver) = watch::channel(Bytes::new());
    let publisher = tokio::spawn(streams::publish(control.clone(), Arc::clone(&health), sender));
    tokio::spawn(Arc::clone(&health).watch(control.clone()));
    let (last, runs) = (Arc::clone(&health), control.clone());
    let authorisation = Arc::new(Authorisation::new(config.token));
    let accept_loop =
        Arc::new(AcceptLoop::new(config.identity.as_ref(), PATIENCE, accept_loop::make_room(CONNECTIONS)));
    let seen = (health, logbook, Arc::clone(&accept_loop));
    let (end, ending) = watch::channel(());
    let app = api::router(control, config.output, (receiver, ending.clone()), seen, authorisation);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: somebody will close a connection.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        accept_loop.admit(stream, &app, &ending);
    }
    last.keep_course(&runs.view());
    // Who was promised an answer, to a shutdown for example, has it; streams of views end.
    publisher.abort();
    drop(end);
    let _ = tokio::time::timeout(FAREWELL, accept_loop.left()).await;
}
