//! The server's thread: it listens and hands connections to the accept loop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Bytes;
use ropewalk_config::{AlarmsSection, LogbookSection};
use ropewalk_monitor::alarms::Rule;
use ropewalk_run::session::ControlHandle;
use ropewalk_run::user_command;
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
    /// The address to listen on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The token for commands; required unless `listen` is a loopback address.
    pub token: Option<Token>,
    /// The server's certificate; with it the server uses TLS only.
    pub identity: Option<Identity>,
    /// The directory that contains the run directories.
    pub output: PathBuf,
    /// The alarm rules: `Configuration::alarm_rules`.
    pub alarms: Vec<Rule>,
    /// The initial reference run for comparisons.
    pub reference: Option<u32>,
    /// The command and webhook that receive alarms.
    pub hearers: AlarmsSection,
    /// The command and webhook that receive logbook entries.
    pub logbook: LogbookSection,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The address is not loopback and there is no token, so that other machines could send commands.
    #[error("{0}: any client that reaches this address could stop the run; give a token file, or listen on 127.0.0.1")]
    Open(SocketAddr),
    /// The server cannot listen on its address.
    #[error("{address}: cannot listen here: {source}; choose another port, or 0 for any free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A command that receives messages cannot be executed.
    #[error("[{section}] command: {why}")]
    Command {
        /// The section of the configuration.
        section: &'static str,
        /// Why not.
        why: String,
    },
    /// The alarm rules are inconsistent.
    #[error(transparent)]
    Alarms(#[from] ropewalk_monitor::alarms::AlarmError),
    /// The reference run has no readable trend.
    #[error("[monitor] reference: {0}")]
    Reference(#[from] NoRunTrend),
    /// A thread or the runtime cannot be created.
    #[error("the thread of run control: {0}")]
    Thread(io::Error),
}

/// The time that open connections have when the server ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);

/// Threads that read accounts and notes. This also bounds how many of them are in memory before their total size is
/// known.
const READERS: usize = 4;

/// The run control server. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server.
    ///
    /// # Errors
    /// If the server cannot listen on the address, or if other machines can reach it and there is no token.
    pub fn start(config: ControlConfig, control: ControlHandle) -> Result<Self, ControlError> {
        let given = config.listen;
        if !given.ip().is_loopback() && config.token.is_none() {
            return Err(ControlError::Open(given));
        }
        let commands = [("alarms", &config.hearers.command), ("logbook", &config.logbook.command)];
        for (section, command) in commands {
            user_command::check(command).map_err(|why| ControlError::Command { section, why })?;
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
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        };
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(work).map_err(ControlError::Thread)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address on which the server listens, with its actual port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // This fails only if the server has already ended.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
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
    // The listener is bound and non-blocking, as the runtime requires.
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
            // Most likely out of descriptors: wait until a connection closes.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        accept_loop.admit(stream, &app, &ending);
    }
    last.keep_course(&runs.view());
    // Pending requests, such as a shutdown, still get their response; view streams end.
    publisher.abort();
    drop(end);
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, accept_loop.left()).await;
}
