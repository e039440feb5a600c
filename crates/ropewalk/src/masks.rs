//! Masked sources, for `ctl`.

use ropewalk_control::{Client, ClientError, Replied};
use serde_json::Value;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// More sources than are named at once.
const MOST: usize = 1 << 16;
/// How long a run may take to say from which event on a source takes no part.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// Source ids, written as `3,20-39`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceIds(Vec<u32>);

impl SourceIds {
    /// All ids of several texts.
    pub(crate) fn all(texts: &[Self]) -> Vec<u32> {
        texts.iter().flat_map(|ids| &ids.0).copied().collect()
    }
}

impl FromStr for SourceIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sources(text).map(Self)
    }
}

/// Masks or unmasks sources, and waits until the current run reports the first event of the change.
pub(crate) fn mask(client: &Client, sources: &[u32], is_masked: bool, by: &str) -> Result<Replied, ClientError> {
    let replied = client.mask(sources, is_masked, by)?;
    wait(client, replied, sources, is_masked)
}

/// Returns what is known if no run is under way, or if the run does not report in time.
fn wait(client: &Client, mut replied: Replied, sources: &[u32], is_masked: bool) -> Result<Replied, ClientError> {
    let state = client.look("state")?.body["state"].as_str().unwrap_or_default().to_owned();
    let is_under_way = ["running", "paused", "draining"].contains(&state.as_str());
    let begun = Instant::now();
    while replied.status == 200 && is_under_way && begun.elapsed() < PATIENCE {
        let masks = replied.body.as_array().into_iter().flatten();
        let mut of_these = masks.filter(|mask| sources.iter().any(|&source| mask["source"] == source));
        if of_these.all(|mask| (mask["in_run"] == "masked") == is_masked) {
            break;
        }
        sleep(LOOK);
        replied = client.look("masks")?;
    }
    Ok(replied)
}

/// The ids in `3,20-39`.
fn sources(text: &str) -> Result<Vec<u32>, String> {
    let mut sources = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        let number = |text: &str| {
            text.parse::<u32>().map_err(|_| format!("`{word}` is not a source id or a range such as 20-39"))
        };
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || (last - first) as usize >= MOST - sources.len() {
            return Err(format!("`{word}` is not a range of at most {MOST} ids"));
        }
        sources.extend(first..=last);
    }
    if sources.is_empty() { Err("expected source ids, such as 3,20-39".to_owned()) } else { Ok(sources) }
}

/// A line for each source that is masked, or was in this run.
pub(crate) fn lines(masks: &[Value]) -> Vec<String> {
    if masks.is_empty() {
        return vec!["no source is masked".to_owned()];
    }
    let line = |mask: &Value| {
        let is_masked = mask["is_masked"] == true;
        let now = match mask["in_run"].as_str() {
            _ if is_masked => "takes no part",
            Some("asked_back") => "takes part again as soon as it sends what goes on with the run's numbers",
            _ => "takes part",
        };
        let event = |event: &Value| event.as_str().unwrap_or("?").to_owned();
        let interval = |one: &Value| {
            let until =
                if one["to"].is_null() { " on".to_owned() } else { format!(" to before {}", event(&one["to"])) };
            format!("from event {}{until}", event(&one["from"]))
        };
        let events: Vec<_> = mask["events"].as_array().into_iter().flatten().map(interval).collect();
        let events = if events.is_empty() { String::new() } else { format!("; masked {}", events.join(", ")) };
        format!("source {} {now}{events}", mask["source"])
    };
    masks.iter().map(line).collect()
}

/// A line for each restarted source, and the outcome for all.
pub(crate) fn restarted(answer: &Value) -> Vec<String> {
    let line = |one: &Value| match one["out_from"].as_str() {
        Some(from) => format!("source {} is out from event {from} on", one["source"]),
        None => format!("source {}: it is unknown from which event on it is out", one["source"]),
    };
    let lines = answer["restarted"].as_array().into_iter().flatten().map(line);
    lines.chain(answer["text"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_and_ranges_of_ids_are_read() {
        assert_eq!(sources("3,20-22, 7"), Ok(vec![3, 20, 21, 22, 7]));
        for wrong in ["", ",", "a", "3-", "5-4", "0-4294967295", "-1"] {
            assert!(sources(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_outcome_of_a_restart_is_printed() {
        let restarted = json!([{ "source": 3, "out_from": "1:5" }, { "source": 4, "out_from": null }]);
        let answer = json!({ "answer": "late", "text": "so it is", "restarted": restarted });
        let expected =
            ["source 3 is out from event 1:5 on", "source 4: it is unknown from which event on it is out", "so it is"];
        assert_eq!(super::restarted(&answer), expected);
    }

    #[test]
    fn the_effect_of_masks_is_printed() {
        let masks = json!([
            { "source": 3, "is_masked": true, "in_run": "masked", "events": [{ "from": "5", "to": null }] },
            { "source": 4, "is_masked": false, "in_run": "asked_back", "events": [{ "from": "5", "to": null }] },
            { "source": 5, "is_masked": false, "in_run": "takes_part",
              "events": [{ "from": "1", "to": "9" }, { "from": "1:2", "to": "1:8" }] },
            { "source": 6, "is_masked": true, "in_run": "takes_part", "events": [] },
        ]);
        let expected = [
            "source 3 takes no part; masked from event 5 on",
            "source 4 takes part again as soon as it sends what goes on with the run's numbers; masked from event 5 on",
            "source 5 takes part; masked from event 1 to before 9, from event 1:2 to before 1:8",
            "source 6 takes no part",
        ];
        assert_eq!(lines(masks.as_array().expect("a list")), expected);
        assert_eq!(lines(&[]), ["no source is masked"]);
    }
}
