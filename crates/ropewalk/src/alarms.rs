//! Alarms, for `ctl`.

use ropewalk_config::quantity::Time;
use ropewalk_control::{Client, ClientError, Replied};
use serde_json::Value;

/// Acknowledges an alarm in an operator's name.
///
/// # Errors
/// If no alarm is named.
pub(crate) fn acknowledge(
    client: &Client,
    name: Option<&str>,
    by: &str,
) -> Result<Result<Replied, ClientError>, String> {
    let name = name.ok_or("acknowledge: which alarm? `ropewalk ctl alarms` lists all alarms")?;
    Ok(client.acknowledge(name, by))
}

/// Has an alarm not shown for a while.
///
/// # Errors
/// If no alarm is named.
pub(crate) fn shelve(
    client: &Client,
    name: Option<&str>,
    time: Time,
    by: &str,
) -> Result<Result<Replied, ClientError>, String> {
    let name = name.ok_or("shelve: which alarm? `ropewalk ctl shelve source_silent --for 1h`")?;
    Ok(client.shelve(name, time.0, by))
}

/// A line for each alarm.
pub(crate) fn lines(alarms: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |alarm: &Value| {
        let known = alarm["known_by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
        let shelved = match (alarm["shelved_seconds"].as_u64(), alarm["shelved_by"].as_str()) {
            (Some(seconds), Some(by)) => format!(", shelved by {by} for {seconds} s"),
            _ => String::new(),
        };
        format!("{:8} {}: {}{known}{shelved}", text(&alarm["severity"]), text(&alarm["name"]), text(&alarm["state"]))
    };
    alarms.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn alarms_are_listed_with_who_acknowledged_and_who_shelved_them() {
        let alarms = json!([
            { "name": "disk_full", "severity": "critical", "state": "normal", "known_by": null, "shelved_seconds": null },
            { "name": "slow", "severity": "notice", "state": "acknowledged", "known_by": "ada", "shelved_seconds": 60,
              "shelved_by": "bob" },
        ]);
        let expected = ["critical disk_full: normal", "notice   slow: acknowledged by ada, shelved by bob for 60 s"];
        assert_eq!(lines(alarms.as_array().expect("a list")), expected);
    }
}
