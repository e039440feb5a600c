//! A node that another one will never take in: it ends, and says so.

use ropewalk_terms::NodeId;
use ropewalk_wire::message::{PROTOCOL_VERSION, RefuseReason};

/// Who refused a node, and why. There is no use in calling again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{} refuses this node: {}", who(*.by), at(.address), advice(*.reason))]
pub struct Refusal {
    /// Who refused it.
    pub by: NodeId,
    /// Where that one was called; empty where it called this one.
    pub address: String,
    /// Why.
    pub reason: RefuseReason,
}

impl Refusal {
    /// It is the run that is over; in the next one the node is welcome.
    pub const fn is_of_run(&self) -> bool {
        matches!(self.reason, RefuseReason::RunOver)
    }

    /// A refusal that stands for as long as this node lives; none where the reason passes by itself, so that the node
    /// calls again.
    pub(super) fn timer(by: NodeId, address: &str, reason: RefuseReason) -> Option<Self> {
        let passes = match reason {
            // The node hears of the younger event manager from that one.
            RefuseReason::OldEpoch => true,
            // It may be the active one soon, or another one is.
            RefuseReason::StandBy => true,
            RefuseReason::Version
            | RefuseReason::Configuration
            | RefuseReason::UnknownNode
            | RefuseReason::OldIncarnation
            | RefuseReason::LateIncarnation(_)
            | RefuseReason::RunOver
            | RefuseReason::Taken => false,
        };
        (!passes).then(|| Self { by, address: address.to_owned(), reason })
    }
}

fn who(node: NodeId) -> String {
    if node == NodeId::MANAGER { "the event manager".to_owned() } else { node.to_string() }
}

fn at(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" at {address}") }
}

fn advice(reason: RefuseReason) -> String {
    match reason {
        RefuseReason::Version => format!(
            "it speaks another version of the protocol than this one, {PROTOCOL_VERSION}; \
             start every node from the same version of ropewalk"
        ),
        RefuseReason::Configuration => {
            "its configuration is another one; start every node from the same file".to_owned()
        }
        RefuseReason::UnknownNode => {
            "its configuration has no such node; start every node from the same file, and give addresses to the nodes \
             that they belong to"
                .to_owned()
        }
        RefuseReason::OldIncarnation => {
            "this node was started again elsewhere, and the later start counts; run each node once".to_owned()
        }
        RefuseReason::LateIncarnation(_) => {
            "this node was started again elsewhere after it, and that one is gone; start it again".to_owned()
        }
        RefuseReason::RunOver => {
            "the run that it is in is over, and was closed without what it still has; start it again, with `--then next` \
             where runs follow each other"
                .to_owned()
        }
        RefuseReason::Taken => {
            "a node of this name is connected, and works; run each node once, or end the other one first".to_owned()
        }
        RefuseReason::StandBy => "it stands by".to_owned(),
        RefuseReason::OldEpoch => {
            "it obeys a younger event manager, which goes on with the run and accounts for it".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::Incarnation;

    #[test]
    fn a_reason_that_passes_by_itself_ends_no_node() {
        let timer = |reason| Refusal::timer(NodeId::MANAGER, "host:1", reason).is_some();
        assert!(!timer(RefuseReason::OldEpoch) && !timer(RefuseReason::StandBy));
        for reason in [
            RefuseReason::Version,
            RefuseReason::Configuration,
            RefuseReason::UnknownNode,
            RefuseReason::OldIncarnation,
            RefuseReason::LateIncarnation(Incarnation(1)),
            RefuseReason::RunOver,
            RefuseReason::Taken,
        ] {
            assert!(timer(reason), "{reason:?}");
        }
    }

    #[test]
    fn a_refusal_says_who_refused_why_and_what_to_do() {
        let told = |by, reason| Refusal { by, address: "host:1".to_owned(), reason }.to_string();
        assert_eq!(
            told(NodeId::MANAGER, RefuseReason::Configuration),
            "the event manager at host:1 refuses this node: its configuration is another one; \
             start every node from the same file"
        );
        let superseded = Refusal { by: NodeId::builder(1), address: String::new(), reason: RefuseReason::OldEpoch };
        assert!(superseded.to_string().starts_with("bu1 refuses this node: it obeys a younger event manager"));
        assert!(told(NodeId::readout(3), RefuseReason::Version).starts_with("ru3 at host:1 refuses this node: "));
    }
}
