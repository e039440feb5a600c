//! A run of one process per node, fed from this process.

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

/// Events sent before the measurement: twice the window of a readout unit, beyond which nothing is read before an older
/// event is built.
const FILLED_EVENTS: u64 = 2 * 1024;

/// A process that is killed on drop.
struct Node {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        // Fails if it has ended already, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    /// Starts the program as a node pinned to one processor.
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

    /// The rest of the first line that begins with `beginning`.
    fn expect(&mut self, beginning: &str) -> Result<String, BenchError> {
        let found =
            self.lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix(beginning).map(str::to_owned));
        found.ok_or_else(|| BenchError::wrong(format!("a node that does not say `{beginning}`")))
    }

    /// The last line, after a successful exit.
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

    /// Feeds it, measures the input of its sockets in the middle of the run, and checks the run's account. Returns 10^9
    /// bytes a second, and the processor seconds per 10^9 bytes of the nodes and the front ends.
    pub(super) fn measure(self) -> Result<[f64; 2], BenchError> {
        let (plan, stop, taken) = (self.plan, AtomicBool::new(false), AtomicU64::new(0));
        let (rate, sent) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                pin(plan.cpus.map(|[_, others]| others));
                SlinkSender::connect(&[self.front_ends], plan.sender)?.run_counted(&stop, &taken)
            });
            // Counted by the sender, which is right once every buffer in between is full.
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
        // The manager asks the readout unit to end; it has nothing left to lose now.
        let built = account["events"]["built"].as_u64();
        let incomplete = account["fragments"]["in_incomplete_events"].as_u64();
        let received = account["bytes"]["payload_received"].as_u64();
        if built != Some(u64::from(sent.events)) || incomplete != Some(0) || received != Some(sent.fragment_bytes) {
            return Err(BenchError::wrong(format!("the run's account: {account} of {sent:?}")));
        }
        // Ignored: a directory that cannot be removed was written to, and the figure is valid.
        let _ = std::fs::remove_dir_all(&plan.output);
        rate
    }
}
