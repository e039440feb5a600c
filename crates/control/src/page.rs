//! The dashboard's files, which the program carries with it.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The names and bytes of these files.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../../dashboard/", $name)))),*]
    };
}

const FILES: &[(&str, &[u8])] = files! {
    "index.html" "dashboard.css" "dashboard.js" "alarms.js" "charts.js" "control.js" "dialogs.js" "events.js"
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
