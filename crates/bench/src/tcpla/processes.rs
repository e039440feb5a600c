//! A run of one process per node, fed from here.

use crate::BenchError;
use ropewalk_doctor::run::{RunPlan, wait};
use ropewalk_limits::{SlinkSender, pin, process_cpu_seconds};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Events that are sent before anything is measured: twice the window of a readout unit, behind which nothing is read
/// before an older event is built.
const FILLED_EVENTS: u64 = 2 * 1024;

/// A process that is killed if it is still there when this goes.
struct Node {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        // Fails where it has ended by itself, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    /// Starts the program as a node that stays on one processor.
    fn start(program: &Path, arguments: &[String], cpu: Option<usize>) -> Result<Self, BenchError> {
        let start = || {
            // A process inherits the processor of the thread that starts it.
            pin(cpu);
            let mut command = Command::new(program);
            command.arg("node").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            command.spawn()
        };
        let child = std::thread::scope(|scope| scope.spawn(start).join());
        let mut child = child.map_err(|_| BenchError::wrong("a panic"))?.map_err(BenchError::system("a node"))?;
        let out = child.stdout.take().ok_or_else(|| BenchError::wrong("a node without output"))?;
        Ok(Self { child, lines: BufReader::new(out).lines() })
    }

    /// What follows in the first line that begins so.
    fn expect(&mut self, beginning: &str) -> Result<String, BenchError> {
        let found =
            self.lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix(beginning).map(str::to_owned));
        found.ok_or_else(|| BenchError::wrong(format!("a node that does not say `{beginning}`")))
    }

    /// The last line, once it has ended well.
    fn account(mut self) -> Result<Value, BenchError> {
        let last = self.lines.by_ref().map_while(Result::ok).last().unwrap_or_default();
        let status = self.child.wait().map_err(BenchError::system("a node"))?;
        if !status.success() {
            return Err(BenchError::wrong(format!("the event manager: {status}")));
        }
        serde_json::from_str(&last).map_err(BenchError::wrong)
    }
}

/// A readout unit, builder units and an event manager that are ready.
pub(super) struct Cluster<'a> {
    plan: &'a RunPlan,
    manager: Node,
    /// They end with the run.
    _others: Vec<Node>,
    front_ends: SocketAddr,
}

impl<'a> Cluster<'a> {
    /// Starts the nodes of a plan: the readout unit on the plan's first processor, the others on its second.
    pub(super) fn start(plan: &'a RunPlan, program: &Path) -> Result<Self, BenchError> {
        std::fs::create_dir_all(&plan.output).map_err(BenchError::system("a directory"))?;
        let file = plan.output.join("setup.toml");
        let text = format!("{}\n[manager]\naddress = \"127.0.0.1:0\"\n", plan.text(true));
        std::fs::write(&file, text).map_err(BenchError::system("a configuration"))?;
        let arguments = |role: &str, more: &[&str]| {
            let output = plan.output.join("runs").display().to_string();
            let file = file.display().to_string();
            let all = [role, &file, "--output", &output].into_iter().chain(more.iter().copied());
            all.map(str::to_owned).collect::<Vec<_>>()
        };
        let [readout_cpu, others_cpu] = plan.cpus.map_or([None; 2], |cpus| cpus.map(Some));
        let mut manager = Node::start(program, &arguments("manager", &["--json"]), others_cpu)?;
        let at_manager = format!("manager={}", manager.expect("ready manager ")?);
        let readout = arguments("readout", &["--name", "ru0", "--at", &at_manager]);
        let mut readout = Node::start(program, &readout, readout_cpu)?;
        let (mut at_readout, mut front_ends) = (None, None);
        while at_readout.is_none() || front_ends.is_none() {
            let line = readout.expect("ready ru0 ")?;
            match line.strip_prefix("front ends ") {
                Some(address) => front_ends = Some(address.parse().map_err(BenchError::wrong)?),
                None => at_readout = Some(format!("ru0={line}")),
            }
        }
        let (at_readout, mut others) = (at_readout.unwrap_or_default(), vec![readout]);
        for builder in 0..plan.builders {
            let name = format!("bu{builder}");
            let more = ["--name", &name, "--at", &at_manager, "--at", &at_readout];
            let mut node = Node::start(program, &arguments("builder", &more), others_cpu)?;
            node.expect("ready")?;
            others.push(node);
        }
        let front_ends = front_ends.ok_or_else(|| BenchError::wrong("no address for front ends"))?;
        Ok(Self { plan, manager, _others: others, front_ends })
    }

    /// Feeds it, measures what its sockets take in the middle of the run, and checks the run's account: 10^9 bytes a
    /// second, and the seconds of processor for 10^9 bytes of the nodes and the front ends.
    pub(super) fn measure(self) -> Result<[f64; 2], BenchError> {
        let (plan, stop, taken) = (self.plan, AtomicBool::new(false), AtomicU64::new(0));
        let (rate, sent) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                pin(plan.cpus.map(|[_, others]| others));
                SlinkSender::connect(&[self.front_ends], plan.sender)?.run_counted(&stop, &taken)
            });
            // Counted on the sending side, which is right once every buffer in between is full: it goes on as it is read.
            let flows = wait(|| taken.load(Ordering::Relaxed) > FILLED_EVENTS * plan.sender.streams as u64);
            std::thread::sleep(plan.warm_up);
            let (from, before, process) = (Instant::now(), taken.load(Ordering::Relaxed), process_cpu_seconds());
            std::thread::sleep(plan.interval);
            let (seconds, fragments) = (from.elapsed().as_secs_f64(), taken.load(Ordering::Relaxed) - before);
            let process = process_cpu_seconds() - process;
            stop.store(true, Ordering::Relaxed);
            let gigabytes = fragments as f64 * plan.sender.fragment_bytes as f64 / 1e9;
            (
                flows
                    .then_some([gigabytes / seconds, process / gigabytes.max(1e-9)])
                    .ok_or_else(|| BenchError::wrong("nothing flows")),
                sending.join(),
            )
        });
        let sent = sent.map_err(|_| BenchError::wrong("a panic"))?.map_err(BenchError::system("front ends"))?;
        let account = self.manager.account()?;
        // The readout unit is asked to end by the manager; it has nothing left to lose now.
        let built = account["events"]["built"].as_u64();
        let incomplete = account["fragments"]["in_incomplete_events"].as_u64();
        let received = account["bytes"]["payload_received"].as_u64();
        if built != Some(u64::from(sent.events)) || incomplete != Some(0) || received != Some(sent.fragment_bytes) {
            return Err(BenchError::wrong(format!("the run's account: {account} of {sent:?}")));
        }
        // A directory that cannot be removed has been written to; the figure is good all the same.
        let _ = std::fs::remove_dir_all(&plan.output);
        rate
    }
}
