//! Who may subscribe to the e-links of a card.

use crate::drive::stream::ServerConfig;
use crate::quantity::{Bytes, Time};
use ropewalk_flow::stream::{MOST_SUBSCRIBERS, RouterConfig};
use schemars::JsonSchema;
use serde::Deserialize;

/// A server of a card's chunks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServeSection {
    /// Address to which subscribers connect. `0.0.0.0:9570` admits other machines. If the address is taken, the program
    /// ends with status 4.
    pub listen: String,
    /// Highest number of subscribers at once, 1 to 64. Further ones are refused.
    pub subscribers: u8,
    /// The card is not read before this many subscribers are connected.
    pub wait: u32,
    /// Bytes that may wait for one subscriber. With a small queue chunks are dropped, or the card is held up, sooner.
    pub queue: Bytes,
    /// This many bytes are sent without waiting for more.
    pub coalesce: Bytes,
    /// Data that has waited for this time is sent.
    pub coalesce_time: Time,
    /// Return messages that subscribers send to e-links, as if front ends had sent them. They are in no event, and reach
    /// no front end. Without `loop_back` the server refuses such messages: it answers with an error and counts them in
    /// `down_link_refused`. Down-links to cards are not implemented yet.
    pub loop_back: bool,
}

impl Default for ServeSection {
    fn default() -> Self {
        let usual = RouterConfig::default();
        Self {
            listen: "127.0.0.1:0".to_owned(),
            subscribers: usual.subscribers as u8,
            wait: 0,
            queue: Bytes(usual.queue_bytes),
            coalesce: Bytes(usual.coalesce_bytes),
            coalesce_time: Time(usual.coalesce_time),
            loop_back: false,
        }
    }
}

impl ServeSection {
    /// What is wrong with it: the key, and what would be right.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let subscribers = usize::from(self.subscribers);
        if !(1..=MOST_SUBSCRIBERS).contains(&subscribers) {
            return Some(("subscribers", format!("1 to {MOST_SUBSCRIBERS} subscribers at once")));
        }
        if self.wait > u32::from(self.subscribers) {
            let message = format!("no more than {subscribers} can be there: lower it, or enlarge `subscribers`");
            return Some(("wait", message));
        }
        None
    }

    /// The same in the words of the server.
    pub fn server(&self) -> ServerConfig {
        let router = RouterConfig {
            subscribers: usize::from(self.subscribers),
            queue_bytes: self.queue.0,
            coalesce_bytes: self.coalesce.0,
            coalesce_time: self.coalesce_time.0,
            ..RouterConfig::default()
        };
        ServerConfig { router, wait_for: self.wait, loop_back: self.loop_back, ..ServerConfig::default() }
    }
}
