//! What filters count: added up by lumisection, and handed to whoever keeps it.

use super::link::RecordKeeper;
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Counted, Fills, HistogramShape, LumisectionRecord, Monitoring};
use ropewalk_terms::{RunNumber, StreamSet, TriggerBits, Verdict};

/// The counts of a builder unit, and who keeps them. Where nobody does nothing is counted.
pub(super) struct Monitor {
    monitoring: Monitoring,
    /// Where the histograms of the filter of this thread are found.
    here: Vec<Option<u16>>,
    keeper: Option<Box<dyn RecordKeeper>>,
    run: RunNumber,
    /// Closed, and nobody had room for it.
    refused: Option<LumisectionRecord>,
}

impl Monitor {
    /// For so many streams.
    pub(super) fn new(streams: usize) -> Self {
        let (here, keeper, refused) = (Vec::new(), None, None);
        Self { monitoring: Monitoring::new(streams), here, keeper, run: RunNumber::default(), refused }
    }

    pub(super) fn set_keeper(&mut self, keeper: Box<dyn RecordKeeper>) {
        self.keeper = Some(keeper);
    }

    /// What a filter unit declares: where that is found.
    pub(super) fn declare(&mut self, shapes: &[HistogramShape]) -> Vec<Option<u16>> {
        self.monitoring.declare(shapes)
    }

    /// What the filter of this thread declares.
    pub(super) fn declare_here(&mut self, shapes: &[HistogramShape]) {
        self.here = self.monitoring.declare(shapes);
    }

    /// A run begins.
    pub(super) fn begin(&mut self, run: RunNumber) {
        self.monitoring.restart();
        (self.run, self.refused) = (run, None);
    }

    /// An event was decided, or no decision could be had of it.
    pub(super) fn decided(
        &mut self,
        event: &EventView<'_>,
        verdict: Verdict,
        triggers: TriggerBits,
        streams: StreamSet,
    ) {
        if self.keeper.is_some() {
            self.monitoring.decided(&Counted { lumisection: event.lumisection, verdict, triggers, streams });
        }
    }

    /// What came with a decision that counts, of a filter unit whose histograms are found there.
    pub(super) fn fill(&mut self, event: &EventView<'_>, histograms: &[Option<u16>], fills: &Fills) {
        if self.keeper.is_some() {
            self.monitoring.fill(event.lumisection, histograms, fills);
        }
    }

    /// The same, of the filter of this thread.
    pub(super) fn fill_here(&mut self, event: &EventView<'_>, fills: &Fills) {
        if self.keeper.is_some() {
            self.monitoring.fill(event.lumisection, &self.here, fills);
        }
    }

    /// No more events of this lumisection follow.
    pub(super) fn close(&mut self, lumisection: u32) {
        if self.keeper.is_some() {
            self.monitoring.close(lumisection);
            self.hand_over();
        }
    }

    /// The run has ended. What is open then is of a run that was ended by force.
    pub(super) fn end(&mut self) {
        self.monitoring.close_all();
        self.hand_over();
    }

    /// Hands over what is closed, as far as there is room.
    pub(super) fn hand_over(&mut self) {
        let Some(keeper) = &mut self.keeper else { return };
        while let Some(record) = self.refused.take().or_else(|| self.monitoring.next_closed()) {
            if let Err(record) = keeper.keep(self.run, record) {
                self.refused = Some(record);
                break;
            }
        }
        while let Some(record) = keeper.give_back() {
            self.monitoring.give_back(record);
        }
    }
}
