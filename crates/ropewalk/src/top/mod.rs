//! A run on the whole terminal, from wherever its server is reached.
//!
//! ```text
//!  server --HTTP--> watch (a thread) --News--> Screen <--keys-- terminal
//!                                                | draw
//!                                                v
//!                                             terminal
//! ```

mod draw;
mod screen;
#[cfg(test)]
mod tests;

use crate::arguments::TopOptions;
use crate::exit::{self, Failure};
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use ratatui::{DefaultTerminal, Terminal};
use ropewalk_control::{Client, ClientError};
use screen::{News, Next, Screen};
use serde::de::DeserializeOwned;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The interval of requests. The server samples its numbers once a second.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest wait for a key before new data are drawn.
const PATIENCE: Duration = Duration::from_millis(100);
/// Columns and lines of a screen that is printed without a terminal.
const PRINTED: (u16, u16) = (160, 40);

pub(crate) fn top(options: &TopOptions) -> Result<u8, Failure> {
    if !options.once && (!io::stdin().is_terminal() || !io::stdout().is_terminal()) {
        let why = "top: it needs a terminal; `ropewalk top --once` prints its first screen";
        return Err(Failure::Usage(why.to_owned()));
    }
    // A mistyped address is reported as a line, not on a screen that stays empty.
    let no_answer = |error: ClientError| Failure::Environment(error.to_string());
    let client = Client::new(&options.url, None, options.ca.as_deref()).map_err(no_answer)?;
    client.look("state").map_err(no_answer)?;
    if options.once {
        let mut screen = Screen::new(&options.url);
        ask(&client, &mut 0).map_err(no_answer)?.into_iter().for_each(|news| screen.hear(news));
        let size = io::stdout().is_terminal().then(ratatui::crossterm::terminal::size);
        let (width, height) = size.and_then(Result::ok).unwrap_or(PRINTED);
        lines(&screen, width, height).iter().for_each(|line| say!("{}", line.trim_end()));
        return Ok(exit::GOOD);
    }
    let (sender, receiver) = channel();
    let watching = std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch(&client, &sender));
    watching.map_err(|error| Failure::Environment(format!("a thread: {error}")))?;
    let shown = ratatui::try_init().and_then(|mut terminal| {
        let shown = show(&mut terminal, &receiver, Screen::new(&options.url));
        ratatui::restore();
        shown
    });
    shown.map_err(|error| Failure::Environment(format!("the terminal: {error}")))?;
    Ok(exit::GOOD)
}

/// The lines of a screen of this size.
fn lines(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("drawing into memory cannot fail");
    terminal.draw(|frame| draw::draw(frame, screen)).expect("drawing into memory cannot fail");
    let cells = terminal.backend().buffer().content();
    let line = |row: &[Cell]| row.iter().map(Cell::symbol).collect();
    cells.chunks(usize::from(width)).map(line).collect()
}

/// Draws new data until the user quits.
fn show(terminal: &mut DefaultTerminal, news: &Receiver<News>, mut screen: Screen) -> io::Result<()> {
    let mut heard = Instant::now();
    loop {
        for news in news.try_iter() {
            screen.hear(news);
            heard = Instant::now();
        }
        screen.grow_old(heard.elapsed());
        terminal.draw(|frame| draw::draw(frame, &screen))?;
        if !event::poll(PATIENCE)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Press => {}
            // Here Ctrl-C is a key like others.
            Event::Key(key) if is_control(key, 'c') => return Ok(()),
            Event::Key(key) if is_control(key, 'l') => draw_anew(terminal)?,
            Event::Key(key) if screen.press(key.code) == Next::Quit => return Ok(()),
            _ => {}
        }
    }
}

/// Erases the output of others from the screen. (`Terminal::clear` asks the terminal for its cursor, and some never
/// answer.)
fn draw_anew(terminal: &mut DefaultTerminal) -> io::Result<()> {
    execute!(io::stdout(), Clear(ClearType::All))?;
    terminal.swap_buffers();
    Ok(())
}

fn is_control(key: KeyEvent, letter: char) -> bool {
    key.code == KeyCode::Char(letter) && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Asks again and again, until the receiver has gone.
fn watch(client: &Client, sender: &Sender<News>) {
    let mut last_entry = 0;
    loop {
        let told = ask(client, &mut last_entry).unwrap_or_else(|error| vec![News::Away(error.to_string())]);
        if told.into_iter().any(|news| sender.send(news).is_err()) {
            return;
        }
        std::thread::sleep(PERIOD);
    }
}

/// Requests everything that is shown.
fn ask(client: &Client, last_entry: &mut u64) -> Result<Vec<News>, ClientError> {
    let live: draw::Live = part(client, "live")?.unwrap_or_default();
    if live.last_entry < *last_entry {
        *last_entry = 0;
    }
    let has_entries = live.last_entry > *last_entry;
    let mut news = vec![News::Live(Box::new(live))];
    if has_entries {
        let entries: Vec<draw::Entry> = part(client, &format!("journal?after={last_entry}"))?.unwrap_or_default();
        *last_entry = entries.last().map_or(*last_entry, |entry| entry.number);
        news.push(News::Journal(entries));
    }
    if let Some(draw::Incidents { incidents }) = part(client, "incidents")? {
        news.push(News::Incidents(incidents));
    }
    Ok(news)
}

/// One answer; `None` if the server has no such thing.
fn part<T: DeserializeOwned>(client: &Client, what: &str) -> Result<Option<T>, ClientError> {
    let replied = client.look(what)?;
    Ok(if replied.status == 200 { serde_json::from_value(replied.body).ok() } else { None })
}
