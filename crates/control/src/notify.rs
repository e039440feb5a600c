//! Notifications: sends alarms or logbook entries to the user's command and webhook on a background thread, so that the
//! server does not wait for them.

use crate::tls::{distrust, explain, is_encrypted, trust};
use ropewalk_monitor::alarms::{Alarm, Change, EARLIER, State};
use ropewalk_run::user_command;
use ropewalk_terms::{RunNumber, Utc};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use std::fs::File;
use std::io::{Seek, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::ToSchema;

/// The maximum number of waiting messages; further ones are dropped and counted.
const WAITING: usize = 64;

/// A message, sent as a line of JSON.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Message {
    /// An alarm is raised, over, or acknowledged.
    Alarm {
        utc_ns: i64,
        run: Option<u32>,
        name: String,
        severity: String,
        /// The monitored quantity, as in the configuration.
        quantity: String,
        value: Option<f64>,
        /// What is wrong, in one sentence; empty if only the value shows it.
        sentence: String,
        /// `active`, `acknowledged`, `latched` (over, but not acknowledged), `normal`.
        state: String,
        /// The operator who acknowledged it.
        by: Option<String>,
    },
    /// Sign of life. If these messages stop, so has run control.
    Alive { utc_ns: i64, run: Option<u32>, state: &'static str },
    /// A test, sent by an operator.
    Test { utc_ns: i64, run: Option<u32>, by: String },
}

/// The sentence of an alarm in this state. Another look may have seen the end of its cause before the message is made.
fn sentence(alarm: &Alarm, state: State) -> String {
    let is_raised = matches!(state, State::Active | State::Acknowledged);
    let now = if is_raised { alarm.sentence.strip_prefix(EARLIER) } else { None };
    now.unwrap_or(&alarm.sentence).to_owned()
}

impl Message {
    /// Creates the message for a change of an alarm; none if the change is not reported.
    pub(crate) fn of(change: &Change, alarm: &Alarm, run: Option<RunNumber>) -> Option<Self> {
        use ropewalk_monitor::alarms::State::{Normal, Pending};
        // An alarm that was only pending is neither raised nor over.
        let is_raised_or_over = change.to != Pending && !(change.from == Pending && change.to == Normal);
        (is_raised_or_over && alarm.shelved_until.is_none()).then(|| Self::Alarm {
            utc_ns: change.utc_nanoseconds,
            run: alarm.run.or(run).map(|run| run.0),
            name: change.name.clone(),
            severity: crate::api_types::name_of(&alarm.rule.severity),
            quantity: alarm.rule.quantity.to_string(),
            value: change.value,
            sentence: sentence(alarm, change.to),
            state: crate::api_types::name_of(&change.to),
            by: change.by.clone(),
        })
    }

    /// Creates the message for the state of an alarm whose change was not reported when it happened.
    pub(crate) fn standing(alarm: &Alarm, state: State, at: Utc, run: Option<RunNumber>) -> Self {
        Self::Alarm {
            utc_ns: at.0,
            run: alarm.run.or(run).map(|run| run.0),
            name: alarm.rule.name.clone(),
            severity: crate::api_types::name_of(&alarm.rule.severity),
            quantity: alarm.rule.quantity.to_string(),
            value: alarm.value,
            sentence: sentence(alarm, state),
            state: crate::api_types::name_of(&state),
            by: alarm.known_by.clone(),
        }
    }

    /// Creates a sign of life.
    pub(crate) fn alive(utc: Utc, run: Option<RunNumber>, state: &'static str) -> Self {
        Self::Alive { utc_ns: utc.0, run: run.map(|run| run.0), state }
    }
}

/// Counts of sent, failed and dropped messages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Told {
    /// Messages that every configured receiver accepted.
    pub(crate) told: u64,
    /// Messages that the command or the webhook did not accept.
    pub(crate) failed: u64,
    /// Messages dropped because too many were waiting.
    pub(crate) dropped: u64,
    /// The reason of the last failure.
    pub(crate) last_failure: Option<String>,
    /// Why the last message was not sent; null if it was.
    pub(crate) not_sent: Option<String>,
}

/// A message on its way to the receivers.
struct Letter {
    line: String,
    /// Gets the outcome.
    reply: Option<oneshot::Sender<Result<(), String>>>,
}

/// Handle of the notification thread. Dropping it ends a command that is running.
#[derive(Debug)]
pub(crate) struct Notifier {
    sender: SyncSender<Letter>,
    told: Arc<Mutex<Told>>,
    is_halted: Arc<AtomicBool>,
}

impl Notifier {
    /// Starts a thread of this name; returns none if neither a command nor a webhook is configured.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub(crate) fn start(
        name: &str,
        command: &[String],
        webhook: Option<&str>,
        timeout: Duration,
    ) -> std::io::Result<Option<Self>> {
        if command.is_empty() && webhook.is_none() {
            return Ok(None);
        }
        let (sender, receiver) = sync_channel(WAITING);
        let (told, is_halted) = (Arc::default(), Arc::default());
        let hearers = Hearers {
            command: command.to_vec(),
            webhook: webhook.map(str::to_owned),
            timeout,
            told: Arc::clone(&told),
            is_halted: Arc::clone(&is_halted),
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || hearers.tell_all(&receiver))?;
        Ok(Some(Self { sender, told, is_halted }))
    }

    /// Queues a message for the command and the webhook. The caller does not wait.
    pub(crate) fn tell(&self, message: &impl Serialize) {
        self.send(message, None);
    }

    /// Queues a message, and returns the receiver of its outcome.
    pub(crate) fn ask(&self, message: &impl Serialize) -> oneshot::Receiver<Result<(), String>> {
        let (reply, outcome) = oneshot::channel();
        self.send(message, Some(reply));
        outcome
    }

    fn send(&self, message: &impl Serialize, reply: Option<oneshot::Sender<Result<(), String>>>) {
        let line = serde_json::to_string(message).unwrap_or_default();
        if let Err(TrySendError::Full(unsent) | TrySendError::Disconnected(unsent)) =
            self.sender.try_send(Letter { line, reply })
        {
            let why = format!("{WAITING} messages wait already");
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            (told.dropped, told.not_sent) = (told.dropped + 1, Some(why.clone()));
            // The client may have gone.
            let _ = unsent.reply.map(|reply| reply.send(Err(why)));
        }
    }

    /// Returns the counts of messages so far.
    pub(crate) fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.is_halted.store(true, Ordering::Release);
    }
}

/// The receivers of messages.
struct Hearers {
    command: Vec<String>,
    webhook: Option<String>,
    timeout: Duration,
    told: Arc<Mutex<Told>>,
    is_halted: Arc<AtomicBool>,
}

impl Hearers {
    fn tell_all(&self, letters: &Receiver<Letter>) {
        let agent = agent(self.webhook.as_deref(), self.timeout);
        while let Ok(Letter { line, reply }) = letters.recv() {
            let by_command = if self.command.is_empty() { Ok(()) } else { self.run(&line) };
            let posted = self.webhook.as_deref().map_or(Ok(()), |address| post(&agent, address, &line));
            let outcome = match (by_command, posted) {
                (Err(one), Err(other)) => Err(format!("{one}; {other}")),
                (one, other) => one.and(other),
            };
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.not_sent = outcome.as_ref().err().cloned();
            match &outcome {
                Ok(()) => told.told += 1,
                Err(failure) => (told.failed, told.last_failure) = (told.failed + 1, Some(failure.clone())),
            }
            // The client may have gone.
            let _ = reply.map(|reply| reply.send(outcome));
        }
    }

    /// Runs the command with a message on its standard input.
    fn run(&self, message: &str) -> Result<(), String> {
        let program = &self.command[0];
        let mut command = user_command::of_words(self.command.iter().map(String::as_str));
        let input = input(message).map_err(|error| format!("no input for `{program}`: {error}"))?;
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("`{program}` cannot be started: {error}"))?;
        match user_command::wait(&mut child, self.timeout, &self.is_halted) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("`{program}` ended with {status}")),
            None => Err(format!("`{program}` was ended: it took longer than {:?}", self.timeout)),
        }
    }
}

/// Returns a message as standard input of a command. It is a file, because writing to a pipe would wait for the
/// command.
fn input(message: &str) -> std::io::Result<Stdio> {
    let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    writeln!(file, "{message}")?;
    file.rewind()?;
    Ok(file.into())
}

/// Creates the HTTP client for the webhook. An `https://` server is trusted if the system trusts it. Otherwise returns
/// why there is no client.
fn agent(webhook: Option<&str>, timeout: Duration) -> Result<ureq::Agent, String> {
    let believed = if webhook.is_some_and(is_encrypted) { trust(None) } else { Ok(distrust()) };
    let believed = believed.map_err(|error| error.to_string())?;
    // A server that redirects has not accepted the message, and following a redirect would send a GET without it.
    let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).max_redirects(0);
    // As in `ctl`: the address may be a secret, which a proxy named by an environment variable must not see.
    Ok(config.tls_config(believed).proxy(None).build().into())
}

/// Posts a message.
fn post(agent: &Result<ureq::Agent, String>, address: &str, message: &str) -> Result<(), String> {
    let failed = |why: &str| format!("{}: {why}", host_of(address));
    let agent = agent.as_ref().map_err(|why| failed(why))?;
    let posted = agent.post(address).header("Content-Type", "application/json").send(message);
    let answer = posted.map_err(|error| {
        failed(&match &error {
            // The library's message would quote the address.
            ureq::Error::BadUri(_) => "this is no address".to_owned(),
            error => explain(error).unwrap_or_else(|| error.to_string()),
        })
    })?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(failed(&format!("http status: {}", status.as_u16()))) }
}

/// Returns the public part of a webhook's address. The whole address is a secret: it suffices to post messages.
fn host_of(address: &str) -> String {
    let host = address.parse::<ureq::http::Uri>().ok().and_then(|address| {
        let port = address.port().map_or_else(String::new, |port| format!(":{port}"));
        Some(format!("{}://{}{port}", address.scheme_str()?, address.host()?))
    });
    host.unwrap_or_else(|| "the webhook".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Starts a webhook that sends this response to every request.
    fn hook(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    fn failure(url: &str) -> String {
        post(&agent(Some(url), PATIENCE), url, "{}").expect_err("the message is not accepted")
    }

    #[test]
    fn errors_of_a_webhook_show_no_more_of_its_address_than_the_host() {
        let refusing = hook("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let why = failure(&format!("http://ada:SECRET@{refusing}/services/SECRET?key=SECRET"));
        assert_eq!(why, format!("http://{refusing}: http status: 403"));
        for wrong in ["http:///SECRET", "http://[SECRET", "http://127.0.0.1:9/SECRET path"] {
            let why = failure(wrong);
            assert!(!why.to_lowercase().contains("secret"), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_webhook_that_sends_elsewhere_was_not_told() {
        let elsewhere =
            hook("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let why = failure(&format!("http://{elsewhere}/hook"));
        assert!(why.contains("302") && !why.contains("login"), "{why}");
    }

    /// Sends a long message to this command and returns the result.
    fn run(words: &[&str], timeout: Duration) -> Result<(), String> {
        let command = words.iter().map(|&word| word.to_owned()).collect();
        let hearers = Hearers { command, webhook: None, timeout, told: Arc::default(), is_halted: Arc::default() };
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(hearers.run(&"x".repeat(200_000))));
        receiver.recv_timeout(PATIENCE).expect("it is not waited for")
    }

    #[test]
    fn a_command_that_does_not_read_is_ended_when_its_time_is_over() {
        let why = run(&["sleep", "600"], Duration::from_millis(100)).expect_err("it was ended");
        assert!(why.contains("took longer than 100ms"), "{why}");
        // A command that does not read its input may succeed; one that reads gets the whole message.
        assert_eq!(run(&["true"], PATIENCE), Ok(()));
        assert_eq!(run(&["sh", "-c", "test $(wc -c) = 200001"], PATIENCE), Ok(()));
    }
}
