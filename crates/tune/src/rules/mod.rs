//! The rules: what is checked, what is advised, and why. One table, [`RULES`], with a function for each line.
//!
//! A rule's texts are beside its function, and docs/tuning-GROUP.md is made of them. A function gets the state of the
//! machine and the wishes of a configuration, and changes nothing; it returns a `Seen` for each thing that it checked,
//! or what it could not read.

mod card;
mod interrupts;
mod limits;
mod memory;
mod network;
mod processor;
mod running;
mod storage;

use crate::found::Unread;
use crate::{Change, Finding, Found, Grade, Group, Setting, Sureness, Wish};

pub use self::interrupts::moved_back;

/// A rule: what it says does not depend on the host.
pub struct Rule {
    /// Its name; promised to users, and a heading of docs/tuning-GROUP.md.
    pub name: &'static str,
    /// To which group its settings belong.
    pub group: Group,
    /// What it looks at and what it advises.
    pub what: &'static str,
    /// Why, in a sentence or two.
    pub why: &'static str,
    /// The source: a section of the paper, or a document of the kernel.
    pub source: &'static str,
    /// The benefit, and the command that shows it on this machine.
    pub worth: &'static str,
    /// How sure the advice is.
    pub sureness: Sureness,
    /// Looks.
    look: Look,
}

type Look = fn(&Found, &Wish) -> Result<Vec<Seen>, Unread>;

/// All rules, group after group.
pub const RULES: &[&[Rule]] = &[
    network::BUFFERS,
    network::PROTOCOL,
    network::QUEUES,
    card::DRIVER,
    card::OFFLOADS,
    card::FLOWS,
    card::LINK,
    interrupts::INTERRUPTS,
    processor::PROCESSOR,
    memory::MEMORY,
    storage::STORAGE,
    limits::LIMITS,
];

/// All rules, one after the other.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().copied().flatten()
}

/// What all rules find, group after group.
pub fn check(found: &Found, wish: &Wish) -> Vec<Finding> {
    rules().flat_map(|rule| rule.findings(found, wish)).collect()
}

impl Rule {
    /// What this rule finds.
    pub fn findings(&self, found: &Found, wish: &Wish) -> Vec<Finding> {
        let seen = (self.look)(found, wish).unwrap_or_else(|Unread(what)| {
            vec![Seen::told(what, "could not be read", "see whether this kernel has it, and whether it may be read")]
        });
        seen.into_iter().map(|seen| self.finding(seen)).collect()
    }

    fn finding(&self, seen: Seen) -> Finding {
        let change = |(setting, from, to): (Setting, String, String)| Change {
            from: setting.normal(&from),
            to: setting.normal(&to),
            setting,
            group: self.group,
            rule: self.name.to_owned(),
        };
        Finding {
            rule: self.name,
            group: self.group,
            subject: seen.subject,
            grade: seen.grade,
            found: seen.found,
            advised: seen.advised,
            why: self.why,
            source: self.source,
            worth: self.worth,
            sureness: self.sureness,
            changes: seen.changes.into_iter().map(change).collect(),
        }
    }
}

/// What a rule saw of one thing.
struct Seen {
    subject: String,
    grade: Grade,
    found: String,
    advised: String,
    /// What would be changed: what, from, to.
    changes: Vec<(Setting, String, String)>,
}

impl Seen {
    fn new(grade: Grade, subject: impl Into<String>, found: impl Into<String>, advised: impl Into<String>) -> Self {
        Self { subject: subject.into(), grade, found: found.into(), advised: advised.into(), changes: Vec::new() }
    }

    /// Nothing to do.
    fn good(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(Grade::Good, subject, found, "")
    }

    /// Neither good nor bad.
    fn told(subject: impl Into<String>, found: impl Into<String>, advised: impl Into<String>) -> Self {
        Self::new(Grade::Told, subject, found, advised)
    }

    /// It works, and could do better.
    fn better(subject: impl Into<String>, found: impl Into<String>, advised: impl Into<String>) -> Self {
        Self::new(Grade::CouldBeBetter, subject, found, advised)
    }

    /// It loses data, or most of the speed.
    fn harmful(subject: impl Into<String>, found: impl Into<String>, advised: impl Into<String>) -> Self {
        Self::new(Grade::Harmful, subject, found, advised)
    }

    /// A sysctl that should have another value; the value found and the one advised are all there is to say.
    fn sysctl(grade: Grade, name: &str, found: impl ToString, advised: impl ToString) -> Self {
        let (found, advised) = (found.to_string(), advised.to_string());
        Self::new(grade, name, &found, &advised).change(Setting::sysctl(name), found, advised)
    }

    /// With something that a program may change.
    fn change(mut self, setting: Setting, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.changes.push((setting, from.into(), to.into()));
        self
    }
}

/// Bytes as people read them, in the largest unit that they have one of.
fn bytes(count: u64) -> String {
    let unit = |shift: u32| count as f64 / (1u64 << shift) as f64;
    let (number, name) = match count {
        0..1024 => return format!("{count} B"),
        1024..0x10_0000 => (unit(10), "KiB"),
        0x10_0000..0x4000_0000 => (unit(20), "MiB"),
        _ => (unit(30), "GiB"),
    };
    if number.fract() < 0.05 { format!("{number:.0} {name}") } else { format!("{number:.1} {name}") }
}
