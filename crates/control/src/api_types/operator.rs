//! Who holds the controls.

use ropewalk_node::session;
use serde::Serialize;
use utoipa::ToSchema;

/// The operator whose commands alone are heard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Holder {
    /// What they call themselves.
    name: String,
    /// Since when they hold the controls, in nanoseconds since 1970 UTC.
    since_ns: i64,
}

impl Holder {
    pub(crate) fn of(holder: &session::Holder) -> Self {
        Self { name: holder.name.clone(), since_ns: holder.since.0 }
    }
}

/// Who holds the controls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Operator {
    /// Null where nobody does, and everybody may give commands.
    pub(crate) operator: Option<Holder>,
}
