//! Prints how many lines of Rust code the repository has: per crate, and in groups.
//!
//! A line of code holds something besides comments and blanks. Tests are counted apart: items under `#[cfg(test)]`
//! or `#[test]`, files that only such modules declare, and everything in `tests/` and `benches/` directories.

use ropewalk_tidy::modules::{declarations, included, places};
use ropewalk_tidy::source::{Source, words};
use ropewalk_tidy::tree::{TextFile, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let files: BTreeMap<PathBuf, &str> = rust_files().map(|file| (PathBuf::from(&file.path), &*file.text)).collect();
    let product = product_files(&files);
    let mut table = Table::default();
    for file in rust_files() {
        table.add(file, product.contains(Path::new(&file.path)));
    }
    io::stdout().lock().write_all(table.text().as_bytes())
}

/// What a line of code is for.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Group {
    Product,
    Simulator,
    Measurement,
    Tests,
    /// Examples and fuzz targets.
    Examples,
}

impl Group {
    const ALL: [(Self, &str); 5] = [
        (Self::Product, "product"),
        (Self::Simulator, "simulator"),
        (Self::Measurement, "bench, lab and limits"),
        (Self::Tests, "tests"),
        (Self::Examples, "examples and fuzz targets"),
    ];

    /// The group of the code in `path` that is not for tests.
    fn of(path: &str) -> Self {
        let mut parts = path.split('/');
        let (Some("crates"), Some(name), Some(place)) = (parts.next(), parts.next(), parts.next()) else {
            return Self::Examples;
        };
        match name {
            _ if place == "examples" => Self::Examples,
            "tidy" => Self::Tests,
            "sim" => Self::Simulator,
            "io" if parts.any(|part| part.starts_with("simulated")) => Self::Simulator,
            "bench" | "lab" | "limits" => Self::Measurement,
            _ => Self::Product,
        }
    }
}

/// The counts of one crate.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
struct Count {
    files: usize,
    code: usize,
    tests: usize,
}

/// All counts.
#[derive(Default)]
struct Table {
    crates: BTreeMap<String, Count>,
    groups: BTreeMap<Group, usize>,
}

impl Table {
    /// Adds `file`. Where it `is_product` only the tests in it count as tests.
    fn add(&mut self, file: &TextFile, is_product: bool) {
        let group = Group::of(&file.path);
        let (all, code) = (code_lines(&file.text), code_lines(&without_tests(&file.text)));
        let code = if is_product || group == Group::Examples { code } else { 0 };
        let mut parts = file.path.split('/');
        let name = match parts.next() {
            Some("crates") => parts.next().unwrap_or_default(),
            directory => directory.unwrap_or_default(),
        };
        let count = self.crates.entry(name.to_owned()).or_default();
        count.files += 1;
        count.code += code;
        count.tests += all - code;
        *self.groups.entry(group).or_default() += code;
        *self.groups.entry(Group::Tests).or_default() += all - code;
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{:<26} {:>6} {:>8} {:>8}", "crate", "files", "code", "tests")];
        let row =
            |name: &str, count: &Count| format!("{name:<26} {:>6} {:>8} {:>8}", count.files, count.code, count.tests);
        lines.extend(self.crates.iter().map(|(name, count)| row(name, count)));
        let sum = self.crates.values().fold(Count::default(), |sum, count| Count {
            files: sum.files + count.files,
            code: sum.code + count.code,
            tests: sum.tests + count.tests,
        });
        lines.push(row("all", &sum));
        lines.push(String::new());
        lines.push(format!("{:<33} {:>8}", "group", "code"));
        let group = |(group, name)| format!("{name:<33} {:>8}", self.groups.get(&group).unwrap_or(&0));
        lines.extend(Group::ALL.map(group));
        lines.push(format!("{:<33} {:>8}", "Rust files", sum.files));
        lines.join("\n") + "\n"
    }
}

/// The lines that hold something besides comments and blanks.
fn code_lines(text: &str) -> usize {
    let comments = Source::new(text).comments;
    let is_code = |(line, comment): (&[u8], &[u8])| {
        line.iter().zip(comment).any(|(byte, comment)| !byte.is_ascii_whitespace() && *comment == b' ')
    };
    let lines = text.as_bytes().split(|&byte| byte == b'\n');
    lines.zip(comments.as_bytes().split(|&byte| byte == b'\n')).filter(|&pair| is_code(pair)).count()
}

/// The files that the targets of a crate are built from when nothing is tested.
fn product_files(files: &BTreeMap<PathBuf, &str>) -> BTreeSet<PathBuf> {
    let mut waiting: Vec<(PathBuf, bool)> =
        files.keys().filter(|path| is_root(path)).map(|path| (path.clone(), true)).collect();
    let mut reached = BTreeSet::new();
    while let Some((path, is_root)) = waiting.pop() {
        let Some(text) = files.get(&path) else { continue };
        let text = without_tests(text);
        if !reached.insert(path.clone()) {
            continue;
        }
        let modules = declarations(&text);
        waiting.extend(modules.iter().flat_map(|module| places(&path, is_root, module)).map(|place| (place, false)));
        let directory = path.parent().unwrap_or(Path::new(""));
        waiting.extend(included(&text).into_iter().map(|name| (directory.join(name), true)));
    }
    reached
}

/// Whether cargo builds a library, a program or an example from `path`, by the places that it knows.
fn is_root(path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let mut parts = path.splitn(3, '/');
    let (Some("crates"), Some(_), Some(inside)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let is_target = |directory: &str| {
        let name = inside.strip_prefix(directory);
        name.is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs") && name.matches('/').count() == 1)
    };
    ["build.rs", "src/lib.rs", "src/main.rs"].contains(&inside) || is_target("src/bin/") || is_target("examples/")
}

/// `text` with blanks in place of every item that only tests have.
fn without_tests(text: &str) -> String {
    let code = Source::new(text).code;
    let mut bytes = text.as_bytes().to_vec();
    for range in test_items(&code) {
        bytes[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(bytes).expect("items begin and end with ASCII characters")
}

/// Where items of tests lie in masked code, each with its attributes.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = code[at..].find('#').map(|place| at + place) {
        let Some(attributes) = Attributes::at(code, start) else {
            at = start + 1;
            continue;
        };
        at = attributes.end;
        if attributes.is_test {
            let end = if attributes.is_inner { code.len() } else { item_end(code, attributes.end) };
            found.push(start..end);
            at = end;
        }
    }
    found
}

/// Attributes that follow each other: `#[cfg(test)] #[path = "x.rs"]`, or one `#![cfg(test)]`.
struct Attributes {
    end: usize,
    is_test: bool,
    is_inner: bool,
}

impl Attributes {
    fn at(code: &str, start: usize) -> Option<Self> {
        let is_inner = code[start..].starts_with("#![");
        let mut all = Self { end: start, is_test: false, is_inner };
        loop {
            let open = all.end + code[all.end..].len() - code[all.end..].trim_start().len();
            let opening = if is_inner { "#![" } else { "#[" };
            let Some(inside) = code[open..].strip_prefix(opening) else { break };
            let close = open + opening.len() + closing(inside)?;
            let text: String = code[open + opening.len()..close].split_whitespace().collect();
            all.is_test |= text == "test" || predicate(&text).is_some_and(|cfg| value(cfg) == Some(false));
            all.end = close + 1;
            if is_inner {
                break;
            }
        }
        (all.end > start).then_some(all)
    }
}

/// What is in the parentheses of `cfg(...)`.
fn predicate(attribute: &str) -> Option<&str> {
    attribute.strip_prefix("cfg(")?.strip_suffix(')')
}

/// The value of a predicate in a product build; `None` if it depends on the machine or on features.
fn value(predicate: &str) -> Option<bool> {
    let inside = |name: &str| predicate.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    // One value decides the whole list: false in `all`, true in `any`.
    let combine = |list: &str, decisive: bool| {
        let values: Vec<Option<bool>> = split(list).into_iter().map(value).collect();
        let others = if values.contains(&None) { None } else { Some(!decisive) };
        if values.contains(&Some(decisive)) { Some(decisive) } else { others }
    };
    if let Some(list) = inside("all") {
        return combine(list, false);
    }
    if let Some(list) = inside("any") {
        return combine(list, true);
    }
    if let Some(predicate) = inside("not") {
        return value(predicate).map(|value| !value);
    }
    ["test", "doctest", "fuzzing", "loom", "miri"].contains(&predicate).then_some(false)
}

/// The parts of a list between its commas, those in parentheses left whole.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// The length up to the bracket that closes one that was opened before `code`.
fn closing(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => return Some(at),
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where the item, field or statement that starts at `from` ends.
fn item_end(code: &str, from: usize) -> usize {
    let first = words(&code[from..]).map(|(_, word)| word).find(|word| !["pub", "crate", "super", "in"].contains(word));
    let first = first.unwrap_or_default();
    let declares = ITEMS.contains(&first);
    let head = code[from..].split(['{', ';', '=']).next().unwrap_or_default();
    let has_body = !["use", "static", "type", "let"].contains(&first)
        && (first != "const" || words(head).any(|(_, word)| word == "fn"));
    let (mut depth, mut angles) = (0usize, 0usize);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => return at,
            b'}' if depth == 1 && has_body => return at + 1,
            b')' | b']' | b'}' => depth -= 1,
            b'<' => angles += 1,
            b'>' if !code[..at].ends_with(['-', '=']) => angles = angles.saturating_sub(1),
            b';' if depth == 0 => return at + 1,
            b',' if depth == 0 && angles == 0 && !declares => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The words that an item or a statement starts with, so that a comma does not end it.
const ITEMS: &[&str] = &[
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "let",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "unsafe",
    "use",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_without_tests(text: &str) -> usize {
        code_lines(&without_tests(text))
    }

    #[test]
    fn comments_and_blank_lines_are_no_code() {
        let text = "//! Module.\n\n/// Doc comment.\nfn a() { // why\n    /* one /* two\n    */ still a comment\n    */\n}\n\
                    /** Doc\n block */ struct B;\n#[doc = \"text\"]\nstruct C;\n   \t\n";
        assert_eq!(code_lines(text), 5);
    }

    #[test]
    fn strings_are_code_whatever_they_hold() {
        let text = "const A: &str = \"// no comment\";\nconst B: &str = r#\"\n// still \"text\"\n/* open\n\n\"#;\n// '\"'\nlet c = '\"'; // \"\n";
        assert_eq!(code_lines(text), 6);
        assert_eq!(lines_without_tests("const A: &str = \"#[cfg(test)]\";\nfn b() {}\n"), 2);
    }

    #[test]
    fn a_test_module_ends_with_its_brace() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    const B: &str = \"}\";\n    fn c() {}\n}\nfn d() {}\n";
        assert_eq!(lines_without_tests(text), 2);
        assert_eq!(code_lines(text), 8);
    }

    #[test]
    fn single_items_of_tests_are_left_out() {
        let text = "struct A {\n    #[cfg(test)]\n    b: Map<u8, u8>,\n    c: u8,\n}\n\
                    impl A {\n    #[cfg(test)]\n    pub(crate) fn d<T, U>(&self) -> [u8; { 2 }]\n    where\n        T: X,\n    {\n    }\n    fn e() {}\n}\n\
                    #[cfg(test)]\nuse f::{g, h};\n#[cfg(test)]\nconst I: J = J { k: 1 };\n#[test]\nfn l() {}\n#[cfg(test)]\nstruct M(u8, u8);\nfn n() {}\n";
        assert_eq!(lines_without_tests(text), 3 + 3 + 1);
    }

    #[test]
    fn predicates_are_judged_for_a_product_build() {
        for (text, expected) in [
            ("test", Some(false)),
            ("all(test,not(loom))", Some(false)),
            ("not(all(loom,test))", Some(true)),
            ("any(test,fuzzing)", Some(false)),
            ("any(test,unix)", None),
            ("all(unix,not(miri))", None),
            ("feature=", None),
            ("not(test)", Some(true)),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert_eq!(lines_without_tests("#![cfg(test)]\nfn a() {}\n"), 0);
        assert_eq!(lines_without_tests("#![forbid(unsafe_code)]\n#[cfg(unix)]\nfn a() {}\n"), 3);
    }

    #[test]
    fn files_of_test_modules_are_tests() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "mod b;\n#[cfg(test)]\nmod c;\n#[cfg(test)]\n#[path = \"far/away.rs\"]\nmod d;\nmod e;\n",
            ),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\nmod f;\n"),
            ("crates/a/src/b/tests/mod.rs", "mod deep;\n"),
            ("crates/a/src/b/tests/deep.rs", ""),
            ("crates/a/src/b/f.rs", ""),
            ("crates/a/src/c.rs", "mod g;\n"),
            ("crates/a/src/c/g.rs", ""),
            ("crates/a/src/far/away.rs", ""),
            ("crates/a/src/e/mod.rs", "include!(\"table.rs\");\n"),
            ("crates/a/src/e/table.rs", ""),
            ("crates/a/src/bin/h.rs", ""),
            ("crates/a/src/bin/i/main.rs", "mod j;\n"),
            ("crates/a/src/bin/i/j.rs", ""),
            ("crates/a/tests/k.rs", "mod support;\n"),
        ];
        let files = files.map(|(path, text)| (PathBuf::from(path), text)).into_iter().collect();
        let found: Vec<String> = product_files(&files).iter().map(|path| path.display().to_string()).collect();
        let expected =
            ["b/f.rs", "b.rs", "bin/h.rs", "bin/i/j.rs", "bin/i/main.rs", "e/mod.rs", "e/table.rs", "lib.rs"];
        assert_eq!(found, expected.map(|path| format!("crates/a/src/{path}")));
    }

    #[test]
    fn every_file_has_a_group() {
        for (path, group) in [
            ("crates/flow/src/lib.rs", Group::Product),
            ("crates/io/src/tcp/mod.rs", Group::Product),
            ("crates/io/src/disk/simulated.rs", Group::Simulator),
            ("crates/io/src/simulated/network.rs", Group::Simulator),
            ("crates/sim/src/lib.rs", Group::Simulator),
            ("crates/limits/src/main.rs", Group::Measurement),
            ("crates/io/examples/echo.rs", Group::Examples),
            ("fuzz/fuzz_targets/fed.rs", Group::Examples),
            ("crates/tidy/src/lib.rs", Group::Tests),
        ] {
            assert_eq!(Group::of(path), group, "{path}");
        }
    }

    #[test]
    fn a_table_adds_up() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let mut table = Table::default();
        table.add(&file("crates/a/src/lib.rs", "fn a() {}\n#[cfg(test)]\nmod tests;\n"), true);
        table.add(&file("crates/a/src/tests.rs", "fn b() {}\n"), false);
        table.add(&file("fuzz/fuzz_targets/c.rs", "fn c() {}\n"), false);
        assert_eq!(table.crates["a"], Count { files: 2, code: 1, tests: 3 });
        assert_eq!(table.groups[&Group::Tests], 3);
        assert!(table.text().ends_with("Rust files                               3\n"), "{}", table.text());
    }
}
