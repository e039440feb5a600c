//! The dashboard's files and pages of the manual, which are part of the program: they need no network.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd, html};

/// The names and bytes of these files.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../../dashboard/", $name)))),*]
    };
}

const FILES: &[(&str, &[u8])] = files! {
    "index.html" "dashboard.css" "dashboard.js" "alarms.js" "charts.js" "control.js" "counters.js" "dialogs.js" "events.js"
    "format.js" "histograms.js" "incidents.js" "journal.js" "memory.js" "numbers.js" "operator.js" "parameters.js"
    "path.js" "plots.js" "quality.js" "requests.js" "runs.js" "sources.js" "tabs.js" "uplot.js" "icon.svg" "uplot.css"
    "uplot-LICENSE"
};

/// The type of a file with this name.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Nothing from elsewhere is loaded, and the page is in no frame of others.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'";

fn file(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some(&(_, bytes)) => {
            let headers = [
                (header::CONTENT_TYPE, kind(name)),
                (header::CACHE_CONTROL, "no-cache"),
                (header::CONTENT_SECURITY_POLICY, POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, bytes).into_response()
        }
        None => {
            (StatusCode::NOT_FOUND, "no such page; the dashboard is at /, the interface at /api/docs\n").into_response()
        }
    }
}

pub(crate) async fn index() -> Response {
    file("index.html")
}

pub(crate) async fn named(Path(name): Path<String>) -> Response {
    file(&name)
}

/// Pages of the manual by name, in Markdown.
const MANUAL: &[(&str, &str)] = &[("alarms", include_str!("../../../docs/alarms.md"))];

/// A page of the manual. Its sections can be linked to by their headings: `/manual/alarms#disk_full`.
pub(crate) async fn manual(Path(name): Path<String>) -> Response {
    match MANUAL.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => {
            let headers =
                [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
            (headers, manual_page(&name, text)).into_response()
        }
        None => (StatusCode::NOT_FOUND, "no such page of the manual\n").into_response(),
    }
}

fn manual_page(name: &str, text: &str) -> String {
    let mut events: Vec<_> = Parser::new(text).collect();
    for place in 1..events.len() {
        // The text of a heading follows its start.
        let Event::Text(heading) = events[place].clone() else { continue };
        if let Event::Start(Tag::Heading { level: HeadingLevel::H2, id, .. }) = &mut events[place - 1] {
            *id = Some(heading);
        }
    }
    // Links to other pages of the manual lead nowhere here: only their text stays.
    events.retain(|event| !matches!(event, Event::Start(Tag::Link { .. }) | Event::End(TagEnd::Link)));
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Ropewalk: {name}</title>\
         <link rel=\"stylesheet\" href=\"/dashboard.css\"><body class=\"manual\">"
    );
    html::push_html(&mut page, events.into_iter());
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alarm_can_be_linked_to_in_the_manual() {
        let page = manual_page("alarms", MANUAL[0].1);
        for rule in ropewalk_monitor::alarms::built_in() {
            assert!(page.contains(&format!("<h2 id=\"{}\">", rule.name)), "{}", rule.name);
        }
        assert!(!page.contains("<a "), "pages that are not served");
    }
}
