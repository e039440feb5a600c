//! Files of runs, for `ctl`.

use crate::render::grouped;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_control::{Client, ClientError, Replied};
use serde_json::Value;

/// Asks for the files of the run that a text names, or of the present one.
///
/// # Errors
/// Where the text is no number of a run.
pub(crate) fn files(client: &Client, text: Option<&str>) -> Result<Result<Replied, ClientError>, String> {
    let run = text.map(|text| text.parse().map_err(|_| format!("files {text}: the number of a run, or nothing")));
    Ok(client.files(run.transpose()?))
}

/// A table of files, and what there is to say of them together.
pub(crate) fn lines(answer: &Value) -> Vec<String> {
    let Some(run) = answer["run"].as_u64() else { return vec!["no run has left any files yet".to_owned()] };
    let files = answer["files"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| match value {
        Value::Number(number) => number.as_u64().map_or_else(String::new, grouped),
        value => value.as_str().unwrap_or_default().replace('_', " "),
    };
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["file", "state", "bytes", "events", "writer", "stream", "lumisection"]);
    for file in files {
        let path = file["path"].as_str().unwrap_or_default().to_owned();
        let rest = ["state", "bytes", "events", "writer", "lumisection"].map(|name| text(&file[name]));
        let [state, bytes, events, writer, lumisection] = rest;
        let stream = file["stream"].as_str().unwrap_or_default().to_owned();
        table.add_row([path, state, bytes, events, writer, stream, lumisection]);
    }
    for column in [2, 3, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let sum = |name: &str| files.iter().filter_map(|file| file[name].as_u64()).sum();
    let mut lines = vec![format!(
        "run {run}: {} files, {} bytes, {} events in those that are closed",
        files.len(),
        grouped(sum("bytes")),
        grouped(sum("events"))
    )];
    for (name, count, words) in [
        ("deleted", "segments", "files were deleted to stay within `keep`"),
        ("transfer", "deleted", "files were deleted when they were safe elsewhere"),
    ] {
        if let Some(count) = answer[name][count].as_u64().filter(|&count| count > 0) {
            lines.push(format!("{} {words}", grouped(count)));
        }
    }
    if !files.is_empty() {
        lines.push(table.to_string());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_are_told_in_a_table_with_their_sums() {
        let answer = json!({ "run": 7, "found": 2, "deleted": { "segments": 3 }, "transfer": null, "files": [
            { "path": "run000007/run000007-bu1-a_b-000002.rwk.open", "writer": "bu1", "stream": "a_b", "lumisection": null,
              "bytes": 1000, "events": null, "state": "open" },
            { "path": "run000007/run000007-bu0-a_b-000001.rwk", "writer": "bu0", "stream": "a_b", "lumisection": 4,
              "bytes": 12345, "events": 17, "state": "closed" },
        ] });
        let told = lines(&answer);
        assert_eq!(told[0], "run 7: 2 files, 13,345 bytes, 17 events in those that are closed");
        assert_eq!(told[1], "3 files were deleted to stay within `keep`");
        let rows: Vec<_> = told[2].lines().collect();
        assert!(
            rows.iter().any(|row| row.contains("run000007-bu0-a_b-000001.rwk") && row.contains("12,345")),
            "{told:?}"
        );
        assert_eq!(lines(&json!({ "run": null, "files": [] })), ["no run has left any files yet"]);
    }
}
