//! The state of the screen, and the effect of keys. It reads nothing, draws nothing and has no clock.

use super::draw::{Entry, Incident, Live, Source, SourceRates};
use ratatui::crossterm::event::KeyCode;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Rates that the curve of the last minutes has, one for each view.
const CURVE: usize = 240;
/// Entries of the journal that are kept.
const MOST_ENTRIES: usize = 500;
/// Older values are marked: they may be wrong by now.
const OLD: Duration = Duration::from_secs(3);
/// Rows that a page key moves.
const PAGE_ROWS: isize = 15;

/// What the lower part shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Page {
    /// Front ends.
    #[default]
    Sources,
    /// Readout and builder units.
    Nodes,
    /// What became of every fragment.
    Ledger,
    /// What went wrong.
    Incidents,
    /// What happened.
    Journal,
}

impl Page {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 5] = [Self::Sources, Self::Nodes, Self::Ledger, Self::Incidents, Self::Journal];

    /// The title.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Nodes => "units",
            Self::Ledger => "ledger",
            Self::Incidents => "incidents",
            Self::Journal => "journal",
        }
    }

    /// Its place among all.
    pub(crate) fn place(self) -> usize {
        Self::ALL.iter().position(|&page| page == self).unwrap_or(0)
    }

    fn beside(self, step: usize) -> Self {
        Self::ALL[(self.place() + step) % Self::ALL.len()]
    }
}

/// What sources are sorted by.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sorting {
    #[default]
    Id,
    Rate,
    Bytes,
    Missing,
    Lost,
    Errors,
    HeldBack,
}

impl Sorting {
    const ALL: [Self; 7] = [Self::Id, Self::Rate, Self::Bytes, Self::Missing, Self::Lost, Self::Errors, Self::HeldBack];

    /// The head of the column.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Id => "source",
            Self::Rate => "rate / s",
            Self::Bytes => "bytes / s",
            Self::Missing => "missing",
            Self::Lost => "lost",
            Self::Errors => "errors",
            Self::HeldBack => "held back",
        }
    }

    fn next(self) -> Self {
        let place = Self::ALL.iter().position(|&sorting| sorting == self).unwrap_or(0);
        Self::ALL[(place + 1) % Self::ALL.len()]
    }
}

/// Something that came from the server.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum News {
    /// How everything stands.
    Live(Box<Live>),
    /// Further entries of the journal.
    Journal(Vec<Entry>),
    /// All incidents, the latest first.
    Incidents(Vec<Incident>),
    /// The server does not answer, and why.
    Away(String),
}

/// Whether to continue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Continue.
    Stay,
    /// The user quits.
    Quit,
}

/// What is on the screen.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Screen {
    /// Where was asked.
    pub(crate) url: String,
    pub(crate) live: Live,
    /// Why the server does not answer; `None` while it does.
    pub(crate) away: Option<String>,
    /// Events per second, the newest last.
    pub(crate) curve: VecDeque<u64>,
    /// The newest first.
    pub(crate) journal: VecDeque<Entry>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) page: Page,
    pub(crate) sorting: Sorting,
    /// The greatest comes first.
    pub(crate) is_down: bool,
    /// The source that is picked: it stays so wherever sorting puts it.
    pub(crate) picked: Option<u32>,
    /// The row that is picked on other pages.
    pub(crate) row: usize,
    pub(crate) has_detail: bool,
    pub(crate) has_help: bool,
}

impl Screen {
    /// Before the first answer.
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Something came.
    pub(crate) fn hear(&mut self, news: News) {
        if !matches!(news, News::Away(_)) {
            self.away = None;
        }
        match news {
            News::Live(live) => {
                // A server that was started anew counts anew.
                if live.last_entry < self.live.last_entry {
                    self.journal.clear();
                }
                let rate = live.rates.as_ref().map_or(0.0, |rates| rates.events_hz);
                self.curve.push_back(rate as u64);
                while self.curve.len() > CURVE {
                    self.curve.pop_front();
                }
                self.live = *live;
            }
            News::Journal(entries) => {
                entries.into_iter().for_each(|entry| self.journal.push_front(entry));
                self.journal.truncate(MOST_ENTRIES);
            }
            News::Incidents(incidents) => self.incidents = incidents,
            News::Away(why) => self.away = Some(why),
        }
    }

    /// Nothing came for this long.
    pub(crate) fn grow_old(&mut self, age: Duration) {
        if age > OLD && self.away.is_none() {
            self.away = Some(format!("this screen is more than {} s old", OLD.as_secs()));
        }
    }

    /// A key was pressed.
    pub(crate) fn press(&mut self, key: KeyCode) -> Next {
        match key {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc if !self.has_detail && !self.has_help => return Next::Quit,
            KeyCode::Esc => (self.has_detail, self.has_help) = (false, false),
            KeyCode::Char('?' | 'h') => self.has_help = !self.has_help,
            KeyCode::Enter => self.has_detail = self.page == Page::Sources && !self.has_detail,
            KeyCode::Tab | KeyCode::Right => self.turn(self.page.beside(1)),
            KeyCode::BackTab | KeyCode::Left => self.turn(self.page.beside(Page::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='5') => self.turn(Page::ALL[digit as usize - '1' as usize]),
            KeyCode::Char('s') => {
                self.sorting = self.sorting.next();
                // Counts begin with the greatest; ids with the lowest.
                self.is_down = self.sorting != Sorting::Id;
            }
            KeyCode::Char('r') => self.is_down = !self.is_down,
            KeyCode::Down => self.step(1),
            KeyCode::Up => self.step(-1),
            KeyCode::PageDown => self.step(PAGE_ROWS),
            KeyCode::PageUp => self.step(-PAGE_ROWS),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            _ => {}
        }
        Next::Stay
    }

    fn turn(&mut self, page: Page) {
        (self.page, self.row, self.has_detail) = (page, 0, false);
    }

    fn step(&mut self, rows: isize) {
        let moved = |row: usize, count: usize| row.saturating_add_signed(rows).min(count.saturating_sub(1));
        if self.page == Page::Sources {
            let sorted = self.sources();
            let ids: Vec<u32> = sorted.iter().map(|(source, _)| source.id).collect();
            self.picked = ids.get(moved(self.picked_row(&ids), ids.len())).copied();
            return;
        }
        let count = match self.page {
            Page::Nodes => self.live.nodes.len(),
            Page::Incidents => self.incidents.len(),
            _ => self.journal.len(),
        };
        self.row = moved(self.row, count);
    }

    /// The row of the selected source among these ids; the first row if none is selected.
    pub(crate) fn picked_row(&self, ids: &[u32]) -> usize {
        self.picked.and_then(|picked| ids.iter().position(|&id| id == picked)).unwrap_or(0)
    }

    /// Sources in their order, each with how fast it is.
    pub(crate) fn sources(&self) -> Vec<(&Source, SourceRates)> {
        let known = self.live.rates.as_ref().map_or(&[][..], |rates| &rates.sources);
        let rates: BTreeMap<u32, SourceRates> = known.iter().map(|rates| (rates.source, *rates)).collect();
        let rates_of = |id: u32| rates.get(&id).copied().unwrap_or_default();
        let mut sorted: Vec<_> = self.live.sources.iter().map(|source| (source, rates_of(source.id))).collect();
        let value = |(source, rates): &(&Source, SourceRates)| match self.sorting {
            Sorting::Id => f64::from(source.id),
            Sorting::Rate => rates.fragments_hz,
            Sorting::Bytes => rates.bytes_per_second,
            Sorting::Missing => source.missing() as f64,
            Sorting::Lost => source.lost as f64,
            Sorting::Errors => source.errors() as f64,
            Sorting::HeldBack => rates.back_pressure_share,
        };
        // Equal ones stay in the order of their ids, in both directions.
        sorted.sort_by(|one, other| {
            let order = value(one).total_cmp(&value(other));
            if self.is_down { order.reverse() } else { order }.then(one.0.id.cmp(&other.0.id))
        });
        sorted
    }
}
