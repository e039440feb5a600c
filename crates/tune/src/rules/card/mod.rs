//! Network cards: what their drivers let be set, and what is known of card, cable and slot.

mod driver;
mod flows;
mod link;
mod offloads;

use ropewalk_host::Card;

use super::{Rule, Seen};
use crate::cards::CardReport;
use crate::found::{Found, Unread};
use crate::{Form, Grade, Group, Property, Setting, Sureness, Transport, Wish};

pub(super) use driver::DRIVER;
pub(super) use flows::FLOWS;
pub(super) use link::LINK;
pub(super) use offloads::OFFLOADS;

/// A property of a card as a setting.
fn setting(card: &Card, property: &Property) -> Setting {
    Setting::Card { interface: card.name.clone(), property: property.clone() }
}

/// What the table calls a property of a card.
fn subject(card: &Card, property: &Property) -> String {
    format!("{}: {property}", card.name)
}

/// A property that should have another value.
fn wrong(grade: Grade, card: &Card, property: &Property, found: &str, advised: &str) -> Seen {
    Seen::new(grade, subject(card, property), found, advised).change(setting(card, property), found, advised)
}

/// A property's number, where the driver has it and tells one.
fn number(report: &CardReport, property: &Property) -> Option<u64> {
    report.value(property)?.parse().ok()
}
