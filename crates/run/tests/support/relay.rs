//! A relay to a node. It has an address before the node has one, so that nodes can be started in any order with ports
//! of 0. It can falsify messages, and records the acknowledgements of builder units.

use ropewalk_terms::Counter;
use ropewalk_wire::message::{Acknowledge, HEADER_BYTES, Header, Kind, Message};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Receive buffer of a slow relay in the kernel, in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The effect of a relay on the data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tampering {
    /// No effect.
    None,
    /// In the reports of the calling nodes, one fragment in a complete event is not counted: the report of a readout
    /// unit that lost one without detecting it.
    ForgetOneFragment,
    /// No effect, but the acknowledgements of builder units are recorded.
    Remember,
    /// The data from the node to its callers is limited to this many bytes a second.
    Slow(u32),
    /// The data from the node to its callers is delayed by this many milliseconds.
    Late(u32),
}

/// Acknowledgements of builder units, in order.
type Acknowledged = Arc<Mutex<Vec<Acknowledge>>>;

/// A relay to a node that may not exist yet: until then callers are rejected.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    target: Arc<Mutex<Option<String>>>,
    /// The callers, as long as the relay is not cut.
    callers: Arc<Mutex<Vec<TcpStream>>>,
    acknowledged: Acknowledged,
    halt: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn new(tampering: Tampering) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (target, halt) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (led, halted) = (Arc::clone(&target), Arc::clone(&halt));
        let callers = Arc::<Mutex<Vec<TcpStream>>>::default();
        let called = Arc::clone(&callers);
        let acknowledged = Acknowledged::default();
        let heard = Arc::clone(&acknowledged);
        let thread = std::thread::spawn(move || {
            for caller in listener.incoming().map_while(Result::ok) {
                if halted.load(Ordering::Relaxed) {
                    return;
                }
                // Held until the caller is recorded, so that a cut leaves no caller out.
                let target = led.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(node) = target.as_ref().and_then(|address| TcpStream::connect(address).ok()) {
                    let mut called = called.lock().unwrap_or_else(PoisonError::into_inner);
                    called.extend(caller.try_clone());
                    connect(caller, node, tampering, &heard);
                }
            }
        });
        Self { address, target, callers, acknowledged, halt, thread: Some(thread) }
    }

    /// Returns the address for callers.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the acknowledgements of builder units so far.
    pub(crate) fn acknowledged(&self) -> Vec<Acknowledge> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the address of the node.
    pub(crate) fn lead_to(&self, address: &str) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(address.to_owned());
    }

    /// Ends every connection, and rejects callers until it has an address again.
    pub(crate) fn cut(&self) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        *target = None;
        for caller in self.callers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = caller.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Connects two sockets, each direction on a thread that ends with them.
fn connect(caller: TcpStream, node: TcpStream, tampering: Tampering, acknowledged: &Acknowledged) {
    let _ = (caller.set_nodelay(true), node.set_nodelay(true));
    if matches!(tampering, Tampering::Slow(_)) {
        // Otherwise the kernel's buffers grow (to 32 MiB each) until they hold all data requested at a time, and the
        // node never waits.
        sockopt::set_socket_recv_buffer_size(&node, RECEIVE_BUFFER).expect("a socket has a receive buffer");
    }
    let (Ok(caller_back), Ok(node_back)) = (caller.try_clone(), node.try_clone()) else { return };
    let acknowledged = Arc::clone(acknowledged);
    std::thread::spawn(move || match tampering {
        Tampering::None | Tampering::Slow(_) | Tampering::Late(_) => pass_on(caller, node),
        Tampering::ForgetOneFragment => by_message(caller, node, |kind, body| {
            if kind == Kind::Report {
                *body = without_one_fragment(body);
            }
        }),
        Tampering::Remember => by_message(caller, node, |kind, body| {
            if let Ok(Message::Acknowledge(message)) = Message::decode(kind, body) {
                acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(message);
            }
        }),
    });
    std::thread::spawn(move || match tampering {
        Tampering::Slow(rate) => {
            pass_slowly(node_back, caller_back, |bytes| Duration::from_secs_f64(bytes as f64 / f64::from(rate)))
        }
        Tampering::Late(milliseconds) => {
            pass_slowly(node_back, caller_back, |_| Duration::from_millis(milliseconds.into()))
        }
        _ => pass_on(node_back, caller_back),
    });
}

/// Delays each piece of at most 16 KiB.
fn pass_slowly(mut from: TcpStream, mut to: TcpStream, time: impl Fn(usize) -> Duration) {
    let mut bytes = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        std::thread::sleep(time(length));
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Passes on each whole message as changed by `look`. A message that the receiver no longer accepts counts as sent.
fn by_message(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(Kind, &mut Vec<u8>)) {
    let mut bytes = [0; HEADER_BYTES];
    while from.read_exact(&mut bytes).is_ok() {
        let header = Header::decode(&bytes).expect("nodes speak the protocol");
        let mut body = vec![0; header.body as usize];
        if from.read_exact(&mut body).is_err() {
            break;
        }
        look(header.kind, &mut body);
        // A falsified body is as long as the true one: its numbers have a fixed width.
        let _ = to.write_all(&bytes).and_then(|()| to.write_all(&body));
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn without_one_fragment(body: &[u8]) -> Vec<u8> {
    let Ok(Message::Report(mut report)) = Message::decode(Kind::Report, body) else { panic!("a report is a report") };
    let complete = |what: u16| what == Counter::FragmentsComplete as u16;
    if let Some(entry) = report.entries.iter_mut().find(|entry| complete(entry.what) && entry.value > 0) {
        entry.value -= 1;
    }
    let mut falsified = Vec::new();
    Message::Report(report).encode(&mut falsified);
    assert_eq!(falsified.len(), body.len(), "only a number was changed");
    falsified
}
