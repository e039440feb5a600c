//! A send of many slices uses little stack: its list, of 16 KiB when full, is neither made nor copied there. (Such a
//! copy costs more than the send in the slow cases of `rep movsb`, and no other test detects it.)
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{Clock, Dispatcher, Endpoint, Event, MonotonicClock};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

const STACK: usize = 1 << 20;
const PAINT: u8 = 0xA5;
/// The maximum of one system call.
const SLICES: usize = 1024;
const SLICE_BYTES: usize = 64;
/// Less than a full list.
const ALLOWED: usize = 12 << 10;

/// A page-aligned piece of the stack's memory.
#[derive(Copy, Clone)]
#[repr(align(4096))]
struct Page([u8; 4096]);

/// The function that runs on the painted stack, and the address of that stack when it began.
struct Job<F> {
    work: F,
    began: usize,
}

extern "C" fn run<F: FnMut()>(job: *mut c_void) -> *mut c_void {
    // SAFETY: `stack_bytes` hands over its job, and waits for the end.
    let job = unsafe { &mut *job.cast::<Job<F>>() };
    job.began = (&raw const job).addr();
    call(&mut job.work);
    std::ptr::null_mut()
}

/// In a separate frame, below the noted address.
#[inline(never)]
fn call(work: &mut impl FnMut()) {
    work();
}

/// Number of bytes of stack that a function has written to.
fn stack_bytes<F: FnMut() + Send>(work: F) -> usize {
    let mut stack = vec![Page([PAINT; 4096]); STACK / 4096];
    let mut job = Job { work, began: 0 };
    let (mut attributes, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the stack and the job outlive the thread, which is joined; nothing else touches either meanwhile.
    unsafe {
        assert_eq!(libc::pthread_attr_init(attributes.as_mut_ptr()), 0);
        assert_eq!(libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack.as_mut_ptr().cast(), STACK), 0);
        let created = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run::<F>, (&raw mut job).cast());
        assert_eq!(created, 0);
        assert_eq!(libc::pthread_join(thread.assume_init(), std::ptr::null_mut()), 0);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    let untouched = stack.iter().flat_map(|page| page.0).take_while(|&byte| byte == PAINT).count();
    job.began - stack.as_ptr().addr() - untouched
}

/// Two dispatchers, and repeatedly as many slices as one call takes.
struct Traffic {
    sender: Tcp,
    receiver: Tcp,
    endpoint: Endpoint,
    slices: Vec<Slice>,
    message: Vec<Slice>,
    events: Vec<Event>,
    received: usize,
}

impl Traffic {
    fn new(mechanism: Mechanism) -> Self {
        let tcp = || {
            let pool = Pool::new(PoolConfig::heap("receive", 64 << 10, 16)).expect("memory for a test");
            Tcp::new(TcpConfig { mechanism, ..TcpConfig::default() }, pool).expect("the mechanism")
        };
        let (mut sender, mut receiver) = (tcp(), tcp());
        let service_point = receiver.listen("127.0.0.1:0").expect("a free port");
        let address = receiver.address_of(service_point).expect("a bound address");
        let endpoint = sender.connect(&address).expect("an address");
        let mut pool = Pool::new(PoolConfig::heap("source", SLICES * SLICE_BYTES, 1)).expect("memory for a test");
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        let slices = std::iter::from_fn(|| loan.append(&[7; SLICE_BYTES])).collect();
        let (message, events) = (Vec::with_capacity(SLICES), Vec::with_capacity(SLICES));
        Self { sender, receiver, endpoint, slices, message, events, received: 0 }
    }

    /// Continues until `bytes` bytes have arrived.
    fn run_until(&mut self, bytes: usize) {
        while self.received < bytes {
            if self.message.is_empty() {
                self.message.extend(self.slices.iter().cloned());
            }
            // Closed until it is established, and full when its queue is: it is retried in either case.
            let _ = self.sender.send(self.endpoint, &mut self.message);
            for tcp in [&mut self.sender, &mut self.receiver] {
                tcp.poll(MonotonicClock.now(), &mut self.events);
                for event in self.events.drain(..) {
                    match event {
                        Event::ConnectionRequest { endpoint, .. } => tcp.accept(endpoint),
                        Event::Received { slice, .. } => self.received += slice.len(),
                        _ => {}
                    }
                }
            }
        }
    }
}

#[test]
fn a_send_of_a_thousand_slices_needs_little_stack_over_any_mechanism() {
    for mechanism in [Mechanism::Epoll, Mechanism::Poll, Mechanism::Select, Mechanism::IoUring] {
        let mut traffic = Traffic::new(mechanism);
        let used = stack_bytes(|| traffic.run_until(100 * SLICES * SLICE_BYTES));
        assert!(used > 100, "{mechanism}: nothing was measured");
        assert!(used < ALLOWED, "{mechanism}: {used} bytes of stack");
    }
}

#[test]
fn a_list_on_the_stack_is_seen() {
    let used = stack_bytes(|| _ = std::hint::black_box([0_u64; 2 * SLICES]));
    assert!(used > ALLOWED, "{used} bytes of stack");
}
