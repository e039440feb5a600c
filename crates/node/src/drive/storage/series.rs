//! One stream's segments, one after the other: while one is filled, others are being closed.

use super::copies::Ticket;
use super::segment::{Closed, SegmentWriter};
use super::{Acknowledgements, StorageConfig, StorageCounts, Tools, stage};
use ropewalk_io::disk::{Disk, DiskCause, FileToken, NewFile};
use ropewalk_memory::Slice;
use ropewalk_terms::{EventKey, Incarnation, Instant, StreamIndex};
use ropewalk_wire::run_file::{
    BeginOfRun, EndOfRun, IndexEntry, MINOR_VERSION, OPEN_EXTENSION, SegmentHeader, SegmentName,
};
use std::collections::VecDeque;

/// The segments of one stream.
#[derive(Debug)]
pub(super) struct Series {
    /// That of the newest segment.
    header: SegmentHeader,
    /// Which stream it is.
    index: StreamIndex,
    /// How a segment's file is begun.
    how: NewFile,
    current: Option<SegmentWriter>,
    closing: VecDeque<SegmentWriter>,
    spare: Vec<SegmentWriter>,
    last: Option<EventKey>,
    finishing: bool,
    ended: bool,
    pub(super) counts: StorageCounts,
}

impl Series {
    pub(super) fn new(config: &StorageConfig, index: StreamIndex) -> Self {
        let stream = &config.streams[usize::from(index.0)];
        let header = SegmentHeader {
            run: ropewalk_terms::RunNumber(0),
            segment: 0,
            writer: config.writer,
            incarnation: Incarnation(0),
            start: config.epoch,
            acknowledgement: config.level,
            minor: MINOR_VERSION,
            stream: stream.name,
            selected: stream.selected,
            sources: config.sources.clone(),
        };
        Self {
            header,
            index,
            how: config.new_file(index),
            current: None,
            closing: VecDeque::with_capacity(2),
            spare: (0..2).map(|_| SegmentWriter::new(config.batches(index))).collect(),
            last: None,
            finishing: false,
            ended: false,
            counts: StorageCounts::default(),
        }
    }

    /// The run begins for this life of the node: segments are numbered behind those in `names`, of an earlier life.
    pub(super) fn begin<D: Disk>(&mut self, tools: &Tools<D>, incarnation: Incarnation, names: &[String]) {
        let header = &mut self.header;
        (header.run, header.incarnation) = (tools.run, incarnation);
        let highest = (names.iter())
            .filter_map(|name| name.strip_suffix(OPEN_EXTENSION).unwrap_or(name).parse::<SegmentName>().ok())
            .filter(|name| (name.writer, name.stream) == (header.writer, header.stream))
            .map(|name| name.segment)
            .max();
        header.segment = highest.unwrap_or(0);
        (self.finishing, self.ended) = (false, false);
    }

    /// Makes sure of a segment with room.
    pub(super) fn ready<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) -> bool {
        if let Some(segment) = &self.current {
            if !segment.is_due(now, &tools.config) {
                return segment.gathered() < tools.config.batch_bytes;
            }
            if !self.close_current(now, tools) {
                return false;
            }
        }
        self.open(now, tools)
    }

    /// Adds an event's record to the segment that [`Series::ready`] made sure of.
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        key: EventKey,
        index: IndexEntry,
        length: u64,
        pieces: &mut Vec<Slice>,
    ) {
        let Some(segment) = &mut self.current else { return pieces.clear() };
        segment.add(ticket, index, length, pieces);
        // Another event manager goes on with a run that had ended: it ends once more, behind this event.
        (self.finishing, self.ended) = (false, false);
        self.last = self.last.max(Some(key));
    }

    /// Adds a record that is no event.
    pub(super) fn add_bytes(&mut self, length: u64, pieces: &mut Vec<Slice>) {
        match &mut self.current {
            Some(segment) => segment.add_bytes(length, pieces),
            None => pieces.clear(),
        }
    }

    fn open<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) -> bool {
        let Some(mut segment) = self.spare.pop() else { return false };
        let SegmentHeader { run, writer, stream, segment: before, .. } = self.header;
        let name = SegmentName { run, writer, stream, segment: before + 1 };
        (self.header.segment, self.header.start) = (name.segment, tools.utc(now));
        let begin = BeginOfRun { run, start: tools.started, text: String::new() };
        tools.frame.clear();
        let encoded = self.header.encode(&mut tools.frame).and_then(|()| begin.encode(&mut tools.frame));
        if encoded.is_err() || !stage(&mut tools.staging, &tools.frame, &mut tools.pieces) {
            tools.pieces.clear();
            self.header.segment = before;
            self.spare.push(segment);
            return false;
        }
        segment.open(tools, now, name, (self.index, self.how));
        segment.add_bytes(tools.frame.len() as u64, &mut tools.pieces);
        self.current = Some(segment);
        true
    }

    /// Puts end-of-run (at the end) and footer behind the last record; false where there is no room for them yet.
    fn close_current<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) -> bool {
        let utc = tools.utc(now);
        let Some(segment) = &mut self.current else { return true };
        tools.frame.clear();
        let mut encoded = Ok(());
        if self.finishing {
            let events = self.counts.events + segment.pending_events();
            let end = EndOfRun { run: tools.run, end: utc, last: self.last, events, text: String::new() };
            encoded = end.encode(&mut tools.frame);
        }
        let offset = segment.length() + tools.frame.len() as u64;
        encoded = encoded.and_then(|()| segment.index.encode(&mut tools.frame, offset, utc, false));
        if encoded.is_err() || !stage(&mut tools.staging, &tools.frame, &mut tools.pieces) {
            tools.pieces.clear();
            return false;
        }
        segment.add_bytes(tools.frame.len() as u64, &mut tools.pieces);
        segment.close();
        self.closing.extend(self.current.take());
        true
    }

    /// Hands gathered batches to the disk, as many as it may have.
    pub(super) fn flush<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) {
        for segment in self.segments_mut() {
            segment.flush(&mut tools.disk, now, &tools.config);
        }
    }

    /// No event comes any more: the last segment gets its end-of-run record and is closed.
    pub(super) fn finish<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) {
        self.finishing = true;
        if self.ended {
            return;
        }
        // Also a stream without events leaves a file that says so.
        if self.current.is_none() && !self.open(now, tools) {
            return;
        }
        self.ended = self.close_current(now, tools);
        self.flush(now, tools);
    }

    /// All its segments are closed and renamed.
    pub(super) fn is_closed(&self) -> bool {
        self.ended && self.current.is_none() && self.closing.is_empty()
    }

    /// The oldest segment that was closed, once.
    pub(super) fn take_closed(&mut self) -> Option<Closed> {
        let closed = self.closing.front_mut()?.take_closed()?;
        self.counts.segments += 1;
        self.spare.extend(self.closing.pop_front());
        Some(closed)
    }

    /// The disk has done the file's piece of work; false where the file is not of this stream.
    pub(super) fn completed(
        &mut self,
        file: FileToken,
        config: &StorageConfig,
        acknowledgements: &mut Acknowledgements<'_>,
    ) -> bool {
        let Self { closing, current, counts, .. } = self;
        let Some(segment) = closing.iter_mut().chain(current).find(|segment| segment.is_of(file)) else { return false };
        segment.completed(config, counts, acknowledgements);
        true
    }

    /// The segment that this file is, and the counts of the stream.
    pub(super) fn segment_of(&mut self, file: FileToken) -> Option<(&mut SegmentWriter, &mut StorageCounts)> {
        let Self { closing, current, counts, .. } = self;
        let segment = closing.iter_mut().chain(current).find(|segment| segment.is_of(file))?;
        Some((segment, counts))
    }

    /// Why the disk refuses the oldest work that it refuses, and since when.
    pub(super) fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.segments().find_map(SegmentWriter::refusal)
    }

    /// Whether the disk has something of it to do.
    pub(super) fn is_writing(&self) -> bool {
        self.segments().any(SegmentWriter::is_writing)
    }

    /// When refused work is to be offered again.
    pub(super) fn retry(&self) -> Option<Instant> {
        self.segments().filter_map(SegmentWriter::retry).min()
    }

    /// Lets go of what the disk has not taken. What is with the disk this very moment ends as it ends.
    pub(super) fn give_up(&mut self, acknowledgements: &mut Acknowledgements<'_>) {
        for _ in 0..self.closing.len() {
            let Some(mut segment) = self.closing.pop_front() else { return };
            if segment.give_up(&mut self.counts, acknowledgements) {
                self.spare.push(segment);
            } else {
                self.closing.push_back(segment);
            }
        }
        if let Some(mut segment) = self.current.take() {
            if segment.give_up(&mut self.counts, acknowledgements) {
                self.spare.push(segment);
            } else {
                self.current = Some(segment);
            }
        }
    }

    /// Nothing more is written: what is not closed stays open.
    pub(super) const fn end_as_it_is(&mut self) {
        self.ended = true;
    }

    /// Events that the disk has not taken yet.
    #[cfg(test)]
    pub(super) fn pending_events(&self) -> u64 {
        self.segments().map(SegmentWriter::pending_events).sum()
    }

    fn segments(&self) -> impl Iterator<Item = &SegmentWriter> {
        self.closing.iter().chain(&self.current)
    }

    fn segments_mut(&mut self) -> impl Iterator<Item = &mut SegmentWriter> {
        self.closing.iter_mut().chain(&mut self.current)
    }
}
