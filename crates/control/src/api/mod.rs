//! The HTTP API, by topic. A handler's `utoipa::path` gives its route and its part of the OpenAPI document.

mod commands;
mod events;
mod monitoring;
mod notes;
mod runs;

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::{Bytes, to_bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response, map_response_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_run::session::{ControlHandle, RequestRefusal};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::accept_loop::{self, AcceptLoop, PATIENCE};
use crate::api_types::Problem;
use crate::authorisation::{Authorisation, USER, authorise};
use crate::health_monitor::HealthMonitor;
use crate::logbook_writer::LogbookWriter;
use crate::page;
use crate::request_limits::{BODY_BYTES, ResponseBudget, bounded, hold};

/// The maximum length of a name in the journal, in characters.
const MOST_NAME: usize = 64;

/// The part of the OpenAPI document that concerns all topics.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ropewalk run control",
        version = "1",
        description = "Any request may also be answered with a Problem: 400 for a malformed request, 401 without the token, \
                       403 for a foreign origin or host, 404 and 405 for an unknown path or method, 408 if the body did not \
                       arrive in time, 413 if it is too long, 429 after too many commands or requests, 503 while too many \
                       large responses wait to be read."
    ),
    components(schemas(Problem))
)]
struct Document;

/// State shared by all handlers.
#[derive(Clone)]
struct Shared {
    control: ControlHandle,
    output: Arc<PathBuf>,
    live: watch::Receiver<Bytes>,
    health: Arc<HealthMonitor>,
    logbook: Arc<LogbookWriter>,
    accept_loop: Arc<AcceptLoop>,
    /// Changes, or is closed, when the server ends.
    ending: watch::Receiver<()>,
}

/// The shared state, for requests that change something: the journal records the system user of the client, if the
/// request has one.
struct Commander(Shared);

impl FromRequestParts<Shared> for Commander {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let mut shared = shared.clone();
        let user = parts.headers.get(USER).and_then(|user| user.to_str().ok()).map(shown);
        shared.control = shared.control.for_user(user);
        Ok(Self(shared))
    }
}

/// Query parameters of a command.
#[derive(Deserialize)]
pub(super) struct Manner {
    /// Name of the operator, for the journal.
    by: Option<String>,
    /// `false`: do not wait for the end of the command.
    wait: Option<bool>,
}

impl Manner {
    /// Returns the name of the operator for display.
    fn by(&self) -> String {
        shown(self.by.as_deref().unwrap_or("unnamed client"))
    }
}

/// Returns the router of the dashboard, the API and the metrics.
pub(crate) fn router(
    control: ControlHandle,
    output: PathBuf,
    (live, ending): (watch::Receiver<Bytes>, watch::Receiver<()>),
    (health, logbook, accept_loop): (Arc<HealthMonitor>, Arc<LogbookWriter>, Arc<AcceptLoop>),
    authorisation: Arc<Authorisation>,
) -> Router {
    let bounds = Arc::clone(&accept_loop);
    let shared = Shared { control, output: Arc::new(output), live, health, logbook, accept_loop, ending };
    let topics = [commands::routes(), events::routes(), monitoring::routes(), notes::routes(), runs::routes()];
    let api = topics.into_iter().fold(OpenApiRouter::with_openapi(Document::openapi()), OpenApiRouter::merge);
    let api = api.layer(map_response(as_problem)).routes(routes!(monitoring::metrics));
    let (api, document) = api.with_state(shared).split_for_parts();
    let app = api
        .route("/", get(page::index))
        .route("/{file}", get(page::named))
        .route("/manual/{name}", get(page::manual))
        .route("/api/docs", get(Json(document)))
        .fallback(nothing);
    // Check the authorisation before the body: a client without it cannot make the server wait.
    let app = bounded(app, PATIENCE).layer(from_fn_with_state(authorisation, authorise));
    app.layer(from_fn_with_state(bounds, accept_loop::bound))
        .layer(map_response_with_state(ResponseBudget::new(), hold))
}

fn problem(status: StatusCode, error: impl Into<String>) -> Response {
    (status, Json(Problem { error: error.into() })).into_response()
}

/// Converts plain-text errors into the documented Problem. The framework sends them for malformed requests, before any
/// handler runs.
async fn as_problem(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_plain = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    let status = response.status();
    if !status.is_client_error() || !is_plain {
        return response;
    }
    let words = to_bytes(response.into_body(), BODY_BYTES).await.unwrap_or_default();
    problem(status, String::from_utf8_lossy(&words))
}

/// Works on a blocking thread, so that no other request waits for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Works on a blocking thread; `what` begins the message of an error that is not the client's.
async fn on_disk<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<Json<T>, Response> {
    blocking(work).await?.map(Json).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => problem(StatusCode::BAD_REQUEST, error.to_string()),
        ErrorKind::NotFound => problem(StatusCode::NOT_FOUND, error.to_string()),
        _ => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}: {error}")),
    })
}

/// Sends a request to the run control thread with `ask` and returns its answer; none if the thread has ended.
async fn answer<T: Send + 'static>(ask: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    ask(Box::new(move |told| {
        // The client may have gone.
        let _ = sender.send(told);
    }));
    receiver.await.ok()
}

/// Returns the response for a request that was refused.
fn refused(refusal: RequestRefusal) -> Response {
    match refusal {
        RequestRefusal::Unknown(why) => problem(StatusCode::NOT_FOUND, why),
        RequestRefusal::HeldByAnother(why) | RequestRefusal::Unfit(why) => problem(StatusCode::CONFLICT, why),
        RequestRefusal::Over => problem(StatusCode::GONE, "run control has ended"),
    }
}

async fn nothing() -> Response {
    problem(StatusCode::NOT_FOUND, "there is nothing here; /api/docs lists what there is")
}

/// Returns a client's text, truncated and without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MOST_NAME).collect()
}
