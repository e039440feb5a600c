//! A single event, for people who look at it.

use ropewalk_node::tap::{EventSample, SampledFragment};
use ropewalk_terms::Utc;
use serde::Serialize;
use utoipa::ToSchema;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A copy of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct SampledEvent {
    /// When it was copied, in nanoseconds since 1970 UTC.
    pub(crate) taken_ns: i64,
    /// `17`, or `2:17` after two resynchronisations.
    pub(crate) key: String,
    /// The lumisection, from 1; 0 where a gateway built it, which knows of none.
    pub(crate) lumisection: u32,
    /// The how manieth attempt to build it; 0 where a gateway has not given it to a node yet.
    pub(crate) attempt: u16,
    /// Who built it: `bu0` is builder unit 0.
    pub(crate) builder: String,
    /// 0 where no fragment has one, and of a gateway's events, which are copied before they are decided.
    pub(crate) trigger_type: u16,
    /// No required source is missing.
    pub(crate) is_complete: bool,
    /// Bytes of all payloads.
    pub(crate) bytes: u64,
    /// A source each: fragments first, then what is missing.
    pub(crate) sources: Vec<SampledSource>,
}

/// What a source has in an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct SampledSource {
    /// Its number.
    pub(crate) id: u32,
    /// Bytes of its payload.
    pub(crate) bytes: u32,
    /// It should have a fragment, and has none.
    pub(crate) missing: bool,
    /// Something is wrong with its content, or with the front end.
    pub(crate) doubtful: bool,
    /// Why it is missing, or what is said of its content: empty where there is nothing to say.
    pub(crate) remarks: Vec<String>,
    /// What its header says.
    pub(crate) fields: Vec<Field>,
    /// The first bytes, two digits each.
    pub(crate) hex: String,
}

/// A field of a header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Field {
    /// What it is.
    pub(crate) name: &'static str,
    /// A number, as text: it may have 64 bits.
    pub(crate) value: String,
}

impl SampledEvent {
    pub(crate) fn of(event: &EventSample, taken: Utc) -> Self {
        let there = event.fragments.iter().map(|fragment| SampledSource::of(event, fragment));
        let missing = event.missing.iter().map(|missing| {
            let why =
                missing.cause().map_or_else(|| format!("cause {}", missing.cause), |cause| cause.name().to_owned());
            let (id, remarks) = (missing.source.0, vec![why]);
            SampledSource {
                id,
                bytes: 0,
                missing: true,
                doubtful: false,
                remarks,
                fields: Vec::new(),
                hex: String::new(),
            }
        });
        Self {
            taken_ns: taken.0,
            key: event.key.to_string(),
            lumisection: event.lumisection,
            attempt: event.attempt.0,
            builder: event.builder.to_string(),
            trigger_type: event.trigger_type,
            is_complete: event.is_complete(),
            bytes: event.fragments.iter().map(|fragment| u64::from(fragment.entry.length)).sum(),
            sources: there.chain(missing).collect(),
        }
    }
}

impl SampledSource {
    fn of(event: &EventSample, fragment: &SampledFragment) -> Self {
        let entry = &fragment.entry;
        let front = event.front_of(fragment);
        let fields =
            event.fields_of(fragment).into_iter().map(|(name, value)| Field { name, value: value.to_string() });
        let hex =
            front.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)]));
        let remarks = fragment.remarks().map(str::to_owned).collect();
        let doubtful = entry.flags.has_error();
        Self {
            id: entry.source.0,
            bytes: entry.length,
            missing: false,
            doubtful,
            remarks,
            fields: fields.collect(),
            hex: hex.collect(),
        }
    }
}
