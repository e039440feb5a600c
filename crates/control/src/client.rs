//! A client of the run control server.

use crate::accept_loop::SPEAK_TLS;
use crate::authorisation::{Token, USER};
use crate::tls::{TlsError, distrust, explain, is_encrypted, trust};
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// The time limit for a connection. A response to a command has none: it takes as long as a run takes to drain.
const CONNECTING: Duration = Duration::from_secs(5);
/// The time limit for responses to queries. The server has their data at hand, so that a late response means that it
/// hangs.
const LOOKING: Duration = Duration::from_secs(10);
/// The maximum length of a response, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server does not respond, or its response is not one of run control.
    #[error("{url}: {why}; is there a `ropewalk run ... --control ADDRESS`?")]
    NoAnswer {
        /// The server's URL.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// The TLS handshake fails, or the client does not trust the server's certificate.
    #[error("{url}: {why}")]
    Tls {
        /// The server's URL.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// There are no certificates that the client could trust.
    #[error("{0}; --ca FILE names a certificate to trust")]
    Trust(#[from] TlsError),
    /// The URL does not begin with a scheme.
    #[error("{url}: write http:// (or https://) before the address: http://{url}")]
    Scheme {
        /// The URL.
        url: String,
    },
    /// A file of certificates is given for a connection without TLS.
    #[error("{url}: only https:// has certificates, which --ca is for")]
    Plain {
        /// The server's URL.
        url: String,
    },
}

/// The response of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct Replied {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body.
    pub body: Value,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    agent: ureq::Agent,
    url: String,
    token: Option<Token>,
    /// The system user, for the journal.
    user: Option<String>,
    looking: Duration,
}

impl Client {
    /// Creates a client for the server at this URL, such as `http://127.0.0.1:8900`. With `https://`, the client trusts
    /// the server if its certificate, or that of its issuer, is in the file `authorities`, or, without such a file, if
    /// the system trusts it.
    ///
    /// # Errors
    /// If the URL has no scheme, if there are no certificates to trust, or if `authorities` is given for a URL without
    /// `https://`.
    pub fn new(url: &str, token: Option<Token>, authorities: Option<&Path>) -> Result<Self, ClientError> {
        if !url.contains("://") {
            return Err(ClientError::Scheme { url: url.to_owned() });
        }
        let believed = match (is_encrypted(url), authorities) {
            (true, _) => trust(authorities)?,
            (false, None) => distrust(),
            (false, Some(_)) => return Err(ClientError::Plain { url: url.to_owned() }),
        };
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_connect(Some(CONNECTING));
        // Connect to the server itself: a proxy would see the token.
        let config = config.tls_config(believed).proxy(None);
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { agent: config.build().into(), url, token, user: None, looking: LOOKING })
    }

    /// Sends commands as this system user, whom the journal records beside the operator.
    #[must_use]
    pub fn as_user(self, user: String) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Queries a resource, such as `state`.
    ///
    /// # Errors
    /// If there is no response.
    pub fn look(&self, what: &str) -> Result<Replied, ClientError> {
        let url = format!("{}/api/v1/{what}", self.url);
        read(&url, self.agent.get(&url).config().timeout_global(Some(self.looking)).build().call())
    }

    /// Returns a stream of event samples, selected by `query`, which lasts as long as the caller reads it. If the
    /// server refuses the stream, returns its response.
    ///
    /// # Errors
    /// If there is no response.
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

    /// Returns all files of a run, by default of the current or last one, combined from as many responses as needed.
    ///
    /// # Errors
    /// If there is no response.
    pub fn files(&self, run: Option<u32>) -> Result<Replied, ClientError> {
        let what = run.map_or_else(|| "files".to_owned(), |run| format!("runs/{run}/files"));
        let mut all = self.look(&format!("{what}?limit=500"))?;
        let last = |files: &Value| files.as_array()?.last()?["path"].as_str().map(|path| segment(path).to_string());
        let mut before = last(&all.body["files"]);
        while let Some(place) = before {
            let mut page = self.look(&format!("{what}?limit=500&before={place}"))?;
            // The current run may have changed in between.
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

    /// Sends a command in the name of the operator `by`, and waits until it has ended. `fields` are the fields of the
    /// run that a start begins, each `NAME=VALUE`.
    ///
    /// # Errors
    /// If there is no response.
    pub fn command(&self, command: &str, fields: &[String], by: &str) -> Result<Replied, ClientError> {
        let fields = fields.iter().map(|field| ("field", field.as_str()));
        let query: Vec<_> = [("by", by)].into_iter().chain(fields).collect();
        self.post(&format!("commands/{command}"), &query)
    }

    /// Takes control for the operator `by`; with `is_forced`, even if another operator has it.
    ///
    /// # Errors
    /// If there is no response.
    pub fn take_controls(&self, by: &str, is_forced: bool) -> Result<Replied, ClientError> {
        self.post("operator/take", &[("by", by), ("force", if is_forced { "true" } else { "false" })])
    }

    /// Passes control from the operator `by` to the operator `to`, or releases it.
    ///
    /// # Errors
    /// If there is no response.
    pub fn give_controls(&self, by: &str, to: Option<&str>) -> Result<Replied, ClientError> {
        let query: Vec<_> = [("by", by)].into_iter().chain(to.map(|to| ("to", to))).collect();
        self.post("operator/give", &query)
    }

    /// Adds a note to a run in the name of the operator `by`.
    ///
    /// # Errors
    /// If there is no response.
    pub fn note(&self, run: u32, text: &str, by: &str) -> Result<Replied, ClientError> {
        self.post_as(&format!("runs/{run}/notes"), &[("by", by)], text, "text/plain; charset=utf-8")
    }

    /// Selects the reference run for comparisons, or none.
    ///
    /// # Errors
    /// If there is no response.
    pub fn compare_with(&self, run: Option<u32>, by: &str) -> Result<Replied, ClientError> {
        let body = serde_json::json!({ "run": run }).to_string();
        self.post_as("reference", &[("by", by)], &body, "application/json")
    }

    /// Sends a test message to the receivers of alarms, and waits until they have accepted it.
    ///
    /// # Errors
    /// If there is no response.
    pub fn test_alarms(&self, by: &str) -> Result<Replied, ClientError> {
        self.post("alarms/test", &[("by", by)])
    }

    /// Acknowledges an alarm in the name of the operator `by`.
    ///
    /// # Errors
    /// If there is no response.
    pub fn acknowledge(&self, alarm: &str, by: &str) -> Result<Replied, ClientError> {
        self.post_as(&format!("alarms/{}/acknowledge", segment(alarm)), &[("by", by)], "", "text/plain")
    }

    /// Shelves an alarm for this time in the name of the operator `by`; a time of zero shows it again.
    ///
    /// # Errors
    /// If there is no response.
    pub fn shelve(&self, alarm: &str, time: Duration, by: &str) -> Result<Replied, ClientError> {
        let seconds = time.as_secs().to_string();
        let query = [("seconds", seconds.as_str()), ("by", by)];
        self.post_as(&format!("alarms/{}/shelve", segment(alarm)), &query, "", "text/plain")
    }

    /// Masks sources in the name of the operator `by`, or unmasks them.
    ///
    /// # Errors
    /// If there is no response.
    pub fn mask(&self, sources: &[u32], is_masked: bool, by: &str) -> Result<Replied, ClientError> {
        let body = serde_json::json!({ "sources": sources, "is_masked": is_masked }).to_string();
        self.post_as("masks", &[("by", by)], &body, "application/json")
    }

    /// Restarts sources in the name of the operator `by`: masks them, and unmasks them when it is known from which
    /// event on they were out.
    ///
    /// # Errors
    /// If there is no response.
    pub fn restart(&self, sources: &[u32], by: &str) -> Result<Replied, ClientError> {
        let body = serde_json::json!({ "sources": sources }).to_string();
        self.post_as("masks/restart", &[("by", by)], &body, "application/json")
    }

    /// Changes parameters in the name of the operator `by`, each a name and a value.
    ///
    /// # Errors
    /// If there is no response.
    pub fn change(&self, changes: &[(&str, &str)], by: &str) -> Result<Replied, ClientError> {
        let body: serde_json::Map<String, Value> =
            changes.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
        let url = format!("{}/api/v1/parameters", self.url);
        let request = self.agent.patch(&url).query("by", by).header("Content-Type", "application/json");
        read(&url, self.signed(request).send(Value::Object(body).to_string()))
    }

    /// Adds the token and the system user, if there are any, to a request.
    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let request = match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {}", token.text())),
            None => request,
        };
        self.user.iter().fold(request, |request, user| request.header(USER, user))
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

/// A stream of event samples.
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

    /// Returns the next sample; none if the server has ended.
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

/// Escapes a name for a URL path or query.
fn segment(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
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
    fn a_server_that_says_nothing_is_given_up() {
        // The kernel accepts the connection, but no server responds.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it has one"));
        let mut client = Client::new(&url, None, None).expect("plain HTTP needs no certificates");
        client.looking = Duration::from_millis(100);
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(client.look("state")));
        let replied = receiver.recv_timeout(Duration::from_secs(30)).expect("it is not waited for");
        assert!(matches!(replied, Err(ClientError::NoAnswer { .. })), "{replied:?}");
    }
}
