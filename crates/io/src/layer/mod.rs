//! The TCP layer of paper 3 (section III) as a library: asynchronous, driven by events, with posted work.
//!
//! ```text
//!  InterfaceAdapter ──makes──► EventDispatcher ◄──post── WorkRequest (connect, accept, send, receive, close ...)
//!   one address and              │ many end points            from its own thread, or by a Requester from another
//!   mechanism                    ▼
//!                    Event: connection requested, established, completed, ended ...
//!                                │ each exactly once
//!                                ├──► EventHandler of the same thread
//!                                └──► EventQueue ──► EventHandler on another thread: by task
//!  WorkLoop: a named thread that serves dispatchers, waiting or polling
//! ```
//!
//! It stands on [`Dispatcher`](crate::Dispatcher), which moves the bytes, and adds what a user of the paper's layer
//! expects: cookies, buffers that are posted and come back, messages with boundaries of the user's own, deadlines, and
//! queues between threads. Drives of the event builder, which are dispatchers' direct users, need none of that.
//!
//! | Paper 3, uDAPL | Here |
//! |---|---|
//! | Interface Adapter (IA) | [`InterfaceAdapter`] |
//! | Public Service Point (PSP) | [`ServicePoint`](crate::ServicePoint), from [`EventDispatcher::listen`] |
//! | End Point (EP) | [`Endpoint`](crate::Endpoint) |
//! | Event Dispatcher (EVD) | [`EventDispatcher`]; [`EventQueue`] where another thread takes the events |
//! | EventHandler | [`EventHandler`] |
//! | work request | [`WorkRequest`] with a [`Cookie`] |
//! | completion | [`Completion`] |
//! | waiting and polling dispatchers, workloops | [`WorkLoop`] with [`Dispatch`] |

mod adapter;
mod dispatcher;
mod event;
pub mod framer;
mod handler;
mod hello;
mod queue;
mod request;
mod work;
mod work_loop;

pub use self::adapter::InterfaceAdapter;
pub use self::dispatcher::EventDispatcher;
pub use self::event::{Completion, Ended, Event, FlushReason, Received, Task, Why, Work};
pub use self::framer::{Framer, FramingError};
pub use self::handler::EventHandler;
pub use self::queue::{EventQueue, Requester};
pub use self::request::{Cookie, PostError, Refused, Requests, Setting, WorkRequest};
pub use self::work_loop::{Dispatch, RunningLoop, WorkLoop};
