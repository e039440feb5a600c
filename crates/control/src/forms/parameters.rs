//! What can be changed while a run goes on.

use ropewalk_node::session::SessionView;
use serde::Serialize;
use utoipa::ToSchema;

/// A parameter with its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Parameter {
    /// Its name: `timeouts.readout`, or `stream.physics.prescale`.
    name: String,
    /// Its value now, as in a configuration: `2s`, `10`.
    value: String,
    /// As it was configured.
    configured: String,
    /// What it is, for people.
    help: &'static str,
}

/// All of them.
pub(crate) fn parameters(view: &SessionView) -> Vec<Parameter> {
    let parameter = |one: &ropewalk_node::session::LiveParameter| Parameter {
        name: one.name.clone(),
        value: one.text(one.value),
        configured: one.text(one.configured),
        help: one.parameter.help().trim(),
    };
    view.parameters.iter().map(parameter).collect()
}
