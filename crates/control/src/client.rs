//! Asking a server of run control, from a program.

use crate::accept_loop::SPEAK_TLS;
use crate::authorisation::Token;
use crate::tls::{TlsError, distrust, explain, is_encrypted, trust};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// How long a connection may take; an answer to a command takes as long as a run takes to drain.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long an answer to whoever only looks may take: it is there already, and from a server that stands still none comes.
const LOOKING: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers, or not in a way that makes sense.
    #[error("{url}: {why}; is there a `ropewalk run ... --control ADDRESS`?")]
    NoAnswer {
        /// Where was asked.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// Client and server do not agree on TLS, or do not believe each other.
    #[error("{url}: {why}")]
    Tls {
        /// Where was asked.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// Nobody could be believed.
    #[error("{0}; --ca FILE names a certificate to be believed")]
    Trust(#[from] TlsError),
    /// Certificates are of no use there.
    #[error("{url}: only https:// has certificates, which --ca is for")]
    Plain {
        /// Where was to be asked.
        url: String,
    },
}

/// What a server said.
#[derive(Clone, PartialEq, Debug)]
pub struct Replied {
    /// HTTP's status.
    pub status: u16,
    /// What came with it.
    pub body: Value,
}

/// Asks one server.
#[derive(Debug)]
pub struct Client {
    agent: ureq::Agent,
    url: String,
    token: Option<Token>,
    looking: Duration,
}

impl Client {
    /// Asks the server at this address, such as `http://127.0.0.1:8900`. One at `https://` is believed where its certificate, or that of who
    /// signed it, is in the file `authorities`, or where there is no such file the system believes it.
    ///
    /// # Errors
    /// Where there is nobody to be believed, or a file of certificates where none is asked for.
    pub fn new(url: &str, token: Option<Token>, authorities: Option<&Path>) -> Result<Self, ClientError> {
        let believed = match (is_encrypted(url), authorities) {
            (true, _) => trust(authorities)?,
            (false, None) => distrust(),
            (false, Some(_)) => return Err(ClientError::Plain { url: url.to_owned() }),
        };
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_connect(Some(CONNECTING));
        // Whoever asks for a machine of the experiment means it, and its token is for nobody on the way.
        let config = config.tls_config(believed).proxy(None);
        Ok(Self { agent: config.build().into(), url: url.trim_end_matches('/').to_owned(), token, looking: LOOKING })
    }

    /// Looks at something, such as `state`.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn look(&self, what: &str) -> Result<Replied, ClientError> {
        let url = format!("{}/api/v1/{what}", self.url);
        read(&url, self.agent.get(&url).config().timeout_global(Some(self.looking)).build().call())
    }

    /// Samples of events as they are built, of what a query says: for as long as somebody takes them. Where there are none what the server
    /// says of that.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn samples(&self, query: &[(&str, String)]) -> Result<Result<Samples, Replied>, ClientError> {
        let url = format!("{}/api/v1/events/stream", self.url);
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        let request =
            self.agent.get(&url).query_pairs(query).config().timeout_recv_response(Some(self.looking)).build();
        match request.call() {
            Ok(answer) if answer.status().is_success() => {
                let lines = BufReader::new(answer.into_body().into_with_config().limit(u64::MAX).reader());
                Ok(Ok(Samples { lines, url }))
            }
            answer => read(&url, answer).map(Err),
        }
    }

    /// All files of a run, or of the one that goes on or was last: as many answers as it takes, put together.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn files(&self, run: Option<u32>) -> Result<Replied, ClientError> {
        let what = run.map_or_else(|| "files".to_owned(), |run| format!("runs/{run}/files"));
        let mut all = self.look(&format!("{what}?limit=500"))?;
        let last = |files: &Value| files.as_array()?.last()?["path"].as_str().map(segment);
        let mut before = last(&all.body["files"]);
        while let Some(place) = before {
            let mut page = self.look(&format!("{what}?limit=500&before={place}"))?;
            // It may be another run's turn by now.
            if page.status != 200 || page.body["run"] != all.body["run"] {
                break;
            }
            before = last(&page.body["files"]);
            if let (Some(files), Some(more)) = (all.body["files"].as_array_mut(), page.body["files"].as_array_mut()) {
                files.append(more);
            }
        }
        Ok(all)
    }

    /// Gives a command in somebody's name, and waits until it has ended. `fields` are what is said of the run that a start begins, each
    /// `NAME=VALUE`.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn command(&self, command: &str, fields: &[String], by: &str) -> Result<Replied, ClientError> {
        let fields = fields.iter().map(|field| ("field", field.as_str()));
        let query: Vec<_> = [("by", by)].into_iter().chain(fields).collect();
        self.post(&format!("commands/{command}"), &query)
    }

    /// Takes the controls in somebody's name, `is_forced` also from somebody else.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn take_controls(&self, by: &str, is_forced: bool) -> Result<Replied, ClientError> {
        self.post("operator/take", &[("by", by), ("force", if is_forced { "true" } else { "false" })])
    }

    /// Gives the controls that somebody holds to somebody else, or up.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn give_controls(&self, by: &str, to: Option<&str>) -> Result<Replied, ClientError> {
        let query: Vec<_> = [("by", by)].into_iter().chain(to.map(|to| ("to", to))).collect();
        self.post("operator/give", &query)
    }

    /// Says something of a run in somebody's name.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn note(&self, run: u32, text: &str, by: &str) -> Result<Replied, ClientError> {
        self.post_as(&format!("runs/{run}/notes"), &[("by", by)], text, "text/plain; charset=utf-8")
    }

    /// Compares with this run from now on, or with none.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn compare_with(&self, run: Option<u32>, by: &str) -> Result<Replied, ClientError> {
        let body = serde_json::json!({ "run": run }).to_string();
        self.post_as("reference", &[("by", by)], &body, "application/json")
    }

    /// Somebody knows of an alarm.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn acknowledge(&self, alarm: &str, by: &str) -> Result<Replied, ClientError> {
        self.post_as(&format!("alarms/{}/acknowledge", segment(alarm)), &[("by", by)], "", "text/plain")
    }

    /// An alarm is not shown for so long, as somebody wants it; no time shows it again.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn shelve(&self, alarm: &str, time: Duration, by: &str) -> Result<Replied, ClientError> {
        let seconds = time.as_secs().to_string();
        let query = [("seconds", seconds.as_str()), ("by", by)];
        self.post_as(&format!("alarms/{}/shelve", segment(alarm)), &query, "", "text/plain")
    }

    /// Masks sources in somebody's name, or takes them in again.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn mask(&self, sources: &[u32], is_masked: bool, by: &str) -> Result<Replied, ClientError> {
        let body = serde_json::json!({ "sources": sources, "is_masked": is_masked }).to_string();
        self.post_as("masks", &[("by", by)], &body, "application/json")
    }

    /// Takes sources out in somebody's name and, when it is known from which event on they were out, in again.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn restart(&self, sources: &[u32], by: &str) -> Result<Replied, ClientError> {
        let body = serde_json::json!({ "sources": sources }).to_string();
        self.post_as("masks/restart", &[("by", by)], &body, "application/json")
    }

    /// Changes parameters in somebody's name, each `NAME=VALUE`.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn change(&self, changes: &[(&str, &str)], by: &str) -> Result<Replied, ClientError> {
        let body: serde_json::Map<String, Value> =
            changes.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
        let url = format!("{}/api/v1/parameters", self.url);
        let request = self.agent.patch(&url).query("by", by).header("Content-Type", "application/json");
        read(&url, self.signed(request).send(Value::Object(body).to_string()))
    }

    /// With the token of whoever has one.
    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {}", token.text())),
            None => request,
        }
    }

    fn post(&self, what: &str, query: &[(&str, &str)]) -> Result<Replied, ClientError> {
        self.post_as(what, query, "", "text/plain; charset=utf-8")
    }

    fn post_as(&self, what: &str, query: &[(&str, &str)], text: &str, kind: &str) -> Result<Replied, ClientError> {
        let url = format!("{}/api/v1/{what}", self.url);
        let request = self.agent.post(&url).query_pairs(query.iter().copied()).header("Content-Type", kind);
        read(&url, self.signed(request).send(text))
    }
}

/// Samples of events as they come.
pub struct Samples {
    lines: BufReader<ureq::BodyReader<'static>>,
    url: String,
}

impl fmt::Debug for Samples {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Samples").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Iterator for Samples {
    type Item = Result<Value, ClientError>;

    /// The next one; none where the server has ended.
    fn next(&mut self) -> Option<Self::Item> {
        let no_answer = |why: String| ClientError::NoAnswer { url: self.url.clone(), why };
        loop {
            let mut line = String::new();
            match self.lines.by_ref().take(MOST_BYTES).read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(no_answer(error.to_string()))),
            }
            if let Some(text) = line.strip_prefix("data: ") {
                let sample = serde_json::from_str(text);
                return Some(sample.map_err(|_| no_answer("what answers is not run control".to_owned())));
            }
        }
    }
}

/// A name as it may stand in a path, or in a query.
fn segment(name: &str) -> String {
    let letter = |byte: u8| match byte {
        b'_' | b'-' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(letter).collect()
}

fn read(url: &str, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Replied, ClientError> {
    let no_answer = |why: String| ClientError::NoAnswer { url: url.to_owned(), why };
    let mut answer = answer.map_err(|error| match explain(&error) {
        Some(why) => ClientError::Tls { url: url.to_owned(), why },
        None => no_answer(error.to_string()),
    })?;
    let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string();
    let text = text.map_err(|error| no_answer(error.to_string()))?;
    let body: Value =
        serde_json::from_str(&text).map_err(|_| no_answer("what answers is not run control".to_owned()))?;
    if body["error"] == SPEAK_TLS {
        return Err(ClientError::Tls { url: url.to_owned(), why: SPEAK_TLS.to_owned() });
    }
    Ok(Replied { status: answer.status().as_u16(), body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_looks_at_a_server_that_says_nothing_hears_of_it() {
        // The system accepts, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it has one"));
        let mut client = Client::new(&url, None, None).expect("nobody need be believed");
        client.looking = Duration::from_millis(100);
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(client.look("state")));
        let replied = receiver.recv_timeout(Duration::from_secs(30)).expect("it is not waited for");
        assert!(matches!(replied, Err(ClientError::NoAnswer { .. })), "{replied:?}");
    }
}
