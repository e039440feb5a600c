//! What to do about a source of which most or all is no use: which key would help, by the cause that its fragments have.

use super::source_summary::FragmentSummary;
use super::summary::RunSummary;
use ropewalk_config::{Configuration, SourceSection};
use ropewalk_terms::Requirement;

/// A line for each source of which most fragments were lost for one cause, or nothing came, for people.
pub fn advice(configuration: &Configuration, summary: &RunSummary) -> Vec<String> {
    let of = |source: &SourceSection| {
        let account = summary.by_source.get(&source.id.to_string())?;
        let what = about(source, account)?;
        Some(format!("source {} ({}): {what}", source.id, source.name_or_id()))
    };
    configuration.source.iter().filter_map(of).collect()
}

fn about(source: &SourceSection, account: &FragmentSummary) -> Option<String> {
    let received = account.received;
    if received == 0 {
        let is_missed = source.requirement == Requirement::Required;
        return is_missed.then(|| format!("nothing came: {}", way(source)));
    }
    let repeated = account.duplicate;
    if repeated * 3 >= received && source.gathering().is_none() && source.description().is_some() {
        return Some(format!(
            "{repeated} of {received} fragments are `duplicate`: frames have the number of the event before them. Where several \
             frames of an event follow each other, `gather = true` makes one fragment of them"
        ));
    }
    let causes = account.dropped.iter().map(|(cause, count)| (cause.name(), count));
    let kinds = [("corrupt", account.corrupt), ("stale", account.stale)];
    let (cause, count) = causes.chain(kinds).max_by_key(|(_, count)| *count)?;
    if count <= received / 2 {
        return None;
    }
    Some(format!("{count} of {received} fragments are `{cause}`: {}", remedy(source, cause)?))
}

/// Where nothing comes from, and what to look at.
fn way(source: &SourceSection) -> String {
    let places = [("listen", &source.listen), ("connect", &source.connect)];
    let place = places.into_iter().find_map(|(key, place)| place.as_ref().map(|place| (key, place)));
    match place {
        Some((key, place)) if source.demux.is_some() => {
            format!("compare `is` of `demux`, and `{key}` ({place}), with who sends and where to")
        }
        Some((key, place)) => format!("compare `{key}` ({place}) with where the board sends to"),
        None if source.input.is_some() => {
            "compare `input`, and `packets` or `demux`, with what is in the file".to_owned()
        }
        None => "did it find its way here?".to_owned(),
    }
}

/// Which keys are behind such a cause.
fn remedy(source: &SourceSection, cause: &str) -> Option<String> {
    let jump = if cause == "stale" { "lie before that of the first event" } else { "do not go on one by one" };
    let text = match cause {
        "corrupt" | "implausible_jump" | "out_of_sync" | "stale" if source.numbers_grow() => return None,
        "corrupt" | "implausible_jump" | "out_of_sync" | "stale" if source.has_layout() => format!(
            "the numbers of its events {jump}. Where they are times, which only grow: `numbers = \"growing\"` in `event`. \
             Otherwise compare place, type and byte order of `event`, and `first`, with what the board sends"
        ),
        "corrupt" | "implausible_jump" | "out_of_sync" | "stale" => {
            format!("the numbers of its events {jump}: compare `first` with what it sends")
        }
        "not_matched" => format!("they do not have the bytes of `match`; {}", trial(source)),
        "framing_lost" | "sync_lost" | "oversize" | "short_packet" | "malformed" => {
            format!(
                "frames are not where `{}` says; {}",
                if source.has_layout() { "frame" } else { "format" },
                trial(source)
            )
        }
        "truncated" => "they are longer than `max_fragment`".to_owned(),
        "pieces_missing" => "compare the keys of `frame.pieces`, and its `timeout`, with what comes".to_owned(),
        _ => return None,
    };
    Some(text)
}

fn trial(source: &SourceSection) -> String {
    let name = source.name_or_id();
    format!("`ropewalk source test CONFIG --source {name} --input RECORDING` shows the first bad place")
}
