//! Tests of the TLS configuration, with certificates that `openssl ca` created for the years 2020 to 2119: `server.pem`
//! for localhost and 127.0.0.1, signed by `authority.pem`, whose key was deleted; `alone.pem` for the same names,
//! self-signed. Their keys are public.

use super::Setup;
use crate::accept_loop::{AcceptLoop, SPEAK_TLS};
use crate::{Client, ClientError, Identity, TlsError};
use ropewalk_config::ControlSection;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILES: [(&str, &str); 5] = [
    ("authority.pem", include_str!("certificates/authority.pem")),
    ("server.pem", include_str!("certificates/server.pem")),
    ("server.key", include_str!("certificates/server.key")),
    ("alone.pem", include_str!("certificates/alone.pem")),
    ("alone.key", include_str!("certificates/alone.key")),
];

/// A directory with all files, keys as they have to be.
struct Certificates(PathBuf);

impl Certificates {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("ropewalk-certificates-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let certificates = Self(directory);
        for (name, text) in FILES {
            std::fs::write(certificates.path(name), text).expect("it can be written");
            certificates.set_mode(name, if name.ends_with(".key") { 0o600 } else { 0o644 });
        }
        certificates
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn set_mode(&self, name: &str, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), permissions).expect("the test's own");
    }

    fn section(&self, certificate: &str, key: &str) -> ControlSection {
        ControlSection { certificate: Some(self.path(certificate)), key: Some(self.path(key)) }
    }

    fn refusal(&self, certificate: &str, key: &str) -> String {
        Identity::configured(&self.section(certificate, key)).expect_err("it is wrong").to_string()
    }

    /// Serves a session with one of the certificates.
    fn serve(&self, test: &str, name: &str) -> Setup {
        let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        Setup::with(test, &format!("[control]\ncertificate = {certificate:?}\nkey = {key:?}\n"))
    }

    /// Queries the state with a client that trusts this certificate, or, without it, the system's.
    fn look(&self, url: &str, believed: Option<&str>) -> Result<Value, ClientError> {
        let path = believed.map(|name| self.path(name));
        let replied = Client::new(url, None, path.as_deref())?.look("state")?;
        assert_eq!(replied.status, 200, "{}", replied.body);
        Ok(replied.body["state"].clone())
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connections(certificates: &Certificates, setup: &Setup) -> Value {
    let client = Client::new(&format!("https://{}", setup.address()), None, Some(&certificates.path("authority.pem")));
    client.expect("a certificate").look("connections").expect("it answers").body
}

#[test]
fn a_client_that_trusts_the_certificate_sees_and_commands() {
    let certificates = Certificates::new("believed");
    for (name, believed) in [("server", "authority.pem"), ("alone", "alone.pem")] {
        let setup = certificates.serve(&format!("believed-{name}"), name);
        let port = setup.address().port();
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("https://{host}:{port}/");
            assert_eq!(certificates.look(&url, Some(believed)).expect("it is believed"), "initial", "{name} {host}");
        }
        let client = Client::new(&format!("https://127.0.0.1:{port}"), None, Some(&certificates.path(believed)));
        let replied = client.expect("a certificate").command("configure", &[], "ada").expect("it answers");
        assert_eq!((replied.status, &replied.body["state"]), (200, &"configured".into()));
    }
}

#[test]
fn a_client_that_does_not_trust_the_certificate_asks_nothing() {
    let certificates = Certificates::new("unbelieved");
    let setup = certificates.serve("unbelieved", "server");
    let port = setup.address().port();
    for (host, believed, why) in [
        ("127.0.0.1", Some("alone.pem"), "--ca FILE"),
        // No authority of the system has signed it, or the system has no authorities.
        ("127.0.0.1", None, "--ca FILE"),
        // Another address of this machine, which is not in the certificate.
        ("0.0.0.0", Some("authority.pem"), "another name"),
    ] {
        let refused = certificates.look(&format!("https://{host}:{port}"), believed).expect_err("it is not believed");
        assert!(refused.to_string().contains(why), "{host} {believed:?}: {refused}");
    }
    let connections = connections(&certificates, &setup);
    assert_eq!(connections["tls"], true);
    assert!(connections["handshakes_failed"].as_u64() >= Some(1), "{connections}");
    // Certificates would be useless: plain HTTP is not encrypted.
    let plain = certificates.look(&format!("http://127.0.0.1:{port}"), Some("authority.pem"));
    assert!(matches!(plain, Err(ClientError::Plain { .. })), "{plain:?}");
    let none = certificates.look(&format!("https://127.0.0.1:{port}"), Some("server.key"));
    assert!(matches!(none, Err(ClientError::Trust(TlsError::Nothing { .. }))), "{none:?}");
}

#[test]
fn plain_http_is_told_to_speak_tls_and_does_no_harm() {
    let certificates = Certificates::new("plain");
    let setup = certificates.serve("plain", "server");
    let (status, problem) = setup.json("POST", "/api/v1/commands/configure");
    assert_eq!((status, &problem["error"]), (400, &SPEAK_TLS.into()));
    let refused = certificates.look(&format!("http://{}", setup.address()), None).expect_err("it speaks no TLS");
    assert!(matches!(&refused, ClientError::Tls { why, .. } if why == SPEAK_TLS), "{refused}");
    assert_eq!(setup.say(b"\x00\xff\x16 anything\r\n\r\n").0, 400);
    // Data that begin like a handshake but are none.
    assert_eq!(setup.say(b"\x16\x03\x01\xff\xff").0, 0);
    assert_eq!(setup.say(b"\x16 GET / HTTP/1.1\r\n\r\n").0, 0);
    drop(TcpStream::connect(setup.address()).expect("it listens"));
    let url = format!("https://{}", setup.address());
    assert_eq!(certificates.look(&url, Some("authority.pem")).expect("it goes on"), "initial");
    super::wait("all are counted", || {
        let connections = connections(&certificates, &setup);
        let is_all = connections["plain"] == 3 && connections["handshakes_failed"] == 3;
        // The only open connection is the one of this request.
        (is_all && connections["open"] == 1).then_some(())
    });
}

#[test]
fn a_client_that_expects_tls_says_so_to_a_plain_server() {
    let certificates = Certificates::new("without");
    let setup = Setup::new("without-tls");
    let refused = certificates.look(&format!("https://{}", setup.address()), Some("authority.pem"));
    let refused = refused.expect_err("there is no TLS").to_string();
    assert!(refused.ends_with("does not speak TLS"), "{refused}");
    let (_, connections) = setup.json("GET", "/api/v1/connections");
    assert_eq!((&connections["tls"], &connections["plain"]), (&false.into(), &0.into()));
}

#[test]
fn a_server_is_named_as_its_certificate_names_it() {
    let certificates = Certificates::new("named");
    let identity = Identity::configured(&certificates.section("server.pem", "server.key")).expect("both are good");
    let identity = identity.expect("it is configured");
    for (listens, host) in [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "localhost"), ("0.0.0.0", "localhost")] {
        assert_eq!(identity.host(listens.parse().expect("an address")).as_deref(), Some(host));
    }
    assert_eq!(identity.certificate(), certificates.path("server.pem"));
}

#[test]
fn a_silent_client_is_sent_away_and_keeps_no_other_waiting() {
    let certificates = Certificates::new("silent");
    let identity = Identity::configured(&certificates.section("server.pem", "server.key")).expect("both are good");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    let patience = Duration::from_millis(200);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let accept_loop = Arc::new(AcceptLoop::new(identity.as_ref(), patience, 16));
        let (end, ending) = tokio::sync::watch::channel(());
        // One says nothing at all, the other begins a handshake.
        let mut silent = [(); 2].map(|()| TcpStream::connect(address).expect("it listens"));
        silent[1].write_all(b"\x16\x03\x01\x02\x00\x01").expect("it is taken");
        for _ in &silent {
            let (stream, _) = listener.accept().await.expect("they came");
            accept_loop.admit(stream, &axum::Router::new(), &ending);
        }
        let begun = Instant::now();
        assert_eq!(accept_loop.connections().open, 2);
        while accept_loop.connections().open > 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "they are still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(begun.elapsed() >= patience);
        assert_eq!((accept_loop.connections().handshakes_late, accept_loop.connections().handshakes_failed), (2, 0));
        for mut stream in silent {
            stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
            assert!(!matches!(stream.read(&mut [0; 16]), Ok(1..)), "nothing was to be said");
        }
        drop(end);
    });
}

#[test]
fn silent_handshakes_hold_up_neither_others_nor_the_end() {
    let certificates = Certificates::new("beside");
    let setup = certificates.serve("beside", "server");
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(setup.address()).expect("it listens")).collect();
    let begun = Instant::now();
    assert!(connections(&certificates, &setup)["open"].as_u64() >= Some(50));
    drop(setup);
    assert!(begun.elapsed() < crate::accept_loop::PATIENCE / 2, "they were waited for");
    drop(silent);
}

#[test]
fn a_key_that_others_may_read_and_files_that_do_not_fit_are_refused() {
    let certificates = Certificates::new("refused");
    assert!(Identity::configured(&ControlSection::default()).expect("nothing is wrong").is_none());
    certificates.set_mode("server.key", 0o644);
    let refused = certificates.refusal("server.pem", "server.key");
    assert!(refused.contains("server.key: others may read it (mode 644): chmod 600"), "{refused}");
    certificates.set_mode("server.key", 0o600);
    for (certificate, key, why) in [
        ("server.pem", "alone.key", "the key belongs to another certificate"),
        ("server.key", "server.key", "no certificate in it"),
        ("gone.pem", "server.key", "gone.pem: No such file"),
        ("server.pem", "gone.key", "gone.key: No such file"),
    ] {
        let refused = certificates.refusal(certificate, key);
        assert!(refused.contains(why), "{refused}");
    }
    certificates.set_mode("server.pem", 0o600);
    let refused = certificates.refusal("server.pem", "server.pem");
    assert!(refused.contains("no private key"), "{refused}");
}

#[test]
fn an_encrypted_webhook_is_asked_only_where_it_is_believed() {
    let certificates = Certificates::new("webhook");
    let hook = certificates.serve("webhook-hook", "server");
    let setup = Setup::with(
        "webhook-told",
        &format!("[alarms]\nwebhook = \"https://{}/\"\nalive_every = \"1s\"\n", hook.address()),
    );
    let told = super::wait("a failed message", || {
        let told = setup.json("GET", "/api/v1/alarms/told").1;
        (told["failed"].as_u64() >= Some(1)).then_some(told)
    });
    let why = told["last_failure"].as_str().expect("a failure");
    assert!(
        why.contains("not signed by a trusted authority") || why.contains("no certificates of authorities"),
        "{why}"
    );
}
