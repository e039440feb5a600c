//! Run control and monitoring over HTTP.
//!
//! ```text
//!  browser, ropewalk ctl, scripts --HTTP--> server: listens                 (one thread, tokio)
//!                                              v
//!                                           accept_loop: connection limits, TLS; write_timeout: drops clients that do not read
//!                                              v
//!                                           rates: request limits; authorisation: tokens, Host and Origin
//!                                              v
//!                                           bodies: size and time limits
//!                                              v
//!                                           api: commands --> node's ControlHandle --> the session's thread
//!                                           live: views  <--      ^
//!                                           samples: copies of events
//!                                           response_budget: memory limit of unread responses
//!                                           health_monitor: bottleneck, alarms, incidents (monitor)
//! ```
//! Nothing here can block a run: it reads what the session publishes, and sends commands as any other client does. `docs/control.md`
//! describes the interface for people, `/api/docs` for programs.
#![forbid(unsafe_code)]

mod accept_loop;
mod api;
mod api_types;
mod authorisation;
mod bodies;
mod client;
mod descriptors;
mod health_monitor;
mod live;
mod logbook_writer;
mod notify;
mod page;
mod rate_history_file;
mod rates;
mod response_budget;
mod run_trends;
mod samples;
mod server;
#[cfg(test)]
mod tests;
mod tls;
mod write_timeout;

pub use authorisation::Token;
pub use client::{Client, ClientError, Replied, Samples};
pub use run_trends::NoRunTrend;
pub use server::{ControlConfig, ControlError, Server};
pub use tls::{Identity, TlsError};
