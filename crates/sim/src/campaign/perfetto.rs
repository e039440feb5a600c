//! A trace for `ui.perfetto.dev` or `chrome://tracing`: one row per node, one arrow per message between nodes.
//!
//! The form is Chrome's trace event format: complete events (`X`) for turns and faults, flow events (`s`, `f`) for
//! messages, each bound to the turn in which it was sent or arrived. Times are microseconds.

use super::place::Place;
use super::recorder::{Direction, Happening};
use ropewalk_terms::Instant;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// How long a turn is drawn, in microseconds: turns take no time here.
const DRAWN: f64 = 1.0;
/// The process that rows of nodes belong to, and that of faults.
const NODES: u32 = 1;
const FAULTS: u32 = 2;

/// A message that was queued and has not arrived as a whole.
#[derive(Debug)]
struct UnderWay {
    /// Its last byte on the connection.
    end: u64,
    number: u64,
}

/// What is known of one direction of a connection.
#[derive(Debug, Default)]
struct Course {
    sent: u64,
    received: u64,
    under_way: VecDeque<UnderWay>,
}

/// The trace while it is made.
#[derive(Debug, Default)]
pub(super) struct Perfetto {
    events: Vec<Value>,
    rows: BTreeMap<Place, u32>,
    courses: BTreeMap<Direction, Course>,
    messages: u64,
    /// Faults that began and have not ended, with the rows that they are drawn in.
    lasting: Vec<(String, f64)>,
}

fn microseconds(at: Instant) -> f64 {
    at.as_nanoseconds() as f64 / 1000.0
}

impl Perfetto {
    fn row(&mut self, place: Place) -> u32 {
        let next = self.rows.len() as u32 + 1;
        *self.rows.entry(place).or_insert(next)
    }

    /// Takes note of what happens.
    pub(super) fn note(&mut self, at: Instant, happening: Happening<'_>) {
        let time = microseconds(at);
        match happening {
            Happening::Turn { work: 0, .. } => {}
            Happening::Turn { place, work } => {
                let row = self.row(place);
                self.events.push(json!({"name": "turn", "ph": "X", "ts": time, "dur": DRAWN, "pid": NODES, "tid": row,
                    "args": {"work": work}}));
            }
            Happening::Sent { from, direction, bytes, what } => self.sent(time, from, direction, bytes, what),
            Happening::Received { by, direction, bytes } => self.received(time, by, direction, bytes),
            Happening::Begins(fault) => self.lasting.push((fault.to_string(), time)),
            Happening::Ends(fault) => self.ended(time, &fault.to_string()),
        }
    }

    fn sent(&mut self, time: f64, from: Place, direction: Direction, bytes: u64, what: &str) {
        let row = self.row(from);
        self.messages += 1;
        let number = self.messages;
        let course = self.courses.entry(direction).or_default();
        course.sent += bytes;
        course.under_way.push_back(UnderWay { end: course.sent, number });
        self.events.push(json!({"name": what, "ph": "X", "ts": time, "dur": DRAWN, "pid": NODES, "tid": row,
            "args": {"bytes": bytes, "connection": direction.0}}));
        self.arrow("s", time, row, number);
    }

    fn received(&mut self, time: f64, by: Place, direction: Direction, bytes: u64) {
        let row = self.row(by);
        let course = self.courses.entry(direction).or_default();
        course.received += bytes;
        let whole = course.under_way.partition_point(|message| message.end <= course.received);
        let arrived: Vec<u64> = course.under_way.drain(..whole).map(|message| message.number).collect();
        for number in arrived {
            self.events.push(json!({"name": "arrival", "ph": "X", "ts": time, "dur": DRAWN, "pid": NODES, "tid": row}));
            self.arrow("f", time, row, number);
        }
    }

    fn arrow(&mut self, end: &str, time: f64, row: u32, number: u64) {
        let mut arrow =
            json!({"name": "message", "cat": "message", "ph": end, "ts": time, "pid": NODES, "tid": row, "id": number});
        if end == "f" {
            // It ends at the arrival that encloses it, not at the next one.
            arrow["bp"] = json!("e");
        }
        self.events.push(arrow);
    }

    fn ended(&mut self, time: f64, name: &str) {
        let Some(index) = self.lasting.iter().position(|(lasting, _)| lasting == name) else { return };
        let (name, begin) = self.lasting.remove(index);
        self.events.push(json!({"name": name, "ph": "X", "ts": begin, "dur": (time - begin).max(DRAWN), "pid": FAULTS,
            "tid": 1}));
    }

    /// The whole trace.
    pub(super) fn finish(mut self, now: Instant) -> Value {
        for (name, _) in std::mem::take(&mut self.lasting).iter() {
            self.lasting.push((name.clone(), microseconds(now)));
            self.ended(microseconds(now), name);
        }
        let name = |what: &str, row: u32, text: String| json!({"name": what, "ph": "M", "pid": if row == 0 { FAULTS } else { NODES }, "tid": row, "args": {"name": text}});
        let mut names: Vec<Value> =
            self.rows.iter().map(|(place, row)| name("thread_name", *row, place.to_string())).collect();
        names.push(name("process_name", 0, "faults".to_owned()));
        names.push(json!({"name": "process_name", "ph": "M", "pid": NODES, "args": {"name": "run"}}));
        names.append(&mut self.events);
        json!({"displayTimeUnit": "ns", "traceEvents": names})
    }
}
