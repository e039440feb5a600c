//! Who hears of alarms, or has the logbook, without looking: a command and a webhook of the user's, on a thread of its own, so that nobody
//! waits for them.

use crate::tls::{distrust, explain, is_encrypted, trust};
use ropewalk_monitor::alarms::{Alarm, Change, State};
use ropewalk_node::user_command;
use ropewalk_terms::{RunNumber, Utc};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use std::fs::File;
use std::io::{Seek, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use utoipa::ToSchema;

/// Messages that wait; further ones are dropped, and counted.
const WAITING: usize = 64;

/// What is told, as a line of JSON.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Message {
    /// An alarm is raised, over, or somebody knows of it.
    Alarm {
        utc_ns: i64,
        run: Option<u32>,
        name: String,
        severity: String,
        /// What it looks at, as a configuration has it.
        quantity: String,
        value: Option<f64>,
        /// `active`, `acknowledged`, `latched` (over, and nobody knows of it), `normal`.
        state: String,
        /// Who acknowledged it.
        by: Option<String>,
    },
    /// All goes on. Where none of these comes any more, nothing does.
    Alive { utc_ns: i64, run: Option<u32>, state: &'static str },
}

impl Message {
    /// A change of an alarm; none where nobody need hear of it.
    pub(crate) fn of(change: &Change, alarm: &Alarm, run: Option<RunNumber>) -> Option<Self> {
        use ropewalk_monitor::alarms::State::{Normal, Pending};
        // What was not raised is not over.
        let is_raised_or_over = change.to != Pending && !(change.from == Pending && change.to == Normal);
        (is_raised_or_over && alarm.shelved_until.is_none()).then(|| Self::Alarm {
            utc_ns: change.utc_nanoseconds,
            run: run.map(|run| run.0),
            name: change.name.clone(),
            severity: crate::api_types::name_of(&alarm.rule.severity),
            quantity: alarm.rule.quantity.to_string(),
            value: change.value,
            state: crate::api_types::name_of(&change.to),
            by: change.by.clone(),
        })
    }

    /// How an alarm is, of which nobody was told when it became so.
    pub(crate) fn standing(alarm: &Alarm, state: State, at: Utc, run: Option<RunNumber>) -> Self {
        Self::Alarm {
            utc_ns: at.0,
            run: run.map(|run| run.0),
            name: alarm.rule.name.clone(),
            severity: crate::api_types::name_of(&alarm.rule.severity),
            quantity: alarm.rule.quantity.to_string(),
            value: alarm.value,
            state: crate::api_types::name_of(&state),
            by: alarm.known_by.clone(),
        }
    }

    /// All goes on.
    pub(crate) fn alive(utc: Utc, run: Option<RunNumber>, state: &'static str) -> Self {
        Self::Alive { utc_ns: utc.0, run: run.map(|run| run.0), state }
    }
}

/// What became of messages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Told {
    /// Messages that were taken by everybody who was to hear of them.
    pub(crate) told: u64,
    /// Messages that a command or a webhook did not take.
    pub(crate) failed: u64,
    /// Messages for which too many others waited.
    pub(crate) dropped: u64,
    /// Why the last one that failed did.
    pub(crate) last_failure: Option<String>,
}

/// The thread, and the way to it. When this is dropped the command that runs is ended.
#[derive(Debug)]
pub(crate) struct Notifier {
    sender: SyncSender<String>,
    told: Arc<Mutex<Told>>,
    is_halted: Arc<AtomicBool>,
}

impl Notifier {
    /// Starts the thread of this name; none where nobody is to hear anything.
    ///
    /// # Errors
    /// Where there is no thread to be had.
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

    /// Tells everybody, at some time; whoever calls does not wait.
    pub(crate) fn tell(&self, message: &impl Serialize) {
        let line = serde_json::to_string(message).unwrap_or_default();
        if self.sender.try_send(line).is_err() {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).dropped += 1;
        }
    }

    /// What became of messages so far.
    pub(crate) fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.is_halted.store(true, Ordering::Release);
    }
}

/// Those who hear.
struct Hearers {
    command: Vec<String>,
    webhook: Option<String>,
    timeout: Duration,
    told: Arc<Mutex<Told>>,
    is_halted: Arc<AtomicBool>,
}

impl Hearers {
    fn tell_all(&self, messages: &Receiver<String>) {
        let agent = agent(self.webhook.as_deref(), self.timeout);
        while let Ok(message) = messages.recv() {
            let by_command = if self.command.is_empty() { Ok(()) } else { self.run(&message) };
            let posted = self.webhook.as_deref().map_or(Ok(()), |address| post(&agent, address, &message));
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            match by_command.and(posted) {
                Ok(()) => told.told += 1,
                Err(failure) => (told.failed, told.last_failure) = (told.failed + 1, Some(failure)),
            }
        }
    }

    /// Gives the command a message on its standard input.
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

/// A message as a command's standard input. It is a file, because whoever fills a pipe waits for whoever reads it.
fn input(message: &str) -> std::io::Result<Stdio> {
    let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    writeln!(file, "{message}")?;
    file.rewind()?;
    Ok(file.into())
}

/// Who posts; one at `https://` is believed where the system believes it. Why nobody can, otherwise.
fn agent(webhook: Option<&str>, timeout: Duration) -> Result<ureq::Agent, String> {
    let believed = if webhook.is_some_and(is_encrypted) { trust(None) } else { Ok(distrust()) };
    let believed = believed.map_err(|error| error.to_string())?;
    // One that sends elsewhere has taken nothing, and whoever follows asks for something and says nothing any more.
    let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).max_redirects(0);
    // As `ctl`: the address is as good as a password, and nobody on the way is told it because of a variable that somebody set for others.
    Ok(config.tls_config(believed).proxy(None).build().into())
}

/// Posts a message.
fn post(agent: &Result<ureq::Agent, String>, address: &str, message: &str) -> Result<(), String> {
    let failed = |why: &str| format!("{}: {why}", host_of(address));
    let agent = agent.as_ref().map_err(|why| failed(why))?;
    let posted = agent.post(address).header("Content-Type", "application/json").send(message);
    let answer = posted.map_err(|error| {
        failed(&match &error {
            // It quotes the address.
            ureq::Error::BadUri(_) => "this is no address".to_owned(),
            error => explain(error).unwrap_or_else(|| error.to_string()),
        })
    })?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(failed(&format!("http status: {}", status.as_u16()))) }
}

/// What anybody may know of a webhook's address: whoever knows all of it speaks there as we do.
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

    /// A webhook that answers everybody so.
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
        post(&agent(Some(url), PATIENCE), url, "{}").expect_err("nobody was told")
    }

    #[test]
    fn of_a_webhooks_address_nobody_reads_more_than_its_host() {
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

    /// What became of a long message to this command.
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
        // One that does not listen may be right all the same, and one that does hears all of it.
        assert_eq!(run(&["true"], PATIENCE), Ok(()));
        assert_eq!(run(&["sh", "-c", "test $(wc -c) = 200001"], PATIENCE), Ok(()));
    }
}
