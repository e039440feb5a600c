//! A front end's program: its own implementation of the protocol, as in the libraries.

use super::ProgramSetting;
use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::Staging;
use ropewalk_terms::{Instant, RunNumber, SourceId};
use ropewalk_wire::front_end::{
    Command, FRAME_BYTES, Failed, Frame, Held, Hello, Named, Reading, Stage, Status, Stopped, Vetoed, Word,
};
use std::collections::VecDeque;
use std::time::Duration;

/// The pause before it connects to run control again, and between two status messages.
const RETRY: Duration = Duration::from_millis(200);
const STATUS: Duration = Duration::from_millis(500);
/// One trigger in this many is vetoed because the detector is busy.
const BUSY_IN: u64 = 7;

pub(super) struct Program {
    pub(super) setting: ProgramSetting,
    pub(super) network: Simulated,
    staging: Staging,
    source: SourceId,
    address: String,
    control: Option<Endpoint>,
    is_up: bool,
    retry: Instant,
    status_due: Instant,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Commands, and when each is obeyed.
    told: VecDeque<(Instant, Command)>,
    pub(super) stage: Stage,
    pub(super) run: RunNumber,
    first: u64,
    /// The last event whose trigger was seen, and the last one whose data were sent.
    pub(super) seen: u64,
    pub(super) sent: u64,
    issued: u64,
    vetoed: u64,
    /// Triggers that came while it was held, and whether it is held.
    paused: u64,
    pub(super) is_held: bool,
    stop: Option<Option<u64>>,
    steps: u64,
    /// Until when it is dead.
    pub(super) dead_until: Option<Instant>,
}

impl Program {
    pub(super) fn new(
        source: u32,
        setting: ProgramSetting,
        network: Simulated,
        staging: Staging,
        address: &str,
    ) -> Self {
        Self {
            setting,
            network,
            staging,
            source: SourceId(source),
            address: address.to_owned(),
            control: None,
            is_up: false,
            retry: Instant::ZERO,
            status_due: Instant::ZERO,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            told: VecDeque::new(),
            stage: Stage::Idle,
            run: RunNumber(0),
            first: 1,
            seen: 0,
            sent: 0,
            issued: 0,
            vetoed: 0,
            paused: 0,
            is_held: false,
            stop: None,
            steps: 0,
            dead_until: None,
        }
    }

    /// Its control connection, if there is one.
    pub(super) fn connection(&self) -> Option<Endpoint> {
        self.control.filter(|_| self.is_up)
    }

    /// Kills it: it loses all of its state.
    pub(super) fn kill(&mut self, until: Instant) {
        if let Some(endpoint) = self.control.take() {
            self.network.abort(endpoint);
        }
        self.is_up = false;
        (self.stage, self.run, self.seen, self.sent, self.stop) = (Stage::Idle, RunNumber(0), 0, 0, None);
        self.is_held = false;
        self.told.clear();
        self.dead_until = Some(until);
    }

    /// A trigger: the trigger source returns the event that it makes, if any.
    pub(super) fn trigger(&mut self) -> Option<u64> {
        if self.stage != Stage::Triggering || self.dead_until.is_some() {
            return None;
        }
        self.issued += 1;
        if self.is_held {
            self.paused += 1;
            return None;
        }
        if self.issued.is_multiple_of(BUSY_IN) {
            self.vetoed += 1;
            return None;
        }
        self.seen += 1;
        Some(self.seen)
    }

    /// A trigger that the trigger source let through.
    pub(super) fn sees(&mut self, event: u64) {
        if (Stage::Started..Stage::Stopped).contains(&self.stage) && self.dead_until.is_none() {
            self.seen = self.seen.max(event);
        }
    }

    /// Does what is due; returns the commands that it has obeyed now.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<Command> {
        if self.dead_until.take_if(|until| now >= *until).is_none() && self.dead_until.is_some() {
            return Vec::new();
        }
        if self.control.is_none() && now >= self.retry {
            self.retry = now.after(RETRY);
            self.control = self.network.connect(&self.address).ok();
        }
        self.hear(now);
        let mut obeyed = Vec::new();
        while let Some((_, command)) = self.told.pop_front_if(|(due, _)| now >= *due) {
            if Some(command.kind()) != self.setting.deaf_to {
                self.obey(&command);
                obeyed.push(command);
            }
        }
        self.send();
        if self.is_up && now >= self.status_due {
            self.status_due = now.after(STATUS);
            self.tell();
            let (name, unit) = ("hv/ch0".to_owned(), "V".to_owned());
            self.say(&Word::Report(Reading { time: ropewalk_terms::Utc(0), value: 1500.0, name, unit }));
        }
        self.flush();
        obeyed
    }

    fn hear(&mut self, now: Instant) {
        let mut events = Vec::new();
        self.network.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { .. } => {
                    self.is_up = true;
                    self.incoming.clear();
                    self.outgoing.clear();
                    self.told.clear();
                    let (version, stage, run, is_held) = (self.setting.version, self.stage, self.run, self.is_held);
                    let hello = Hello { version, stage, run, is_held, ..Hello::new(self.source, "simulated") };
                    self.say(&Word::Hello(hello));
                }
                Event::Received { slice, .. } => self.incoming.extend_from_slice(&slice),
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    (self.control, self.is_up) = (None, false);
                    self.retry = now.after(RETRY);
                }
                _ => {}
            }
        }
        while let Some(head) = self.incoming.first_chunk::<FRAME_BYTES>() {
            let frame = Frame::parse(head).expect("run control speaks in frames");
            let length = FRAME_BYTES + frame.body as usize;
            let Some(body) = self.incoming.get(FRAME_BYTES..length) else { break };
            let command = Command::decode(frame.kind, body).expect("run control speaks in commands");
            self.incoming.drain(..length);
            self.told.push_back((now.after(self.setting.delay), command));
        }
    }

    fn obey(&mut self, command: &Command) {
        let run = self.run;
        match command {
            Command::Configure(configure) => {
                if configure.run != run || self.stage == Stage::Idle {
                    (self.run, self.seen, self.sent, self.issued, self.vetoed) = (configure.run, 0, 0, 0, 0);
                    (self.stop, self.stage, self.paused, self.is_held) = (None, Stage::Ready, 0, false);
                }
                self.say(&Word::Ready(self.run));
            }
            Command::Start(start) if start.run == run => {
                if self.stage == Stage::Ready {
                    (self.stage, self.first) = (Stage::Started, start.first);
                }
                self.say(&Word::Started(run));
            }
            Command::Enable(of) if *of == run => {
                if self.stage == Stage::Started {
                    self.stage = Stage::Triggering;
                }
                self.say(&Word::Enabled(run));
            }
            Command::Veto(of) if *of == run => {
                (self.stage, self.is_held) = (self.stage.max(Stage::Vetoed), false);
                let count = |name: &str, count| Named { name: name.to_owned(), count };
                let vetoed = vec![count("busy", self.vetoed), count("paused", self.paused)];
                let (last, issued) = (self.first - 1 + self.seen, self.issued);
                self.say(&Word::Vetoed(Vetoed { run, last, issued, vetoed }));
            }
            Command::Stop(stop) if stop.run == run && self.stage != Stage::Idle => {
                if self.stage == Stage::Stopped {
                    return self.tell_stopped();
                }
                let has_data = self.stage >= Stage::Started;
                self.stop.get_or_insert(stop.last.filter(|_| has_data));
                (self.stage, self.is_held) = (self.stage.max(Stage::Vetoed), false);
            }
            Command::Stop(stop) => {
                self.say(&Word::Stopped(Stopped { run: stop.run, first: None, last: None, sent: 0 }));
            }
            Command::Start(start) => {
                self.say(&Word::Failed(Failed { run: start.run, text: "not configured".to_owned() }));
            }
            Command::Hold(of) if *of == run => {
                self.is_held = (Stage::Started..=Stage::Triggering).contains(&self.stage);
                self.say(&Word::Held(Held { run, last: self.first - 1 + self.seen }));
            }
            Command::Release(of) if *of == run => {
                self.is_held = false;
                self.say(&Word::Released(run));
            }
            Command::Ping => self.tell(),
            Command::Welcome(_)
            | Command::Refuse(_)
            | Command::Enable(_)
            | Command::Veto(_)
            | Command::Hold(_)
            | Command::Release(_) => {}
        }
    }

    /// Sends data slowly; a stop is answered when all data were sent.
    fn send(&mut self) {
        self.steps += 1;
        if self.sent < self.seen && self.steps.is_multiple_of(self.setting.steps_for_event) {
            self.sent += 1;
        }
        let Some(last) = self.stop else { return };
        let wanted = last.unwrap_or(self.seen);
        if self.stage != Stage::Stopped && self.sent >= wanted && self.sent == self.seen {
            self.stage = Stage::Stopped;
            self.tell_stopped();
        }
    }

    fn tell_stopped(&mut self) {
        let event = |number| Some(number).filter(|_| self.sent > 0);
        let (first, last) = (event(self.first), event(self.first - 1 + self.sent));
        self.say(&Word::Stopped(Stopped { run: self.run, first, last, sent: self.sent }));
    }

    fn tell(&mut self) {
        let (run, stage, sent) = (self.run, self.stage, self.sent);
        self.say(&Word::Status(Status { run, stage, sent, bytes: 100 * sent, ..Status::default() }));
    }

    fn say(&mut self, word: &Word) {
        word.encode(&mut self.outgoing);
    }

    fn flush(&mut self) {
        let Some(endpoint) = self.connection() else { return };
        if !self.outgoing.is_empty()
            && let Some(slice) = self.staging.write(&self.outgoing)
            && self.network.send(endpoint, &mut vec![slice]).is_ok()
        {
            self.outgoing.clear();
        }
    }
}
