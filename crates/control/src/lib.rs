//! Run control and sight over HTTP.
//!
//! ```text
//!  browser, ropewalk ctl, scripts --HTTP--> server: accepts                 (one thread, tokio)
//!                                              v
//!                                           door: bounds, TLS; patient: who reads nothing leaves
//!                                              v
//!                                           rates: how often; guard: who may ask for what
//!                                              v
//!                                           bodies: whole, not too long, in time
//!                                              v
//!                                           api: commands --> node's Desk --> the session's thread
//!                                           live: views  <--      ^
//!                                           samples: copies of events, as they come
//!                                           answers: memory until they are read
//!                                           lookout: what limits the run, alarms (monitor)
//! ```
//! Nothing here can hold a run up: it reads what the session publishes, and gives commands like anybody else. `docs/control.md`
//! describes the interface for people, `/api/docs` for programs.
#![forbid(unsafe_code)]

mod answers;
mod api;
mod bodies;
mod clerk;
mod client;
mod courses;
mod descriptors;
mod door;
mod forms;
mod guard;
mod keeper;
mod live;
mod lookout;
mod notify;
mod page;
mod patient;
mod rates;
mod samples;
mod server;
#[cfg(test)]
mod tests;
mod tls;

pub use client::{Client, ClientError, Replied, Samples};
pub use courses::NoCourse;
pub use guard::Token;
pub use server::{ControlConfig, ControlError, Server};
pub use tls::{Identity, TlsError};
