//! What is drawn, on a terminal that is memory.

use super::draw::{Entry, Incident, Live, draw};
use super::lines;
use super::screen::{News, Next, Page, Screen, Sorting};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;
use serde_json::json;
use std::time::Duration;

/// A run with three sources: 2 is the fastest, 1 has lost something, 3 is silent.
fn live() -> Live {
    let source = |id: u32, lost: u64| {
        let name = (id == 3).then_some("boardC");
        json!({ "id": id, "name": name, "is_connected": id < 3, "taking": "takes_part", "dropped": {}, "unit": "crate-1 (ru0)", "received": 1_000 * id, "lost": lost, "missing": { "timeout": 4 }, "late": lost,
                "last_event": 77, "behind": 3, "silent_s": 2.5, "has_ended": false })
    };
    let pace = |id: u32, rate: f64| json!({ "source": id, "fragments_hz": rate, "bytes_per_second": 10.0 * rate, "back_pressure_share": 0.25 });
    serde_json::from_value(json!({
        "state": "running", "run": 7, "age_s": 3_725.0, "last_entry": 2,
        "ledger": {
            "fragments": { "received": 6_000, "in_complete_events": 5_000, "in_flight": 993, "lost": 7, "dropped": {} },
            "events": { "assigned": 2_000, "built": 1_990, "incomplete_emitted": 0, "in_flight": 10 },
            "pools": { "held": 95, "blocks": 100 }, "unbalanced": [],
        },
        "sources": [source(1, 7), source(2, 0), source(3, 0)],
        "nodes": [{ "name": "ru0", "label": "crate-1 (ru0)", "role": "readout", "connected": true }, { "name": "bu0", "label": "bu0", "connected": false }],
        "rates": {
            "events_hz": 12_345.6, "bytes_in_per_second": 2.5e6, "bytes_to_disk_per_second": 1e6, "live_share": 0.9,
            "sources": [pace(1, 5.0), pace(2, 900.0), pace(3, 0.0)],
            "nodes": [{ "node": "ru0", "rate_hz": 905.0, "bytes_per_second": 9_050.0, "pool_share": 0.95, "busy_share": null }],
        },
        "limit": { "kind": "disk", "sentence": "rate limited by builder bu0: disk writing 97 % busy" },
        "alarms": [{ "name": "disk_full", "severity": "critical", "state": "active", "run": 6, "sentence": "stopped by bu0: its disk is full" }],
        "quality": { "state": "incomplete", "is_current": true, "sentence": "boardC (source 3): no data for 2.5 s" },
    }))
    .expect("a view")
}

fn screen() -> Screen {
    let mut screen = Screen::new("http://daq1:8900");
    screen.hear(News::Live(Box::new(live())));
    screen
}

fn text(screen: &Screen) -> String {
    lines(screen, 120, 30).join("\n")
}

/// The ids of sources as they stand one below the other.
fn ids(screen: &Screen) -> Vec<u32> {
    screen.sources().iter().map(|(source, _)| source.id).collect()
}

fn press(screen: &mut Screen, keys: &[KeyCode]) {
    keys.iter().for_each(|&key| assert_eq!(screen.press(key), Next::Stay));
}

#[test]
fn state_limit_alarms_and_rates_stand_above_the_sources() {
    let lines = lines(&screen(), 120, 30);
    assert!(lines[0].contains("run 7  RUNNING  01:02:05  http://daq1:8900"), "{}", lines[0]);
    assert!(lines[1].starts_with("data: boardC (source 3): no data for 2.5 s"), "{}", lines[1]);
    assert!(lines[2].starts_with("rate limited by builder bu0: disk writing 97 % busy"), "{}", lines[2]);
    assert!(
        lines[3].starts_with("critical: stopped by bu0: its disk is full (active in run 6; manual: disk_full)"),
        "{}",
        lines[3]
    );
    assert!(lines[6].contains("12,345 events/s   in 2.4 MiB/s"), "{}", lines[6]);
    assert!(lines[7].contains("1,990 built      live time 90 %"), "{}", lines[7]);
    assert!(lines[9].contains("buffers 95 %"), "{}", lines[9]);
    assert!(lines[11].contains("source ▲") && lines[13].trim_start().starts_with('2'), "{lines:#?}");
}

#[test]
fn sources_are_sorted_by_each_column_and_both_ways() {
    let mut screen = screen();
    assert_eq!(ids(&screen), [1, 2, 3]);
    press(&mut screen, &[KeyCode::Char('s')]);
    assert_eq!((screen.sorting, ids(&screen)), (Sorting::Rate, vec![2, 1, 3]));
    press(&mut screen, &[KeyCode::Char('r')]);
    assert_eq!(ids(&screen), [3, 1, 2]);
    press(&mut screen, &[KeyCode::Char('s'); 3]);
    assert_eq!((screen.sorting, ids(&screen)), (Sorting::Lost, vec![1, 2, 3]));
    assert!(text(&screen).contains("lost ▼"));
    press(&mut screen, &[KeyCode::Char('s'); 3]);
    assert_eq!((screen.sorting, screen.is_down), (Sorting::Id, false));
}

#[test]
fn shelved_alarms_are_counted_beside_the_others_and_without_them() {
    let mut screen = screen();
    let named = |name: &str| serde_json::from_value(json!({ "name": name })).expect("an alarm");
    screen.live.shelved = vec![named("rate_low")];
    assert!(text(&screen).contains("1 shelved: rate_low"), "{}", text(&screen));
    screen.live.alarms.clear();
    assert!(text(&screen).contains("1 shelved: rate_low") && !text(&screen).contains("no alarm"));
    screen.live.alarms = ["one", "two", "three"].map(named).into();
    assert!(text(&screen).contains("and 1 more; 1 shelved: rate_low"), "{}", text(&screen));
    screen.live.alarms.push(named("four"));
    assert!(text(&screen).contains("and 2 more; 1 shelved"), "{}", text(&screen));
}

#[test]
fn a_silent_source_is_red_and_one_that_has_ended_is_not() {
    let colour = |screen: &Screen| {
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("memory");
        terminal.draw(|frame| draw(frame, screen)).expect("memory");
        // Source 3 is in the last of three rows below the head.
        terminal.backend().buffer()[(0, 14)].fg
    };
    let mut screen = screen();
    assert_eq!(colour(&screen), Color::Red);
    screen.live.sources[2].has_ended = true;
    assert_ne!(colour(&screen), Color::Red);
}

#[test]
fn the_picked_source_stays_picked_wherever_sorting_puts_it() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Down, KeyCode::Down, KeyCode::Char('s'), KeyCode::Enter]);
    assert_eq!(screen.picked, Some(3));
    let shown = text(&screen);
    assert!(
        shown.contains(" boardC, source 3 ")
            && shown.contains("boardC (3)")
            && shown.contains("missing  4 timeout")
            && shown.contains("late  0")
            && shown.contains("is connected  no")
            && shown.contains("taking  takes part")
            && !shown.contains("dropped")
            && shown.contains("silent for  2.5 s"),
        "{shown}"
    );
    press(&mut screen, &[KeyCode::Esc, KeyCode::Home, KeyCode::Enter]);
    assert!(screen.picked == Some(2) && text(&screen).contains(" source 2 "));
    press(&mut screen, &[KeyCode::End]);
    assert_eq!(screen.picked, Some(3));
}

#[test]
fn pages_are_turned_and_show_what_they_are_called() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Tab]);
    assert!(screen.page == Page::Nodes && text(&screen).contains("AWAY") && text(&screen).contains("crate-1 (ru0)"));
    press(&mut screen, &[KeyCode::Char('3')]);
    let ledger = text(&screen);
    assert!(
        ledger.contains("6,000 received = 5,000 in complete events + 0 in incomplete events + 7 lost + 993 in flight")
    );
    assert!(ledger.contains("balanced"));
    screen.hear(News::Incidents(vec![Incident {
        cause: "crc_error".to_owned(),
        subject: "source 12".to_owned(),
        count: 1_234,
        last_ns: 2,
        ..Incident::default()
    }]));
    press(&mut screen, &[KeyCode::Right]);
    let incidents = text(&screen);
    assert!(incidents.contains("4 incidents (1)") && incidents.contains("1,234      crc_error"), "{incidents}");
    screen.hear(News::Journal(vec![
        Entry { number: 1, text: "configure, by ada".to_owned(), ..Entry::default() },
        Entry { number: 2, text: "start, by ada".to_owned(), ..Entry::default() },
    ]));
    press(&mut screen, &[KeyCode::Char('5')]);
    let journal = text(&screen);
    assert!(journal.find("start, by ada") < journal.find("configure, by ada"), "{journal}");
    press(&mut screen, &[KeyCode::BackTab, KeyCode::BackTab, KeyCode::Left, KeyCode::Left]);
    assert_eq!(screen.page, Page::Sources);
}

#[test]
fn a_lost_server_is_shown_and_so_is_its_return() {
    let mut screen = screen();
    screen.hear(News::Away("connection refused".to_owned()));
    assert!(lines(&screen, 120, 30)[0].contains("run 7  NO ANSWER: connection refused"));
    screen.hear(News::Journal(vec![Entry { number: 2, ..Entry::default() }]));
    screen.hear(News::Live(Box::new(Live { last_entry: 1, ..live() })));
    assert!(screen.away.is_none() && screen.journal.is_empty(), "it counts anew");
}

#[test]
fn what_is_old_is_marked_until_something_new_comes() {
    let mut screen = screen();
    screen.grow_old(Duration::from_millis(2_900));
    assert!(screen.away.is_none());
    screen.grow_old(Duration::from_millis(3_100));
    assert!(lines(&screen, 120, 30)[0].contains("run 7  NO ANSWER: this screen is more than 3 s old"));
    screen.hear(News::Live(Box::new(live())));
    assert!(screen.away.is_none());
    // The client's error says more.
    screen.hear(News::Away("connection refused".to_owned()));
    screen.grow_old(Duration::from_secs(60));
    assert_eq!(screen.away.as_deref(), Some("connection refused"));
}

#[test]
fn help_opens_and_closes_and_keys_leave() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Char('?')]);
    assert!(text(&screen).contains("everything about a source"));
    press(&mut screen, &[KeyCode::Esc]);
    assert!(!screen.has_help);
    assert_eq!((screen.press(KeyCode::Esc), screen.press(KeyCode::Char('q'))), (Next::Quit, Next::Quit));
}

#[test]
fn any_size_of_terminal_will_do() {
    let mut screen = screen();
    for page in ['1', '2', '3', '4', '5'] {
        press(&mut screen, &[KeyCode::Char(page), KeyCode::Enter]);
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            assert_eq!(lines(&screen, width, height).len(), usize::from(height));
        }
    }
    let empty = Screen::new("http://127.0.0.1:8900");
    assert!(text(&empty).contains("not known yet"));
}

#[test]
fn the_curve_and_the_journal_are_bounded() {
    let mut screen = screen();
    for number in 0..2_000 {
        screen.hear(News::Live(Box::new(live())));
        screen.hear(News::Journal(vec![Entry { number, ..Entry::default() }]));
    }
    assert_eq!((screen.curve.len(), screen.journal.len()), (240, 500));
    assert_eq!(screen.journal[0].number, 1_999);
}
