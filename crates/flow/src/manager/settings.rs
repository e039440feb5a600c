//! Parameters that are changed while a run goes on: the event manager's own, and those that it tells every node.

use super::Manager;
use super::run::Phase;
use crate::messages::{Message, Setting};
use ropewalk_terms::{NodeId, Parameter};

impl Manager {
    /// A parameter has another value from now on. Before a run nodes hear of it before they begin.
    pub fn set(&mut self, setting: Setting) {
        self.apply(setting);
        self.settings.keep(setting);
        if !matches!(self.phase, Phase::Idle) {
            self.send_to_readouts(&Message::Set(setting));
            self.send_to_builders(&Message::Set(setting));
        }
    }

    /// What a limit was when something began to wait is not changed by it.
    fn apply(&mut self, setting: Setting) {
        let time = setting.time();
        match setting.parameter {
            Parameter::ManagerTimeout => self.config.event_timeout = time,
            Parameter::UnreachableTimeout => self.config.unreachable_timeout = time,
            Parameter::DrainTimeout => self.config.drain_timeout = time,
            _ => {}
        }
    }

    /// A readout unit tells a successor what it was told before.
    pub(super) fn set_before(&mut self, setting: Setting) {
        if self.settings.keep_unless_known(setting) {
            self.apply(setting);
        }
    }

    /// To be said to a node before its start, and to one that was away.
    pub(super) fn tell_settings(&mut self, node: NodeId) {
        let settings = self.settings.all().map(|setting| (node, Message::Set(setting)));
        self.outbox.extend(settings);
    }
}
