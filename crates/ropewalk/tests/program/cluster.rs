//! A run of one process per node.

use crate::process::Program;
use crate::support::{Relay, Setup, Tampering};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The processes of a run, and how they find each other.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) setup: Setup,
    config: PathBuf,
    /// The address at which others reach a node: its own, once it has printed it, or a relay's from the beginning.
    addresses: BTreeMap<String, String>,
    relays: BTreeMap<String, Relay>,
    nodes: BTreeMap<String, Program>,
}

impl Cluster {
    /// A cluster without running nodes; each must be started after the nodes that it connects to.
    pub(crate) fn new(setup: Setup) -> Self {
        let config = setup.file();
        let (addresses, relays) = (BTreeMap::new(), BTreeMap::new());
        Self { setup, config, addresses, relays, nodes: BTreeMap::new() }
    }

    /// Others reach this node over a relay, to which they may connect before the node exists.
    pub(crate) fn with_relay(mut self, name: &str, tampering: Tampering) -> Self {
        let relay = Relay::new(tampering);
        self.addresses.insert(name.to_owned(), relay.address().to_owned());
        self.relays.insert(name.to_owned(), relay);
        self
    }

    /// The directory of the first run of the manager or of a builder unit.
    pub(crate) fn run_directory(&self, name: &str) -> PathBuf {
        self.directory_of_run(name, 1)
    }

    /// The same of another run.
    pub(crate) fn directory_of_run(&self, name: &str, run: u64) -> PathBuf {
        self.setup.directory().join(name).join(format!("run{run:06}"))
    }

    /// Starts a node, and waits until it prints that it is ready.
    pub(crate) fn start(&mut self, name: &str, more: &[&str]) {
        let role = match &name[..2] {
            "ru" => "readout",
            "bu" => "builder",
            _ => "manager",
        };
        let output = self.setup.directory().join(name);
        let mut arguments = vec!["node".to_owned(), role.to_owned(), self.config.display().to_string()];
        if role != "manager" {
            arguments.extend(["--name".to_owned(), name.to_owned()]);
        }
        arguments.extend(["--output".to_owned(), output.display().to_string()]);
        for (other, address) in self.addresses.iter().filter(|(other, _)| *other != name) {
            arguments.extend(["--at".to_owned(), format!("{other}={address}")]);
        }
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let mut node = Program::start(&arguments);
        if role == "builder" {
            node.expect_line("ready");
        } else {
            let address = node.expect_line(&format!("ready {name} "));
            match self.relays.get(name) {
                Some(relay) => relay.lead_to(&address),
                None => _ = self.addresses.insert(name.to_owned(), address),
            }
        }
        self.nodes.insert(name.to_owned(), node);
    }

    /// The address at which others reach a started node.
    pub(crate) fn address(&self, name: &str) -> &str {
        &self.addresses[name]
    }

    /// The address for front ends.
    pub(crate) fn front_end_address(&mut self, readout: &str) -> String {
        self.node(readout).expect_line(&format!("ready {readout} front ends "))
    }

    /// The same in the run with this number, counted from 1 since the node's start.
    pub(crate) fn front_end_address_in(&mut self, readout: &str, life: usize) -> String {
        self.node(readout).expect_line_number(life, &format!("ready {readout} front ends "))
    }

    /// The relay of a node that has one.
    pub(crate) fn relay(&self, name: &str) -> &Relay {
        &self.relays[name]
    }

    /// A started node.
    pub(crate) fn node(&mut self, name: &str) -> &mut Program {
        self.nodes.get_mut(name).unwrap_or_else(|| panic!("{name} was not started"))
    }

    /// Removes a node from the cluster, to wait for its end.
    pub(crate) fn take(&mut self, name: &str) -> Program {
        self.nodes.remove(name).unwrap_or_else(|| panic!("{name} was not started"))
    }

    /// Kills a node with -9.
    pub(crate) fn kill(&mut self, name: &str) {
        self.take(name).kill();
    }
}
