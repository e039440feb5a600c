//! Two queues of output, each written by its own thread.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    /// Standard output.
    Results,
    /// Standard error.
    Words,
}

impl Stream {
    const fn other(self) -> Self {
        match self {
            Self::Results => Self::Words,
            Self::Words => Self::Results,
        }
    }

    /// The maximum number of queued bytes.
    const fn most_bytes(self) -> usize {
        match self {
            Self::Results => 16 << 20,
            Self::Words => 256 << 10,
        }
    }

    const fn thread(self) -> &'static str {
        match self {
            Self::Results => "stdout",
            Self::Words => "stderr",
        }
    }
}

/// How long a stream waits for earlier output of the other one, which may be blocked.
const TURN: Duration = Duration::from_millis(100);
/// Retry interval for a terminal that another program made non-blocking.
const AGAIN: Duration = Duration::from_millis(10);

/// Queues output, and never blocks.
pub(super) struct Printer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the next item, which gives the order over both streams.
    next: u64,
    queues: [Queue; 2],
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Item)>,
    bytes: usize,
    /// The number of the item that the thread is writing.
    in_hand: Option<u64>,
    /// Nothing was written for a while although items are queued: the other stream does not wait for this one.
    is_stuck: bool,
    /// The number of items that found no room.
    left_out: u64,
    /// The first write error.
    fault: Option<String>,
}

enum Item {
    Text {
        bytes: Vec<u8>,
        /// A reader that stops before this has missed results.
        is_awaited: bool,
    },
    /// Lines that replace those drawn before.
    Live(Option<String>),
}

impl Queue {
    /// The number of the oldest item that is not yet written.
    fn oldest(&self) -> Option<u64> {
        self.in_hand.or_else(|| self.waiting.front().map(|(number, _)| *number))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Printer {
    /// Live lines are drawn only while `owns_terminal`.
    pub(super) fn start(
        results: Box<dyn Write + Send>,
        words: Box<dyn Write + Send>,
        owns_terminal: fn() -> bool,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        for (stream, out) in [(Stream::Results, results), (Stream::Words, words)] {
            let writer = Writer { shared: Arc::clone(&shared), stream, drawn: None, owns_terminal };
            std::thread::Builder::new().name(stream.thread().to_owned()).spawn(move || writer.write_to(out))?;
        }
        Ok(Self { shared })
    }

    /// Adds text that may stay unread: a reader such as `head` may stop early.
    pub(super) fn add(&self, stream: Stream, text: Vec<u8>) {
        self.add_item(stream, text, false);
    }

    /// Adds results that a program reads.
    pub(super) fn add_awaited(&self, text: Vec<u8>) {
        self.add_item(Stream::Results, text, true);
    }

    /// Adds an item, or counts it as dropped if the queue is full.
    fn add_item(&self, stream: Stream, bytes: Vec<u8>, is_awaited: bool) {
        let mut state = self.shared.lock();
        let number = state.next;
        state.next += 1;
        let queue = &mut state.queues[stream as usize];
        if queue.bytes + bytes.len() > stream.most_bytes() {
            queue.left_out += 1;
            return;
        }
        queue.bytes += bytes.len();
        queue.waiting.push_back((number, Item::Text { bytes, is_awaited }));
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Draws these lines in place of the previous ones.
    pub(super) fn draw(&self, lines: Option<String>) {
        let mut state = self.shared.lock();
        let number = state.next;
        let waiting = &mut state.queues[Stream::Words as usize].waiting;
        if let Some((_, Item::Live(last))) = waiting.back_mut() {
            *last = lines;
            return;
        }
        waiting.push_back((number, Item::Live(lines)));
        state.next += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until everything added is written, at most for `most`. Returns whether it is.
    pub(super) fn wait(&self, stream: Stream, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.shared.lock();
        loop {
            if state.queues[stream as usize].oldest().is_none() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the results, at most for `most`; otherwise returns why some were not printed.
    pub(super) fn end_results(&self, most: Duration) -> Result<(), String> {
        let is_written = self.wait(Stream::Results, most);
        let state = self.shared.lock();
        let queue = &state.queues[Stream::Results as usize];
        match &queue.fault {
            Some(fault) => Err(fault.clone()),
            None if queue.left_out > 0 || !is_written => Err("it is not read".to_owned()),
            None => Ok(()),
        }
    }
}

struct Writer {
    shared: Arc<Shared>,
    stream: Stream,
    /// Lines on the terminal that must be erased before the next text.
    drawn: Option<String>,
    /// Whether lines may be drawn now.
    owns_terminal: fn() -> bool,
}

impl Writer {
    fn write_to(mut self, mut out: Box<dyn Write + Send>) {
        loop {
            let (item, left_out) = self.next();
            let may_draw = (self.owns_terminal)();
            if !may_draw {
                // Other programs have written below these lines.
                self.drawn = None;
            }
            let mut bytes = wipe(self.drawn.as_deref());
            if left_out > 0 {
                bytes.extend_from_slice(format!("{left_out} lines are left out: they were not read\n").as_bytes());
            }
            let mut is_awaited = false;
            match item {
                Item::Text { bytes: text, is_awaited: awaited } => {
                    bytes.extend_from_slice(&text);
                    is_awaited = awaited;
                }
                Item::Live(lines) => self.drawn = lines.filter(|_| may_draw),
            }
            if let Some(lines) = &self.drawn {
                // The terminal cuts lines that are too long: wrapped ones could not be erased.
                bytes.extend_from_slice(format!("\x1b[?7l{lines}\n\x1b[?7h").as_bytes());
            }
            let written = write_whole(&mut out, &bytes);
            let mut state = self.shared.lock();
            let queue = &mut state.queues[self.stream as usize];
            (queue.in_hand, queue.is_stuck) = (None, false);
            if let Err(error) = written
                && (is_awaited || error.kind() != ErrorKind::BrokenPipe)
            {
                queue.fault.get_or_insert_with(|| error.to_string());
            }
            drop(state);
            self.shared.changed.notify_all();
        }
    }

    /// Waits for the next item and its turn: earlier output of the other stream comes first, unless that one is stuck.
    /// Also returns how many items were dropped before it.
    fn next(&self) -> (Item, u64) {
        let mut state = self.shared.lock();
        loop {
            let (own, other) = (self.stream as usize, self.stream.other() as usize);
            let Some(number) = state.queues[own].oldest() else {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let is_turn = state.queues[other].oldest().is_none_or(|oldest| oldest > number);
            if is_turn || state.queues[other].is_stuck {
                return state.queues[own].take();
            }
            let waited = self.shared.changed.wait_timeout(state, TURN);
            let (next, time_out) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.queues[other].is_stuck |= time_out.timed_out();
        }
    }
}

impl Queue {
    fn take(&mut self) -> (Item, u64) {
        let (number, item) = self.waiting.pop_front().expect("its oldest item was just seen");
        self.in_hand = Some(number);
        let mut left_out = 0;
        if let Item::Text { bytes, .. } = &item {
            self.bytes -= bytes.len();
            left_out = std::mem::take(&mut self.left_out);
        }
        (item, left_out)
    }
}

/// The sequence that erases drawn lines.
fn wipe(drawn: Option<&str>) -> Vec<u8> {
    drawn.map_or_else(Vec::new, |lines| format!("\r\x1b[{}A\x1b[J", lines.lines().count()).into_bytes())
}

/// Writes everything, even if another program made the terminal non-blocking.
pub(super) fn write_whole(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(AGAIN),
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Writes block until the test releases them.
    struct Gate {
        written: Sender<String>,
        open: Option<Receiver<()>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(open) = &self.open {
                let _ = open.recv();
            }
            let _ = self.written.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// There is no reader.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);

    fn gate(written: &Sender<String>) -> (Box<Gate>, Sender<()>) {
        let (opener, open) = channel();
        (Box::new(Gate { written: written.clone(), open: Some(open) }), opener)
    }

    fn open(written: &Sender<String>) -> Box<Gate> {
        Box::new(Gate { written: written.clone(), open: None })
    }

    #[test]
    fn two_streams_keep_the_order_in_which_lines_were_printed() {
        let (written, read) = channel();
        let printer = Printer::start(open(&written), open(&written), || true).expect("threads");
        for number in 0..200_u32 {
            let stream = if number % 3 == 0 { Stream::Words } else { Stream::Results };
            printer.add(stream, number.to_string().into_bytes());
        }
        let all: Vec<String> = (0..200).map(|_| read.recv_timeout(LONG).expect("a line")).collect();
        assert_eq!(all, (0..200).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn a_blocked_stream_holds_up_neither_the_other_one_nor_its_writers() {
        let (written, read) = channel();
        let (words, opener) = gate(&written);
        let printer = Printer::start(open(&written), words, || true).expect("threads");
        for _ in 0..100_000 {
            printer.add(Stream::Words, b"progress\n".to_vec());
        }
        printer.add(Stream::Results, b"account\n".to_vec());
        assert_eq!(printer.end_results(LONG), Ok(()));
        assert_eq!(read.recv_timeout(LONG).as_deref(), Ok("account\n"));
        assert!(!printer.wait(Stream::Words, SHORT), "it is not read");
        // When reading resumes, the number of dropped lines is printed.
        drop(opener);
        assert!(printer.wait(Stream::Words, LONG));
        assert!(read.try_iter().any(|text| text.contains("lines are left out")));
    }

    #[test]
    fn results_that_were_not_printed_are_reported() {
        let (written, _read) = channel();
        let (results, _opener) = gate(&written);
        let printer = Printer::start(results, open(&written), || true).expect("threads");
        printer.add(Stream::Results, b"account\n".to_vec());
        assert_eq!(printer.end_results(SHORT), Err("it is not read".to_owned()));
        let printer = Printer::start(Box::new(Closed), Box::new(Closed), || true).expect("threads");
        printer.add(Stream::Words, b"warning\n".to_vec());
        assert_eq!(printer.end_results(LONG), Ok(()), "words for people are no results");
        printer.add(Stream::Results, b"table\n".to_vec());
        assert_eq!(printer.end_results(LONG), Ok(()), "who stops reading has enough");
        printer.add_awaited(b"account\n".to_vec());
        assert_eq!(printer.end_results(LONG), Err("broken pipe".to_owned()));
    }

    #[test]
    fn live_lines_are_neither_drawn_nor_wiped_in_the_background() {
        static IN_FOREGROUND: AtomicBool = AtomicBool::new(true);
        let (written, read) = channel();
        let owns_terminal = || IN_FOREGROUND.load(Ordering::Relaxed);
        let printer = Printer::start(open(&written), open(&written), owns_terminal).expect("threads");
        printer.draw(Some("one".to_owned()));
        assert_eq!(read.recv_timeout(LONG).as_deref(), Ok("\x1b[?7lone\n\x1b[?7h"));
        assert!(printer.wait(Stream::Words, LONG));
        IN_FOREGROUND.store(false, Ordering::Relaxed);
        printer.draw(Some("two".to_owned()));
        printer.add(Stream::Words, b"news\n".to_vec());
        assert!(printer.wait(Stream::Words, LONG));
        assert_eq!(read.try_iter().collect::<String>(), "news\n");
        IN_FOREGROUND.store(true, Ordering::Relaxed);
        printer.draw(Some("three".to_owned()));
        assert_eq!(read.recv_timeout(LONG).as_deref(), Ok("\x1b[?7lthree\n\x1b[?7h"));
    }

    #[test]
    fn live_lines_are_wiped_before_the_next_text_and_drawn_again_behind_it() {
        let (written, read) = channel();
        let printer = Printer::start(open(&written), open(&written), || true).expect("threads");
        let next = || read.recv_timeout(LONG).expect("something is drawn");
        printer.draw(Some("one\ntwo".to_owned()));
        assert_eq!(next(), "\x1b[?7lone\ntwo\n\x1b[?7h");
        printer.add(Stream::Words, b"news\n".to_vec());
        assert_eq!(next(), "\r\x1b[2A\x1b[Jnews\n\x1b[?7lone\ntwo\n\x1b[?7h");
        printer.draw(None);
        assert_eq!(next(), "\r\x1b[2A\x1b[J");
        printer.add(Stream::Results, b"account\n".to_vec());
        assert_eq!(next(), "account\n");
    }
}
