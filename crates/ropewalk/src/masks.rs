//! Masked sources, for `ctl`.

use ropewalk_control::{Client, ClientError, Replied};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// More sources than are in one range.
const MOST: usize = 1 << 16;
/// How long a run may take to say from which event on a source takes no part.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// Sources, written as `3,20-39,veto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sources(Vec<Word>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Word {
    Ids(RangeInclusive<u32>),
    Name(String),
}

impl FromStr for Sources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty()).map(word).collect::<Result<Vec<_>, _>>()?;
        if words.is_empty() {
            Err("expected source ids or names, such as 3,20-39,veto".to_owned())
        } else {
            Ok(Self(words))
        }
    }
}

/// An id, a range of ids, or a name.
fn word(word: &str) -> Result<Word, String> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
        return Ok(Word::Name(word.to_owned()));
    };
    if first > last || (last - first) as usize >= MOST {
        return Err(format!("`{word}` is not a range of at most {MOST} ids"));
    }
    Ok(Word::Ids(first..=last))
}

/// The configured names of sources, by id.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<u32, String>);

impl Names {
    /// Asks the server.
    pub(crate) fn ask(client: &Client) -> Result<Self, ClientError> {
        Ok(Self::of(&client.look("sources")?.body))
    }

    fn of(sources: &Value) -> Self {
        let sources = sources.as_array().into_iter().flatten();
        let named = |source: &Value| Some((source["id"].as_u64()? as u32, source["name"].as_str()?.to_owned()));
        Self(sources.filter_map(named).collect())
    }

    /// The ids of sources that are given by ids or names; otherwise, which name is unknown.
    pub(crate) fn ids(&self, sources: &[Sources]) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        for word in sources.iter().flat_map(|one| &one.0) {
            match word {
                Word::Ids(range) => ids.extend(range.clone()),
                Word::Name(name) => {
                    let known = self.0.iter().find(|(_, known)| *known == name).map(|(id, _)| *id);
                    let names = self.0.values().map(String::as_str);
                    ids.push(known.ok_or_else(|| ropewalk_config::no_such("source is named", name, names))?);
                }
            }
        }
        Ok(ids)
    }

    /// A source by its name, with its id: `veto (source 3)`.
    pub(crate) fn label(&self, id: &Value) -> String {
        let name = id.as_u64().and_then(|id| self.0.get(&(id as u32)));
        name.map_or_else(|| format!("source {id}"), |name| format!("{name} (source {id})"))
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

/// A line for each source that is masked, or was in this run.
pub(crate) fn lines(masks: &[Value], names: &Names) -> Vec<String> {
    if masks.is_empty() {
        return vec!["no source is masked".to_owned()];
    }
    let line = |mask: &Value| {
        let is_masked = mask["is_masked"] == true;
        let now = match mask["in_run"].as_str() {
            _ if is_masked => "takes no part",
            Some("asked_back") => "takes part again with its first fragment that continues the run's event numbers",
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
        format!("{} {now}{events}", names.label(&mask["source"]))
    };
    masks.iter().map(line).collect()
}

/// A line for each restarted source, and the outcome for all.
pub(crate) fn restarted(answer: &Value, names: &Names) -> Vec<String> {
    let label = |one: &Value| names.label(&one["source"]);
    let line = |one: &Value| match one["out_from"].as_str() {
        Some(from) => format!("{} is out from event {from} on", label(one)),
        None => format!("{}: it is unknown from which event on it is out", label(one)),
    };
    let lines = answer["restarted"].as_array().into_iter().flatten().map(line);
    lines.chain(answer["text"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names() -> Names {
        Names::of(&json!([{ "id": 3, "name": "veto" }, { "id": 4, "name": null }, { "id": 9, "name": "telescope-2" }]))
    }

    #[test]
    fn sources_are_given_by_ids_ranges_and_names() {
        let ids = |text: &str| names().ids(&[text.parse::<Sources>()?]);
        assert_eq!(ids("3,20-22, 7"), Ok(vec![3, 20, 21, 22, 7]));
        assert_eq!(ids("telescope-2,4,veto"), Ok(vec![9, 4, 3]));
        assert_eq!(ids("veta"), Err("no source is named `veta`; did you mean `veto`?".to_owned()));
        for wrong in ["", ",", "5-4", "0-4294967295", "calorimeter"] {
            assert!(ids(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_outcome_of_a_restart_is_printed() {
        let restarted = json!([{ "source": 3, "out_from": "1:5" }, { "source": 4, "out_from": null }]);
        let answer = json!({ "answer": "late", "text": "so it is", "restarted": restarted });
        let expected = [
            "veto (source 3) is out from event 1:5 on",
            "source 4: it is unknown from which event on it is out",
            "so it is",
        ];
        assert_eq!(super::restarted(&answer, &names()), expected);
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
            "veto (source 3) takes no part; masked from event 5 on",
            "source 4 takes part again with its first fragment that continues the run's event numbers; masked from event 5 on",
            "source 5 takes part; masked from event 1 to before 9, from event 1:2 to before 1:8",
            "source 6 takes no part",
        ];
        assert_eq!(lines(masks.as_array().expect("a list"), &names()), expected);
        assert_eq!(lines(&[], &names()), ["no source is masked"]);
    }
}
