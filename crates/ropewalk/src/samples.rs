//! Samples of events, for `ctl`.

use crate::exit::{self, Failure};
use crate::render::{grouped, time_of_day};
use clap::Args;
use ropewalk_config::quantity::Bytes;
use ropewalk_control::{Client, ClientError, Replied};
use serde_json::Value;

/// The events to show.
#[derive(Debug, Args)]
pub(crate) struct SampleOptions {
    /// Maximum number of events per second, 0.01 to 20.
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    rate: f64,
    /// Number of events to show; by default until the server ends.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Select events without all required sources.
    #[arg(long)]
    incomplete: bool,
    /// Select events with a doubtful fragment.
    #[arg(long)]
    doubtful: bool,
    /// Source that must have a fragment.
    #[arg(long, value_name = "ID")]
    source: Option<u32>,
    /// Trigger type of the events.
    #[arg(long, value_name = "N")]
    trigger_type: Option<u16>,
    /// Minimum payload of the events.
    #[arg(long, value_name = "SIZE")]
    least_bytes: Option<Bytes>,
    /// Bytes of each fragment to show in hexadecimal [default: none; with --json 256].
    #[arg(long, value_name = "BYTES")]
    front: Option<u32>,
}

impl SampleOptions {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = vec![("rate", self.rate.to_string())];
        let numbers = [
            ("source", self.source.map(u64::from)),
            ("trigger_type", self.trigger_type.map(u64::from)),
            ("least_bytes", self.least_bytes.map(|bytes| bytes.0)),
            ("front", self.front.map(u64::from)),
        ];
        query.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string()))));
        for (name, is_wanted) in [("incomplete", self.incomplete), ("doubtful", self.doubtful)] {
            query.extend(is_wanted.then(|| (name, "true".to_owned())));
        }
        query
    }
}

/// Prints samples as they arrive, each as one line of JSON or as text: as many as requested, or until the server ends.
/// Prints the server's explanation if there are none.
pub(crate) fn samples(
    client: &Client,
    options: &SampleOptions,
    is_json: bool,
) -> Result<Result<u8, Replied>, ClientError> {
    if options.count == Some(0) {
        return Ok(Ok(exit::GOOD));
    }
    let samples = match client.samples(&options.query())? {
        Ok(samples) => samples,
        Err(refused) => return Ok(Err(refused)),
    };
    let (most, mut told) = (options.count.unwrap_or(u64::MAX), 0);
    for sample in samples {
        let sample = sample?;
        if is_json {
            say!("{sample}");
        } else {
            lines(&sample, options.front.is_some()).iter().for_each(|line| say!("{line}"));
        }
        told += 1;
        if told == most {
            return Ok(Ok(exit::GOOD));
        }
    }
    // Fewer samples than asked for.
    Ok(Ok(if options.count.is_some() { exit::LOST } else { exit::GOOD }))
}

/// The failure for a refusal.
pub(crate) fn refused(replied: &Replied) -> Failure {
    let why = replied.body["error"].as_str().unwrap_or("there are no samples").to_owned();
    if replied.status == 400 { Failure::Usage(why) } else { Failure::Environment(why) }
}

/// A sample as text: a line for the event, and one for each source with remarks.
fn lines(sample: &Value, with_bytes: bool) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| grouped(value.as_u64().unwrap_or(0));
    let sources = sample["sources"].as_array().map_or(&[][..], Vec::as_slice);
    let is_complete = if sample["is_complete"] == true { "complete" } else { "incomplete" };
    let there = sources.iter().filter(|source| source["missing"] == false).count();
    // Gateways have no lumisections.
    let lumisection = match &sample["lumisection"] {
        number if *number == 0 => String::new(),
        number => format!("lumisection {number}  "),
    };
    let mut lines = vec![format!(
        "{} event {}  {lumisection}{}  trigger type {}  {is_complete}  {there} fragments  {} bytes",
        time_of_day(sample["taken_ns"].as_i64().unwrap_or(0)),
        text(&sample["key"]),
        text(&sample["builder"]),
        sample["trigger_type"],
        number(&sample["bytes"]),
    )];
    for source in sources {
        let remarks: Vec<_> = source["remarks"].as_array().into_iter().flatten().map(text).collect();
        let remarks = remarks.join(", ");
        let said = match (source["missing"] == true, source["doubtful"] == true) {
            (true, _) => format!("missing: {remarks}"),
            (false, true) => format!("{} bytes, doubtful: {remarks}", number(&source["bytes"])),
            (false, false) if with_bytes => format!("{} bytes", number(&source["bytes"])),
            (false, false) => continue,
        };
        let bytes = if with_bytes { format!("  {}", text(&source["hex"])) } else { String::new() };
        lines.push(format!("  source {} {said}{bytes}", source["id"]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_printed_with_its_faults() {
        let source = |id: u32, missing: bool, doubtful: bool, remarks: &[&str]| json!({ "id": id, "bytes": 1200, "missing": missing, "doubtful": doubtful, "remarks": remarks, "hex": "0aff" });
        let sources = [
            source(3, false, false, &[]),
            source(4, false, true, &["wrong CRC"]),
            source(5, true, false, &["timed_out"]),
        ];
        let sample = json!({ "taken_ns": 3_661_000_000_000_i64, "key": "2:17", "lumisection": 4, "builder": "bu1", "trigger_type": 1,
            "is_complete": false, "bytes": 2400, "sources": sources });
        let event = "01:01:01 event 2:17  lumisection 4  bu1  trigger type 1  incomplete  2 fragments  2,400 bytes";
        let (doubtful, missing) = ("  source 4 1,200 bytes, doubtful: wrong CRC", "  source 5 missing: timed_out");
        assert_eq!(lines(&sample, false), [event, doubtful, missing]);
        let shown = lines(&sample, true);
        assert_eq!((shown.len(), shown[1].as_str()), (4, "  source 3 1,200 bytes  0aff"));
        let of_a_gateway = json!({ "taken_ns": 0, "key": "5", "lumisection": 0, "builder": "bu0", "trigger_type": 0, "is_complete": true,
            "bytes": 1200, "sources": [source(3, false, false, &[])] });
        let event = "00:00:00 event 5  bu0  trigger type 0  complete  1 fragments  1,200 bytes";
        assert_eq!(lines(&of_a_gateway, false), [event]);
    }
}
