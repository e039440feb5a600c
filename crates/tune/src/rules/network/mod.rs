//! Sockets and protocols: how much memory they take, what TCP does, where packets wait.

mod buffers;
mod protocol;
mod queues;

use super::{Rule, Seen, bytes};
use crate::found::{Found, Unread};
use crate::{Grade, Group, Sureness, Transport, Wish};

pub(super) use buffers::BUFFERS;
pub(super) use protocol::PROTOCOL;
pub(super) use queues::QUEUES;
