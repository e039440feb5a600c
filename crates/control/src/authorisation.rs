//! Authorises requests.
//!
//! On loopback every user of this machine may send commands. To stop web pages of other sites from doing so through a
//! browser, `Host` and `Origin` are checked. On other addresses commands need a token.

use crate::api_types::Problem;
use crate::request_limits::{Bucket, Rate};
use crate::tls::read_secret;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use subtle::ConstantTimeEq;

/// The header in which a client on the command line gives the system user who runs it.
pub(crate) const USER: &str = "ropewalk-user";

/// The secret that commands carry as `Authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    /// Secrets are in no log.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Token(...)")
    }
}

/// Random bytes of a token.
const TOKEN_BYTES: usize = 24;

impl Token {
    /// The token in this file; a new one if the file is missing, readable by this user alone.
    ///
    /// # Errors
    /// If the file cannot be read or made, has less than 16 characters or some that no request can carry, or others may
    /// read it.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        match read_secret(path) {
            Ok(text) => {
                let text = text.trim().to_owned();
                let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
                if text.len() < 16 {
                    return wrong("a token has at least 16 characters");
                }
                if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
                    return wrong("a token is one line of ASCII: no request can carry other characters");
                }
                Ok(Self(text))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(path),
            Err(error) => Err(error),
        }
    }

    fn make(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{text}")?;
        Ok(Self(text))
    }

    /// Returns the text that a client sends.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Compares tokens in a time that does not depend on the place of the difference.
    fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

/// The limit of requests that change something.
const COMMANDS: Rate = Rate { burst: 50.0, per_second: 20.0 };

/// Checks each request before any handler sees it.
#[derive(Debug)]
pub(crate) struct Authorisation {
    /// None if the server listens on a loopback address only.
    token: Option<Token>,
    allowance: Mutex<Bucket>,
}

impl Authorisation {
    pub(crate) fn new(token: Option<Token>) -> Self {
        Self { token, allowance: Mutex::new(Bucket::full(COMMANDS, Instant::now())) }
    }

    fn look_at(&self, method: &Method, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(HOST).unwrap_or_default();
        if self.token.is_none() && !is_this_machine(host) {
            let why = format!("`{host}` is not this machine: ask for 127.0.0.1 or localhost");
            return Err((StatusCode::FORBIDDEN, why));
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        if let Some(origin) = text(ORIGIN)
            && origin.split_once("://").is_none_or(|(_, from)| from != host)
        {
            return Err((StatusCode::FORBIDDEN, format!("a page of {origin} may not give commands here")));
        }
        if let Some(token) = &self.token {
            let shown = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            if !shown.is_some_and(|shown| token.is(shown.trim())) {
                let what = if shown.is_some() { "this token is wrong" } else { "commands need a token" };
                let why = format!(
                    "{what}: `ropewalk ctl --token FILE` with the file of --control-token, or the header `Authorization: \
                     Bearer TOKEN`"
                );
                return Err((StatusCode::UNAUTHORIZED, why));
            }
        }
        let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
        if allowance.wait(COMMANDS, Instant::now()).is_some() {
            let error = format!("more than {} commands a second", COMMANDS.per_second);
            return Err((StatusCode::TOO_MANY_REQUESTS, error));
        }
        allowance.left -= 1.0;
        Ok(())
    }
}

/// A name of the loopback interface, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => return false,
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Lets a request pass, or refuses it with the reason.
pub(crate) async fn authorise(
    State(authorisation): State<std::sync::Arc<Authorisation>>,
    request: Request,
    next: Next,
) -> Response {
    match authorisation.look_at(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, error)) => (status, Json(Problem { error })).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header"))).collect()
    }

    fn status(authorisation: &Authorisation, method: &Method, pairs: &[(axum::http::HeaderName, &str)]) -> u16 {
        authorisation.look_at(method, &headers(pairs)).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn loopback_is_open_to_this_machine_alone() {
        let authorisation = Authorisation::new(None);
        for (host, expected) in [
            ("127.0.0.1:8900", 200),
            ("localhost", 200),
            ("[::1]:8900", 200),
            ("daq.example:8900", 403),
            ("127.0.0.1.example", 403),
            ("[::1].example", 403),
            ("", 403),
        ] {
            assert_eq!(status(&authorisation, &Method::GET, &[(HOST, host)]), expected, "{host}");
        }
    }

    #[test]
    fn pages_of_others_give_no_commands() {
        let authorisation = Authorisation::new(None);
        let from = |origin| status(&authorisation, &Method::POST, &[(HOST, "localhost:1"), (ORIGIN, origin)]);
        assert_eq!(
            ["http://localhost:1", "http://localhost:2", "https://example.org", "null"].map(from),
            [200, 403, 403, 403]
        );
    }

    #[test]
    fn elsewhere_commands_need_the_token_and_looking_does_not() {
        let authorisation = Authorisation::new(Some(Token("0123456789abcdef".to_owned())));
        let ask = |method, shown: &str| status(&authorisation, method, &[(HOST, "daq:1"), (AUTHORIZATION, shown)]);
        assert_eq!(ask(&Method::GET, ""), 200);
        for wrong in ["", "Bearer", "Bearer 0123456789abcde", "Bearer 0123456789abcdeF", "0123456789abcdef"] {
            assert_eq!(ask(&Method::POST, wrong), 401, "{wrong}");
        }
        assert_eq!(ask(&Method::POST, "Bearer 0123456789abcdef"), 200);
    }

    #[test]
    fn commands_are_bounded() {
        let authorisation = Authorisation::new(None);
        let answers = (0..60).map(|_| status(&authorisation, &Method::POST, &[(HOST, "localhost")]));
        assert!(answers.filter(|&status| status == 429).count() > 5);
    }

    #[test]
    fn a_token_is_made_once_and_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("ropewalk-token-{}", std::process::id()));
        let made = Token::of_file(&path).expect("it can be made");
        assert_eq!(Token::of_file(&path).expect("it can be read"), made);
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(format!("{made:?}"), "Token(...)");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        let error = Token::of_file(&path).expect_err("others may read it");
        assert!(error.to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        for text in ["gr\u{fc}ner stra\u{df}e 12345", "first line 01234567\nsecond line"] {
            std::fs::write(&path, text).expect("it is ours");
            let error = Token::of_file(&path).expect_err("no request can carry it");
            assert!(error.to_string().contains("ASCII"), "{error}");
        }
        std::fs::remove_file(&path).expect("it is ours");
    }
}
