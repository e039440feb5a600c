//! `bench compare`: the same bench of two builds, in turns, and a verdict on each case.
//!
//! ```text
//!  pair 1: A, B   pair 2: B, A   pair 3: A, B ...      each a whole run of `ropewalk-lab bench NAME --json`
//!  ratio of a case in a pair: B's median to A's        what disturbs both runs of a pair cancels
//! ```

use crate::arguments::{CompareOptions, Measured};
use ropewalk_bench::{is_lower_better, median, text_of};
use ropewalk_console::exit::{self, Failure};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LABORATORY: &str = "ropewalk-lab";
/// Tolerated relative loss of a case before the comparison fails.
const TOLERATED: f64 = 0.03;
/// The exit status if a case is worse.
const WORSE: u8 = 1;

pub(crate) fn compare(options: &CompareOptions) -> Result<u8, Failure> {
    let programs = [laboratory(&options.before)?, laboratory(&options.after)?];
    let mut cases = Cases::default();
    let mut machine = None;
    for pair in 0..options.pairs {
        tell!("pair {} of {}", pair + 1, options.pairs);
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let run = take(&programs[side], &options.name, &options.measured)?;
            machine = machine.or(cases.add(side, pair, &run));
        }
    }
    let outcomes = cases.outcomes();
    print(options, &programs, machine, &outcomes);
    let failed = outcomes.iter().filter(|outcome| outcome.is_failure()).count();
    if failed == 0 {
        return Ok(exit::GOOD);
    }
    let percent = TOLERATED * 100.0;
    tell!("exit status {WORSE}: of {} cases {failed} are worse by more than {percent} %, or fail in B", outcomes.len());
    Ok(WORSE)
}

/// The program that a path refers to.
fn laboratory(path: &Path) -> Result<PathBuf, Failure> {
    let program = if path.is_dir() { path.join(LABORATORY) } else { path.to_owned() };
    // A relative name without a directory would be searched in PATH.
    std::fs::canonicalize(&program).map_err(|error| {
        Failure::Usage(format!(
            "{}: {error}; give a ropewalk-lab, or a directory with ropewalk and ropewalk-lab \
             (`cargo build --release -p ropewalk -p ropewalk-lab`)",
            program.display()
        ))
    })
}

/// The lines that one run of a bench prints.
fn take(program: &Path, name: &str, measured: &Measured) -> Result<Vec<Value>, Failure> {
    let mut command = Command::new(program);
    command.args(["bench", name, "--json", "--output"]).arg(&measured.output);
    if measured.quick {
        command.arg("--quick");
    }
    if let Some(case) = &measured.case {
        command.args(["--case", case]);
    }
    let ended = command.stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| Failure::Environment(format!("{}: {error}", program.display())))?;
    let printed = String::from_utf8_lossy(&ended.stdout);
    let mut lines: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let errors = String::from_utf8_lossy(&ended.stderr);
    let why = || format!("{}: {}: {}", program.display(), ended.status, errors.trim());
    match ended.status.code() {
        // Status 1: it has reported which cases failed.
        Some(0 | 1) => {}
        Some(code) if code == i32::from(exit::USAGE) => return Err(Failure::Usage(why())),
        _ if lines.iter().all(|line| line["median"].is_null()) => return Err(Failure::Environment(why())),
        // Older builds end at the first failed case.
        _ => lines.push(json!({ "case": { "the whole bench": "" }, "failed": errors.trim() })),
    }
    Ok(lines)
}

/// A case and its unit: some cases have several figures.
type Key = (String, String);

/// Figures of each case, by pair, of A and of B.
#[derive(Default)]
struct Cases {
    /// In the order of arrival.
    order: Vec<Key>,
    cases: BTreeMap<Key, Case>,
}

#[derive(Default)]
struct Case {
    case: Map<String, Value>,
    figures: [BTreeMap<u32, f64>; 2],
    /// Why it failed, in A and in B.
    failed: [Option<String>; 2],
}

impl Cases {
    /// Stores the output of a run. Returns its line about the machine.
    fn add(&mut self, side: usize, pair: u32, lines: &[Value]) -> Option<Value> {
        for line in lines {
            let Some(case) = line["case"].as_object() else { continue };
            let unit = line["unit"].as_str().unwrap_or_default();
            let key = (text_of(case), unit.to_owned());
            let failed = line["failed"].as_str();
            let Some(figure) = line["median"].as_f64().map(Ok).or(failed.map(Err)) else { continue };
            let kept = self.cases.entry(key.clone()).or_insert_with(|| {
                self.order.push(key);
                Case { case: case.clone(), ..Case::default() }
            });
            match figure {
                Ok(figure) => drop(kept.figures[side].insert(pair, figure)),
                Err(why) => kept.failed[side] = Some(why.to_owned()),
            }
        }
        lines.iter().find(|line| line["bench"] == "machine").cloned()
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.order.iter().map(|key| self.cases[key].outcome(&key.1)).collect()
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Better,
    Worse,
    NoDifference,
    /// B does not have the case.
    OnlyA,
    /// A does not have the case.
    OnlyB,
    /// Failed in at least one of them.
    Failed,
}

impl Verdict {
    const fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::OnlyA => "only A has this case",
            Self::OnlyB => "only B has this case",
            Self::Failed => "failed",
        }
    }
}

/// The comparison of a case in two builds: one object of `--json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Outcome {
    case: Map<String, Value>,
    unit: String,
    lower_is_better: bool,
    /// The medians of A and of B.
    a: Option<f64>,
    b: Option<f64>,
    /// B to A: the median of the pairs' ratios, the smallest, the largest, and their number.
    ratio: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    pairs: usize,
    verdict: Verdict,
    /// Why it failed, in A and in B.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<[Option<String>; 2]>,
}

impl Case {
    fn outcome(&self, unit: &str) -> Outcome {
        let [before, after] = &self.figures;
        let of_pair = |(pair, before): (&u32, &f64)| after.get(pair).map(|after| ratio(*before, *after));
        let ratios: Vec<f64> = before.iter().filter_map(of_pair).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let lower_is_better = is_lower_better(unit);
        let verdict = if self.failed.iter().any(Option::is_some) {
            Verdict::Failed
        } else if after.is_empty() {
            Verdict::OnlyA
        } else if before.is_empty() {
            Verdict::OnlyB
        } else if ratios.is_empty() || (least <= 1.0 && most >= 1.0) {
            Verdict::NoDifference
        } else if (least > 1.0) == lower_is_better {
            Verdict::Worse
        } else {
            Verdict::Better
        };
        let middle = |side: &BTreeMap<u32, f64>| (!side.is_empty()).then(|| median(side.values().copied()));
        let of_ratios = |figure| (!ratios.is_empty()).then_some(figure);
        Outcome {
            case: self.case.clone(),
            unit: unit.to_owned(),
            lower_is_better,
            a: middle(before),
            b: middle(after),
            ratio: of_ratios(median(ratios.iter().copied())),
            min: of_ratios(least),
            max: of_ratios(most),
            pairs: ratios.len(),
            verdict,
            failed: (verdict == Verdict::Failed).then(|| self.failed.clone()),
        }
    }
}

/// B to A; two zeros are equal.
fn ratio(before: f64, after: f64) -> f64 {
    if before == after { 1.0 } else { after / before }
}

impl Outcome {
    /// Whether it makes the comparison fail.
    fn is_failure(&self) -> bool {
        let worse_by = |ratio: f64| if self.lower_is_better { ratio - 1.0 } else { 1.0 - ratio };
        match self.verdict {
            Verdict::Worse => self.ratio.is_some_and(|ratio| worse_by(ratio) > TOLERATED),
            Verdict::Failed => self.failed.as_ref().is_some_and(|[before, after]| before.is_none() && after.is_some()),
            _ => false,
        }
    }

    fn line(&self) -> String {
        let number = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.3}"));
        let mut line = format!(
            "{:<52} {:>9} {:>9} {:>6} {:>6} {:>6} {:>3}  {}, {}",
            text_of(&self.case),
            number(self.a),
            number(self.b),
            number(self.ratio),
            number(self.min),
            number(self.max),
            self.pairs,
            self.unit,
            self.verdict.text(),
        );
        for (name, why) in ["A", "B"].iter().zip(self.failed.iter().flatten()) {
            if let Some(why) = why {
                line.push_str(&format!("\n    {name}: {why}"));
            }
        }
        line
    }
}

fn print(options: &CompareOptions, programs: &[PathBuf; 2], machine: Option<Value>, outcomes: &[Outcome]) {
    let [before, after] = programs;
    if options.measured.json {
        machine.iter().for_each(|machine| say!("{machine}"));
        let (name, pairs) = (&options.name, options.pairs);
        say!("{}", json!({ "bench": "compare", "name": name, "pairs": pairs, "a": before, "b": after }));
        outcomes.iter().for_each(|outcome| say!("{}", json!(outcome)));
        return;
    }
    say!("A: {}\nB: {}\n", before.display(), after.display());
    say!("{:<52} {:>9} {:>9} {:>6} {:>6} {:>6} {:>3}  unit, verdict", "case", "A", "B", "B/A", "min", "max", "n");
    outcomes.iter().for_each(|outcome| say!("{}", outcome.line()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(case: &str, unit: &str, median: f64) -> Value {
        json!({ "bench": "any", "case": { "case": case }, "unit": unit, "median": median })
    }

    /// The outcome of a case with these figures of A and of B.
    fn outcome(unit: &str, pairs: &[(f64, f64)]) -> Outcome {
        let mut cases = Cases::default();
        for (pair, (before, after)) in (0..).zip(pairs) {
            cases.add(0, pair, &[line("one", unit, *before)]);
            cases.add(1, pair, &[line("one", unit, *after)]);
        }
        cases.outcomes().remove(0)
    }

    #[test]
    fn a_verdict_needs_all_ratios_on_one_side_of_1() {
        let better = outcome("GB/s", &[(1.0, 1.1), (2.0, 2.1), (1.0, 1.2)]);
        assert_eq!((better.verdict, better.is_failure(), better.pairs), (Verdict::Better, false, 3));
        assert!(better.ratio.is_some_and(|ratio| (ratio - 1.1).abs() < 1e-9), "{better:?}");
        assert_eq!(outcome("GB/s", &[(1.0, 1.1), (1.0, 0.9)]).verdict, Verdict::NoDifference);
        assert_eq!(outcome("GB/s", &[(1.0, 1.0), (1.0, 0.5)]).verdict, Verdict::NoDifference);
        assert_eq!(outcome("%", &[(0.0, 0.0)]).verdict, Verdict::NoDifference);
    }

    #[test]
    fn lower_is_better_where_the_unit_is_a_time_or_a_loss() {
        for (unit, verdict) in [("GB/s", Verdict::Worse), ("us", Verdict::Better), ("packets", Verdict::Better)] {
            assert_eq!(outcome(unit, &[(2.0, 1.0), (2.0, 1.5)]).verdict, verdict, "{unit}");
        }
        assert!(outcome("ns", &[(1.0, 1.04)]).is_failure());
    }

    #[test]
    fn a_case_may_be_worse_by_three_percent() {
        let little = outcome("GB/s", &[(1.0, 0.98), (1.0, 0.975)]);
        assert_eq!((little.verdict, little.is_failure()), (Verdict::Worse, false));
        assert!(outcome("GB/s", &[(1.0, 0.98), (1.0, 0.9)]).is_failure());
    }

    #[test]
    fn cases_of_one_build_alone_and_cases_that_fail_are_named() {
        let mut cases = Cases::default();
        let failed = |case: &str| json!({ "bench": "any", "case": { "case": case }, "failed": "no disk" });
        cases.add(0, 0, &[line("old", "GB/s", 1.0), line("both", "GB/s", 1.0), line("bad", "", 1.0)]);
        cases.add(1, 0, &[line("new", "GB/s", 1.0), line("both", "GB/s", 1.0), failed("bad")]);
        let outcomes = cases.outcomes();
        let verdicts: Vec<_> = outcomes.iter().map(|outcome| outcome.verdict).collect();
        assert_eq!(verdicts, [Verdict::OnlyA, Verdict::NoDifference, Verdict::Failed, Verdict::OnlyB]);
        assert_eq!(outcomes.iter().map(Outcome::is_failure).collect::<Vec<_>>(), [false, false, true, false]);
        assert!(outcomes[2].line().contains("B: no disk"), "{}", outcomes[2].line());
    }
}
