//! What `ropewalk top` shows: the state that it has seen, as lines and tables.

use super::screen::{Page, Screen, Sorting};
use crate::render::{grouped, time_of_day};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Gauge, Paragraph, Row, Sparkline, Table, TableState, Tabs, Wrap};
use ropewalk_config::quantity::Bytes;
use ropewalk_monitor::alarms::built_in;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything at once.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Live {
    /// Nanoseconds since 1970 UTC.
    pub(crate) at_ns: i64,
    pub(crate) state: String,
    pub(crate) task: Option<String>,
    pub(crate) trouble: Option<String>,
    pub(crate) run: Option<u32>,
    pub(crate) age_s: f64,
    pub(crate) last_entry: u64,
    pub(crate) ledger: Ledger,
    pub(crate) sources: Vec<Source>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) rates: Option<Rates>,
    pub(crate) limit: Option<Limited>,
    pub(crate) quality: Quality,
    pub(crate) alarms: Vec<Alarm>,
    pub(crate) shelved: Vec<Alarm>,
    pub(crate) disk_free_bytes: Option<u64>,
    pub(crate) disk_left_s: Option<u64>,
}

/// The balance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ledger {
    pub(crate) fragments: BTreeMap<String, Value>,
    pub(crate) events: BTreeMap<String, Value>,
    pub(crate) pools: BTreeMap<String, Value>,
    pub(crate) unbalanced: Vec<Unbalanced>,
}

/// The quality of the data.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Quality {
    pub(crate) state: String,
    pub(crate) is_current: bool,
    pub(crate) sentence: String,
}

/// An equation that does not hold now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub(crate) struct Unbalanced {
    pub(crate) equation: String,
}

/// A front end.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Source {
    pub(crate) id: u32,
    pub(crate) name: Option<String>,
    pub(crate) unit: Option<String>,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) corrupt: u64,
    pub(crate) crc_errors: u64,
    pub(crate) frames_missing: u64,
    pub(crate) missing: BTreeMap<String, u64>,
    pub(crate) last_event: Option<u64>,
    /// Events by which it is behind the others of its readout unit.
    pub(crate) behind: Option<u64>,
    /// Seconds since something came of it.
    pub(crate) silent_s: Option<f64>,
    pub(crate) has_ended: bool,
    pub(crate) is_optional: bool,
    /// All other fields of the source.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Source {
    /// Fragments that arrived damaged or were lost.
    pub(crate) const fn errors(&self) -> u64 {
        self.crc_errors + self.frames_missing + self.corrupt
    }

    /// Its name, with its id.
    fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| self.id.to_string(), |name| format!("{name} ({})", self.id))
    }

    /// Fragments that never came.
    pub(crate) fn missing(&self) -> u64 {
        self.missing.values().sum()
    }
}

/// A readout or builder unit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) connected: bool,
    pub(crate) silent: bool,
}

/// How fast everything was during the last second.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rates {
    pub(crate) events_hz: f64,
    pub(crate) bytes_in_per_second: f64,
    pub(crate) bytes_to_disk_per_second: f64,
    pub(crate) live_share: f64,
    pub(crate) sources: Vec<SourceRates>,
    pub(crate) nodes: Vec<NodeRates>,
}

/// How fast a source is.
#[derive(Copy, Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SourceRates {
    pub(crate) source: u32,
    pub(crate) fragments_hz: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) back_pressure_share: f64,
}

/// How fast, full and busy a node is; shares are parts of the time or of its room, 0 to 1.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeRates {
    pub(crate) node: String,
    pub(crate) rate_hz: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) pool_share: Option<f64>,
    pub(crate) busy_share: Option<f64>,
    pub(crate) filter_busy_share: Option<f64>,
    pub(crate) disk_busy_share: Option<f64>,
}

/// What limits the run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Limited {
    pub(crate) sentence: String,
}

/// An alarm to show to the operator.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Alarm {
    pub(crate) name: String,
    pub(crate) severity: String,
    pub(crate) state: String,
    pub(crate) sentence: String,
    pub(crate) run: Option<u32>,
    pub(crate) known_by: Option<String>,
}

/// An entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) at_ns: i64,
    pub(crate) kind: String,
    pub(crate) run: Option<u32>,
    pub(crate) text: String,
}

/// What went wrong, of one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Incident {
    pub(crate) cause: String,
    pub(crate) subject: String,
    pub(crate) text: String,
    pub(crate) count: u64,
    /// Nanoseconds since 1970 UTC.
    pub(crate) last_ns: i64,
}

/// What went wrong, the latest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Incidents {
    pub(crate) incidents: Vec<Incident>,
}

/// Lines that alarms have, whether there are any or not: nothing jumps.
const ALARM_LINES: u16 = 3;
/// The keys that the user may press, and what each does.
const KEYS: [(&str, &str); 9] = [
    ("Tab, 1-5", "the next page, or that page"),
    ("up, down, PgUp, PgDn, Home, End", "another row"),
    ("s", "sort sources by the next column"),
    ("r", "the other way round"),
    ("Enter", "everything about a source"),
    ("? or h", "this help"),
    ("Ctrl-L", "draw everything anew"),
    ("Esc", "close what is open, or leave"),
    ("q, Ctrl-C", "leave"),
];
/// Of their room or time, from which on something is busy, and nearly full.
const BUSY: f64 = 0.5;
const FULL: f64 = 0.9;

/// Seconds without anything after which a source is shown as silent.
const SILENT_SECONDS: f64 = 1.0;

const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const WAIT: Style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
const GOOD: Style = Style::new().fg(Color::Green).add_modifier(Modifier::BOLD);
const QUIET: Style = Style::new().fg(Color::DarkGray);

/// Draws all of it.
pub(crate) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let lines = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(ALARM_LINES),
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [head, quality, limit, alarms, numbers, tabs, page, foot] = Layout::vertical(lines).areas(frame.area());
    frame.render_widget(Paragraph::new(head_line(screen)), head);
    frame.render_widget(Paragraph::new(quality_line(screen)), quality);
    frame.render_widget(Paragraph::new(limit_line(screen)).bold(), limit);
    frame.render_widget(Paragraph::new(alarm_lines(&screen.live)), alarms);
    draw_numbers(frame, screen, numbers);
    draw_tabs(frame, screen, tabs);
    draw_page(frame, screen, page);
    frame.render_widget(Paragraph::new("Tab page  s sort  r reverse  Enter detail  ? help  q quit").style(QUIET), foot);
    if screen.has_detail {
        draw_detail(frame, screen);
    }
    if screen.has_help {
        draw_help(frame);
    }
}

fn head_line(screen: &Screen) -> Line<'_> {
    let live = &screen.live;
    let run = live.run.map_or_else(|| "no run".to_owned(), |run| format!("run {run}"));
    if let Some(why) = &screen.away {
        return Line::styled(format!("Ropewalk  {run}  NO ANSWER: {why}"), BAD.add_modifier(Modifier::REVERSED));
    }
    let style = match live.state.as_str() {
        "running" => GOOD,
        "error" => BAD,
        _ => WAIT,
    };
    let task = live.task.as_ref().map_or_else(String::new, |task| format!(" ({task})"));
    let mut line = Line::from(vec![
        Span::raw(format!("Ropewalk  {run}  ")),
        Span::styled(format!("{}{task}", live.state.to_uppercase()), style),
        Span::raw(format!("  {}  ", span(live.age_s))),
        Span::styled(screen.url.as_str(), QUIET),
    ]);
    if let Some(trouble) = &live.trouble {
        line.push_span(Span::styled(format!("  {trouble}"), BAD));
    }
    line
}

fn quality_line(screen: &Screen) -> Line<'_> {
    let quality = &screen.live.quality;
    let style = match (quality.state.as_str(), quality.is_current) {
        ("good", _) => GOOD,
        ("incomplete" | "doubtful", true) => BAD,
        ("incomplete" | "doubtful", false) => WAIT,
        _ => QUIET,
    };
    Line::styled(format!("data: {}", quality.sentence), style)
}

fn limit_line(screen: &Screen) -> &str {
    screen.live.limit.as_ref().map_or("what limits the run is not known yet", |limit| &limit.sentence)
}

fn alarm_lines(live: &Live) -> Vec<Line<'_>> {
    let alarms = &live.alarms;
    let names: Vec<_> = live.shelved.iter().map(|alarm| alarm.name.as_str()).collect();
    let shelved = format!("{} shelved: {}", names.len(), names.join(", "));
    if alarms.is_empty() {
        return vec![Line::styled(if names.is_empty() { "no alarm".to_owned() } else { shelved }, QUIET)];
    }
    let line = |alarm: &Alarm| {
        let style = match alarm.severity.as_str() {
            "critical" => BAD,
            "warning" => WAIT,
            _ => Style::new(),
        };
        let known = alarm.known_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let said = if alarm.sentence.is_empty() { alarm.name.replace('_', " ") } else { alarm.sentence.clone() };
        let run = alarm.run.filter(|_| alarm.run != live.run).map_or_else(String::new, |run| format!(" in run {run}"));
        // The manual has no page for rules of a configuration.
        let is_built_in = built_in().iter().any(|rule| rule.name == alarm.name);
        let manual = if is_built_in { format!("; manual: {}", alarm.name) } else { String::new() };
        Line::styled(format!("{}: {said} ({}{run}{known}{manual})", alarm.severity, alarm.state), style)
    };
    let mut lines: Vec<Line<'_>> = alarms.iter().map(line).collect();
    let more = lines.len().saturating_sub(usize::from(ALARM_LINES));
    if more > 0 {
        lines.truncate(usize::from(ALARM_LINES) - 1);
        let behind = if names.is_empty() { String::new() } else { format!("; {} shelved", names.len()) };
        lines.push(Line::styled(format!("and {} more{behind}", more + 1), BAD));
    } else if !names.is_empty() {
        lines.truncate(usize::from(ALARM_LINES) - 1);
        let rest = alarms.len() - lines.len();
        let more = if rest > 0 { format!("and {rest} more; ") } else { String::new() };
        lines.push(Line::styled(format!("{more}{shelved}"), if rest > 0 { BAD } else { QUIET }));
    }
    lines
}

/// Hours, minutes and seconds.
fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn bandwidth(bytes_per_second: f64) -> String {
    format!("{}/s", Bytes(bytes_per_second as u64))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn count(numbers: &BTreeMap<String, Value>, name: &str) -> u64 {
    numbers.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// The colour for a fill level, which the text shows too.
fn fullness(share: f64) -> Style {
    if share > FULL {
        BAD
    } else if share > BUSY {
        WAIT
    } else {
        GOOD
    }
}

fn draw_numbers(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let [left, right] = Layout::horizontal([Constraint::Min(48), Constraint::Percentage(40)]).areas(area);
    let live = &screen.live;
    let none = Rates::default();
    let rates = live.rates.as_ref().unwrap_or(&none);
    let events = &live.ledger.events;
    let lost = count(&live.ledger.fragments, "lost");
    let disk = live.disk_free_bytes.map_or_else(|| "-".to_owned(), |free| Bytes(free).to_string());
    let left_for = live.disk_left_s.filter(|seconds| *seconds > 0);
    let left_for = left_for.map_or_else(String::new, |seconds| format!(" for {}", span(seconds as f64)));
    let lines = vec![
        Line::from(vec![
            Span::styled(format!("{:>11} events/s", grouped(rates.events_hz as u64)), Modifier::BOLD),
            format!("   in {}   to disk ", bandwidth(rates.bytes_in_per_second)).into(),
            bandwidth(rates.bytes_to_disk_per_second).into(),
        ]),
        Line::from(format!(
            "{:>11} built      live time {}   in flight {}",
            grouped(count(events, "built") + count(events, "incomplete_emitted")),
            percent(live.rates.as_ref().map(|rates| rates.live_share)),
            grouped(count(events, "in_flight")),
        )),
        Line::from(vec![
            Span::styled(format!("{:>11} lost       ", grouped(lost)), if lost > 0 { BAD } else { Style::new() }),
            format!("disk {disk}{left_for}").into(),
        ]),
    ];
    frame.render_widget(Paragraph::new(lines), left);
    let [curve, pool] = Layout::vertical([Constraint::Length(3), Constraint::Length(1)]).areas(right);
    // As many as there is room for, the newest at the right.
    let shown: Vec<u64> = screen.curve.iter().rev().take(usize::from(curve.width)).rev().copied().collect();
    frame.render_widget(Sparkline::default().data(shown).style(GOOD), curve);
    let held = count(&live.ledger.pools, "held") as f64 / count(&live.ledger.pools, "blocks").max(1) as f64;
    let gauge = Gauge::default().ratio(held.clamp(0.0, 1.0)).label(format!("buffers {}", percent(Some(held))));
    frame.render_widget(gauge.gauge_style(fullness(held)), pool);
}

fn draw_tabs(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let title = |page: &Page| {
        let number = page.place() + 1;
        match page {
            Page::Sources => format!("{number} {} ({})", page.title(), screen.live.sources.len()),
            Page::Incidents if !screen.incidents.is_empty() => {
                format!("{number} {} ({})", page.title(), screen.incidents.len())
            }
            _ => format!("{number} {}", page.title()),
        }
    };
    let tabs = Tabs::new(Page::ALL.iter().map(title)).select(screen.page.place());
    frame.render_widget(tabs.highlight_style(Modifier::REVERSED), area);
}

fn draw_page(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    match screen.page {
        Page::Sources => draw_sources(frame, screen, area),
        Page::Nodes => draw_nodes(frame, screen, area),
        Page::Ledger => frame.render_widget(Paragraph::new(ledger_lines(screen)).wrap(Wrap { trim: false }), area),
        Page::Incidents => {
            let row = |one: &Incident| {
                let cells = [
                    time_of_day(one.last_ns),
                    grouped(one.count),
                    one.cause.clone(),
                    one.subject.clone(),
                    one.text.clone(),
                ];
                Row::new(cells)
            };
            let widths = [9, 10, 22, 14].map(Constraint::Length).into_iter().chain([Constraint::Min(20)]);
            let table = Table::new(screen.incidents.iter().map(row), widths);
            table_at(frame, table.header(head(&["last", "count", "what", "where", ""])), screen.row, area);
        }
        Page::Journal => {
            let row = |entry: &Entry| {
                let run = entry.run.map_or_else(String::new, |run| format!("run {run}"));
                let row = Row::new([time_of_day(entry.at_ns), entry.kind.clone(), run, entry.text.clone()]);
                if matches!(entry.kind.as_str(), "fault" | "incident") { row.style(BAD) } else { row }
            };
            let widths = [9, 9, 9].map(Constraint::Length).into_iter().chain([Constraint::Min(20)]);
            let table = Table::new(screen.journal.iter().map(row), widths);
            table_at(frame, table.header(head(&["UTC", "kind", "run", ""])), screen.row, area);
        }
    }
}

fn head(names: &[&'static str]) -> Row<'static> {
    Row::new(names.iter().copied()).style(QUIET)
}

fn table_at(frame: &mut Frame<'_>, table: Table<'_>, row: usize, area: Rect) {
    let mut state = TableState::default().with_selected(Some(row));
    frame.render_stateful_widget(table.row_highlight_style(Modifier::REVERSED), area, &mut state);
}

fn draw_sources(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let sources = screen.sources();
    let ids: Vec<u32> = sources.iter().map(|(source, _)| source.id).collect();
    let rows = sources.iter().map(|(source, rates)| {
        let row = Row::new([
            source.label(),
            grouped(rates.fragments_hz as u64),
            Bytes(rates.bytes_per_second as u64).to_string(),
            grouped(source.received),
            source.behind.map_or_else(|| "-".to_owned(), grouped),
            grouped(source.missing()),
            grouped(source.lost),
            grouped(source.errors()),
            percent(Some(rates.back_pressure_share)),
            source.unit.clone().unwrap_or_default(),
        ]);
        // One that is slow does not send in each second.
        let may_stay_away = source.is_optional && source.received == 0;
        let is_silent = !may_stay_away
            && rates.fragments_hz == 0.0
            && source.silent_s.is_none_or(|seconds| seconds > SILENT_SECONDS);
        if is_silent && !source.has_ended && screen.live.state == "running" {
            row.style(BAD)
        } else if source.lost + source.errors() > 0 {
            row.style(WAIT)
        } else {
            row
        }
    });
    let titles = [
        Sorting::Id.title(),
        Sorting::Rate.title(),
        Sorting::Bytes.title(),
        "received",
        "behind",
        Sorting::Missing.title(),
        Sorting::Lost.title(),
        Sorting::Errors.title(),
        Sorting::HeldBack.title(),
        "unit",
    ];
    let sign = if screen.is_down { "▼" } else { "▲" };
    let mark = |title: &str| if title == screen.sorting.title() { format!("{title} {sign}") } else { title.to_owned() };
    let widths = [16, 10, 10, 13, 13, 9, 9, 9, 11, 14].map(Constraint::Length);
    let table = Table::new(rows, widths).header(Row::new(titles.map(mark)).style(QUIET));
    table_at(frame, table, screen.picked_row(&ids), area);
}

fn draw_nodes(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let known = screen.live.rates.as_ref().map_or(&[][..], |rates| &rates.nodes);
    let rows = screen.live.nodes.iter().map(|node| {
        let rates = known.iter().find(|rates| rates.node == node.name).cloned().unwrap_or_default();
        let row = Row::new([
            node.label.clone(),
            if !node.connected {
                "AWAY"
            } else if node.silent {
                "HANGS"
            } else {
                "connected"
            }
            .to_owned(),
            grouped(rates.rate_hz as u64),
            bandwidth(rates.bytes_per_second),
            percent(rates.pool_share),
            percent(rates.busy_share),
            percent(rates.filter_busy_share),
            percent(rates.disk_busy_share),
        ]);
        if node.connected && !node.silent { row } else { row.style(BAD) }
    });
    let widths = [18, 11, 13, 14, 9, 8, 8, 8].map(Constraint::Length);
    let names = ["unit", "", "rate / s", "bytes", "buffers", "busy", "filter", "disk"];
    table_at(frame, Table::new(rows, widths).header(head(&names)), screen.row, area);
}

fn ledger_lines(screen: &Screen) -> Vec<Line<'_>> {
    let ledger = &screen.live.ledger;
    let equation = |numbers: &BTreeMap<String, Value>, sum: &str, parts: &[&str]| {
        let part = |name: &&str| format!("{} {}", grouped(count(numbers, name)), name.replace('_', " "));
        let parts: Vec<String> = parts.iter().map(part).collect();
        Line::from(format!("{:>15} {sum} = {}", grouped(count(numbers, sum)), parts.join(" + ")))
    };
    let fragments = ["in_complete_events", "in_incomplete_events", "lost", "in_flight"];
    let mut lines = vec![
        Line::styled("fragments", QUIET),
        equation(&ledger.fragments, "received", &fragments),
        Line::styled("events", QUIET),
        equation(&ledger.events, "assigned", &["built", "incomplete_emitted", "in_flight"]),
        equation(&ledger.events, "built", &["accepted", "rejected", "quarantined"]),
        Line::styled("buffers", QUIET),
        equation(&ledger.pools, "loans", &["returned", "held"]),
        Line::default(),
    ];
    let is_live = matches!(screen.live.state.as_str(), "running" | "paused" | "draining");
    if ledger.unbalanced.is_empty() {
        lines.push(Line::styled("balanced", GOOD));
    } else if is_live {
        lines.push(Line::styled("in motion: numbers of different nodes are of different moments", QUIET));
    } else {
        let wrong = ledger.unbalanced.iter().map(|one| format!("not balanced: {}", one.equation));
        lines.extend(wrong.map(|line| Line::styled(line, BAD)));
    }
    lines
}

/// A box in the middle of the screen.
fn middle(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>, width: u16) {
    let all = frame.area();
    let area = all.centered(Constraint::Length(width.min(all.width)), Constraint::Length(lines.len() as u16 + 2));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title.to_owned())), area);
}

fn draw_detail(frame: &mut Frame<'_>, screen: &Screen) {
    let sources = screen.sources();
    let ids: Vec<u32> = sources.iter().map(|(source, _)| source.id).collect();
    let Some((source, rates)) = sources.get(screen.picked_row(&ids)) else { return };
    let line = |name: &str, value: String| Line::from(format!("{:>24}  {value}", name.replace('_', " ")));
    let mut lines = vec![
        line("readout unit", source.unit.clone().unwrap_or_default()),
        line(
            "rate",
            format!("{} fragments/s, {}", grouped(rates.fragments_hz as u64), bandwidth(rates.bytes_per_second)),
        ),
        line("held back", percent(Some(rates.back_pressure_share))),
        line("last event", source.last_event.map_or_else(|| "-".to_owned(), grouped)),
        line("behind", source.behind.map_or_else(|| "-".to_owned(), |events| format!("{} events", grouped(events)))),
        line("silent for", source.silent_s.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"))),
        line("received", grouped(source.received)),
        line("lost", grouped(source.lost)),
        line("wrong checksums", grouped(source.crc_errors)),
        line("frames missing", grouped(source.frames_missing)),
        line("damaged", grouped(source.corrupt)),
    ];
    lines.extend(source.missing.iter().map(|(cause, count)| line("missing", format!("{} {cause}", grouped(*count)))));
    // The unit is above.
    let rest = source.rest.iter().filter(|(name, _)| *name != "readout");
    lines.extend(rest.filter_map(|(name, value)| Some(line(name, said(value)?))));
    let name = source.name.as_ref().map_or_else(String::new, |name| format!("{name}, "));
    middle(frame, &format!(" {name}source {} ", source.id), lines, 72);
}

/// A value as text; none for an empty list of counts.
fn said(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.replace('_', " "),
        Value::Object(counts) if counts.is_empty() => return None,
        Value::Object(counts) => {
            let count =
                |(cause, count): (&String, &Value)| Some(format!("{} {}", said(count)?, cause.replace('_', " ")));
            counts.iter().filter_map(count).collect::<Vec<_>>().join(", ")
        }
        other => other.as_u64().map_or_else(|| other.to_string(), grouped),
    })
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines = KEYS.iter().map(|(key, what)| Line::from(format!("{key:>32}  {what}"))).collect();
    middle(frame, " keys ", lines, 72);
}
