//! Run control and monitoring over HTTP.
//!
//! ```text
//!  browser, ropewalk ctl, scripts --HTTP--> server: listens                 (one thread, tokio)
//!                                              v
//!                                           accept_loop: connection limits, TLS; drops clients that do not read
//!                                              v
//!                                           request_limits: number, size and time of requests, memory of unread responses
//!                                           authorisation: tokens, Host and Origin
//!                                              v
//!                                           api: commands --> node's ControlHandle --> the session's thread
//!                                           streams: views <--    ^
//!                                           streams: copies of events
//!                                           health_monitor: bottleneck, alarms, incidents (monitor)
//! ```
//! Nothing here can block a run: it reads what the session publishes, and sends commands as any other client does. `docs/control.md`
//! describes the interface for people, `/api/docs` for programs.
#![forbid(unsafe_code)]

mod accept_loop;
mod api;
mod api_types;
mod authorisation;
mod client;
mod health_monitor;
mod logbook_writer;
mod notify;
mod page;
mod request_limits;
mod run_trends;
mod server;
mod streams;
#[cfg(test)]
mod tests;
mod tls;

pub use self::authorisation::Token;
pub use self::client::{Client, ClientError, Replied, Samples};
pub use self::run_trends::NoRunTrend;
pub use self::server::{ControlConfig, ControlError, Server};
pub use self::tls::{Identity, TlsError};
