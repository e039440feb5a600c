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
        help: explanation(one.subject.help()),
    };
    view.parameters.iter().map(parameter).collect()
}

/// What a parameter is. Values are told with their unit, and not in that of the program.
fn explanation(help: &'static str) -> &'static str {
    help.trim().trim_end_matches("In nanoseconds.").trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_node::session::Subject;
    use ropewalk_terms::Parameter as Known;

    #[test]
    fn what_is_told_in_seconds_is_not_said_to_be_in_nanoseconds() {
        let subjects = Known::ALL.iter().map(|&parameter| Subject::Nodes(parameter)).chain([Subject::Log]);
        for subject in subjects {
            let help = explanation(subject.help());
            assert!(help.ends_with('.') && !help.contains("nanoseconds"), "{subject:?}: {help}");
        }
    }
}
