//! A report as one HTML page that needs nothing else: what machine it was, charts, and every figure.

use crate::session::{Cpu, Row, text_of};
use ropewalk_sim::sizing::Chart;
use serde_json::Value;
use std::fmt::Write as _;

const STYLE: &str = "body{font:14px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}\
                     table{border-collapse:collapse}td,th{padding:.15em .7em;border-bottom:1px solid #ddd;text-align:right}\
                     td:first-child,th:first-child{text-align:left}svg{max-width:100%}";

/// The page.
pub(crate) fn page(name: &str, machine: &Value, rows: &[Row], charts: &[Chart]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>bench {name}</title>\
         <style>{STYLE}</style></head><body>\n<h1>bench {name}</h1>\n<table>\n"
    );
    for (key, value) in machine.as_object().into_iter().flatten().filter(|(key, _)| *key != "bench") {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", escaped(key), escaped(&value));
    }
    out.push_str("</table>\n");
    for chart in charts {
        out.push_str(&chart.to_svg());
    }
    let mut note = "";
    for row in rows {
        if row.note != note {
            let end = if note.is_empty() { "" } else { "</table>\n" };
            note = row.note;
            let _ = writeln!(
                out,
                "{end}<p>{}</p>\n<table>\n<tr><th>case</th><th>median</th><th>min</th><th>max</th><th>n</th>\
                 <th>limit</th><th>ratio</th><th>of pairs</th><th>unit</th><th>CPU-s/GB (limit), remarks</th></tr>",
                escaped(note)
            );
        }
        line(&mut out, row);
    }
    out.push_str(if rows.is_empty() { "</body></html>\n" } else { "</table>\n</body></html>\n" });
    out
}

fn line(out: &mut String, row: &Row) {
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let spread = row.ratio_spread.map_or_else(|| "-".to_owned(), |[least, most]| format!("{least:.2} to {most:.2}"));
    let cpu = row.cpu_seconds_per_gigabyte.map_or_else(String::new, |Cpu { ours, limit }| {
        format!("send {:.2} ({:.2}), receive {:.2} ({:.2})", ours[0], limit[0], ours[1], limit[1])
    });
    let _ = writeln!(
        out,
        "<tr><td>{}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td><td>{}</td><td>{}</td><td>{}</td><td>{spread}</td>\
         <td>{}</td><td>{cpu}{}</td></tr>",
        escaped(&text_of(&row.case)),
        row.median,
        row.min,
        row.max,
        row.repeats,
        or_dash(row.limit),
        or_dash(row.ratio_to_limit),
        row.unit,
        escaped(row.remark.as_deref().unwrap_or_default()),
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
