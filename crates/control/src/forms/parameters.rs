//! What can be changed while a run goes on.

use ropewalk_node::session::SessionView;
use ropewalk_terms::Parameter as Known;
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
        help: explanation(one.parameter),
    };
    view.parameters.iter().map(parameter).collect()
}

/// What a parameter is. Values are told with their unit, and not in that of the program.
fn explanation(parameter: Known) -> &'static str {
    parameter.help().trim().trim_end_matches("In nanoseconds.").trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_in_seconds_is_not_said_to_be_in_nanoseconds() {
        for &parameter in Known::ALL {
            let help = explanation(parameter);
            assert!(help.ends_with('.') && !help.contains("nanoseconds"), "{}: {help}", parameter.name());
        }
    }
}
