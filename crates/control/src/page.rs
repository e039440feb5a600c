//! The dashboard's files, which the program carries with it.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Name, type, bytes.
const FILES: &[(&str, &str, &[u8])] = &[
    ("index.html", "text/html; charset=utf-8", include_bytes!("../../../dashboard/index.html")),
    ("dashboard.css", "text/css; charset=utf-8", include_bytes!("../../../dashboard/dashboard.css")),
    ("dashboard.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/dashboard.js")),
    ("alarms.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/alarms.js")),
    ("control.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/control.js")),
    ("dialogs.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/dialogs.js")),
    ("events.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/events.js")),
    ("format.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/format.js")),
    ("histograms.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/histograms.js")),
    ("incidents.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/incidents.js")),
    ("journal.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/journal.js")),
    ("memory.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/memory.js")),
    ("numbers.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/numbers.js")),
    ("operator.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/operator.js")),
    ("parameters.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/parameters.js")),
    ("path.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/path.js")),
    ("plots.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/plots.js")),
    ("requests.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/requests.js")),
    ("runs.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/runs.js")),
    ("sources.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/sources.js")),
    ("uplot.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/uplot.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../../dashboard/icon.svg")),
    ("uplot.css", "text/css; charset=utf-8", include_bytes!("../../../dashboard/uplot.css")),
    ("uplot-LICENSE", "text/plain; charset=utf-8", include_bytes!("../../../dashboard/uplot-LICENSE")),
];

/// Nothing from elsewhere is loaded, and the page is in no frame of others.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'";

fn file(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some(&(_, kind, bytes)) => {
            let headers = [
                (header::CONTENT_TYPE, kind),
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
