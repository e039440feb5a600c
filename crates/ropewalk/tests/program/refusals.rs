//! A node that is refused for good ends: it says who refused it, why, and what to do.

use crate::cluster::Cluster;
use crate::process::Program;
use crate::support::{FrontEnd, Setup};
use ropewalk_terms::{Epoch, Incarnation, NodeId, RunNumber};
use ropewalk_wire::message::{HEADER_BYTES, Header, Kind, Message, RefuseReason};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

fn node(role: &str, name: &str, config: &Path, at: &str) -> Program {
    let config = config.to_str().expect("a path in UTF-8");
    Program::start(["node", role, config, "--name", name, "--at", at])
}

/// Answers whoever calls first as `by` would who refuses him. Returns where to call.
fn refuser(by: NodeId, reason: RefuseReason) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().expect("somebody calls");
        let mut header = [0; HEADER_BYTES];
        caller.read_exact(&mut header).expect("a header comes first");
        let header = Header::decode(&header).expect("nodes speak the protocol");
        let mut hello = vec![0; header.body as usize];
        caller.read_exact(&mut hello).expect("its body follows");
        assert_eq!(header.kind, Kind::Hello);
        let mut body = Vec::new();
        Message::Refuse(reason).encode(&mut body);
        let (run, epoch, incarnation) = (RunNumber(0), Epoch(1), Incarnation(1));
        let header = Header { kind: Kind::Refuse, body: body.len() as u32, run, epoch, sender: by, incarnation };
        caller.write_all(&[&header.to_bytes()[..], &body].concat()).expect("the caller listens");
        // Until the caller is gone, so that what was said arrives.
        let _ = caller.read(&mut [0]);
    });
    address
}

#[test]
fn a_node_with_another_configuration_is_refused_and_ends_with_status_2() {
    let setup = Setup::new("another", &[841, 843]);
    let other = setup.directory().join("other.toml");
    fs::write(&other, setup.text().replace("id = 843", "id = 844")).expect("a file can be written");
    let mut cluster = Cluster::new(setup);
    cluster.start("manager", &["--events", "1"]);
    let manager = cluster.address("manager").to_owned();
    for (role, name) in [("readout", "ru0"), ("builder", "bu0")] {
        let ended = node(role, name, &other, &format!("manager={manager}")).end();
        let advice = format!(
            "the event manager at {manager} refuses this node: its configuration is another one; \
             start every node from the same file"
        );
        assert!(ended.expect_status(2).errors.contains(&advice), "{ended:#?}");
    }
    assert!(!cluster.node("manager").has_ended(), "the others wait for the right nodes");
}

#[test]
fn a_node_of_another_version_is_refused_and_ends_with_status_2() {
    let setup = Setup::new("version", &[841]);
    let file = setup.file();
    for (role, name, by, called) in [
        ("readout", "ru0", NodeId::MANAGER, "manager"),
        ("builder", "bu0", NodeId::MANAGER, "manager"),
        ("builder", "bu0", NodeId::readout(0), "ru0"),
    ] {
        let address = refuser(by, RefuseReason::Version);
        let ended = node(role, name, &file, &format!("{called}={address}")).end();
        let errors = &ended.expect_status(2).errors;
        assert!(errors.contains(&format!("at {address} refuses this node: it speaks another version")), "{ended:#?}");
    }
}

/// Who works is not displaced; after a crash the later one takes the place at once.
#[test]
fn the_later_of_two_starts_of_a_node_ends_with_status_2_unless_the_earlier_one_is_dead() {
    let setup = Setup::new("twice", &[841]);
    let mut cluster = Cluster::new(setup);
    cluster.start("manager", &["--events", "1"]);
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    cluster.node("manager").expect_error_line_with("running");
    let earlier = cluster.take("bu0");
    cluster.start("bu0", &[]);
    let later = cluster.take("bu0").end();
    assert!(later.expect_status(2).errors.contains("run each node once"), "{later:#?}");
    drop(earlier);
    cluster.start("bu0", &[]);
    let address = cluster.front_end_address("ru0");
    FrontEnd::ferol(&address, 841).send([1]);
    cluster.take("manager").end().expect_status(0);
}

#[test]
fn a_run_that_may_not_have_enough_open_is_refused_with_the_number() {
    let setup = Setup::new("descriptors", &[841, 843]);
    let file = setup.file();
    let ended = Program::with_descriptors(64, ["run".as_ref(), file.as_os_str()]).end();
    let errors = &ended.expect_status(2).errors;
    assert!(errors.contains("descriptors and may have 64"), "{ended:#?}");
    assert!(!setup.output().exists(), "nothing is begun");
}
