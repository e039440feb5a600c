//! The dashboard's files, which the program carries with it.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Name, type, bytes.
const FILES: &[(&str, &str, &[u8])] = &[
    ("index.html", "text/html; charset=utf-8", include_bytes!("../../../dashboard/index.html")),
    ("dashboard.css", "text/css; charset=utf-8", include_bytes!("../../../dashboard/dashboard.css")),
    ("dashboard.js", "text/javascript; charset=utf-8", include_bytes!("../../../dashboard/dashboard.js")),
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
