//! Sizes, times, rates, distributions and origins of bytes in text form: `2KiB`, `10s`, `poisson(100kHz)`, `fifo:PATH`.
//!
//! Configurations and the command line use the same texts. Every parse error names a correct form.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

pub use ropewalk_flow::source::{Random, SizeDistribution, TimeDistribution, TriggerRate};

/// A text that is not the quantity it should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct QuantityError {
    text: String,
    wanted: &'static str,
}

fn number_and_unit<'a>(text: &'a str, wanted: &'static str) -> Result<(f64, &'a str), QuantityError> {
    let text = text.trim();
    let split = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || QuantityError { text: text.to_owned(), wanted };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if number.is_finite() { Ok((number, unit.trim())) } else { Err(wrong()) }
}

/// A size in bytes: `512`, `2KiB`, `64MiB`, `2GiB`, `10kB`, `5MB`, `1GB`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bytes(pub u64);

const BYTES: &str = "a size, such as 2GiB, 64MiB, 2KiB, 5MB, 10kB or 512";

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = number_and_unit(text, BYTES)?;
        let factor: u64 = match unit {
            "" | "B" => 1,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(QuantityError { text: text.to_owned(), wanted: BYTES }),
        };
        Ok(Self((number * factor as f64).round() as u64))
    }
}

impl Bytes {
    /// As in a configuration: in the largest unit that gives a whole number.
    pub fn exact(self) -> String {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.into_iter().find(|(shift, _)| self.0 > 0 && self.0.trailing_zeros() >= *shift);
        unit.map_or_else(|| self.0.to_string(), |(shift, name)| format!("{}{name}", self.0 >> shift))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        match bytes {
            0..1024 => write!(out, "{bytes} B"),
            1024..0x10_0000 => write!(out, "{:.1} KiB", bytes as f64 / 1024.0),
            0x10_0000..0x4000_0000 => write!(out, "{:.1} MiB", bytes as f64 / 1_048_576.0),
            _ => write!(out, "{:.2} GiB", bytes as f64 / 1_073_741_824.0),
        }
    }
}

/// A length of time of at most [`Time::MOST`]: `250us`, `20ms`, `10s`, `2min`, `1h`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time(pub Duration);

impl Time {
    /// A century: a few times that fits into 64 bits of nanoseconds, so that sums need no care.
    pub const MOST: Self = Self(TimeDistribution::MOST);

    /// As in a configuration: in the largest unit that gives a whole number.
    pub fn exact(self) -> String {
        let units = [(60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let nanoseconds = self.0.as_nanos();
        let unit = units.into_iter().find(|(factor, _)| nanoseconds > 0 && nanoseconds.is_multiple_of(*factor));
        unit.map_or_else(|| "0s".to_owned(), |(factor, name)| format!("{}{name}", nanoseconds / factor))
    }
}

const TIME: &str = "a time with a unit, at most a century, such as 250us, 20ms, 10s, 2min or 1h";

impl FromStr for Time {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError { text: text.to_owned(), wanted: TIME };
        let (number, unit) = number_and_unit(text, TIME)?;
        let seconds = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let time = Duration::try_from_secs_f64(number * seconds).map(Self).map_err(|_| wrong())?;
        if time <= Self::MOST { Ok(time) } else { Err(wrong()) }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

/// How fast bytes go: `10Gb/s` (bits, as networks count), `2.5GB/s` (bytes, as disks and memories count).
#[derive(Copy, Clone, PartialEq, PartialOrd, Debug)]
pub struct Bandwidth {
    /// Bytes a second; above 0.
    pub bytes_per_second: f64,
}

const BANDWIDTH: &str = "a bandwidth, such as 10Gb/s, 100Mb/s (bits) or 2.5GB/s, 500MB/s (bytes)";

impl FromStr for Bandwidth {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError { text: text.to_owned(), wanted: BANDWIDTH };
        let (number, unit) = number_and_unit(text, BANDWIDTH)?;
        let factor = match unit {
            "Mb/s" => 1e6 / 8.0,
            "Gb/s" => 1e9 / 8.0,
            "Tb/s" => 1e12 / 8.0,
            "kB/s" => 1e3,
            "MB/s" => 1e6,
            "GB/s" => 1e9,
            "TB/s" => 1e12,
            _ => return Err(wrong()),
        };
        let bytes_per_second = number * factor;
        if bytes_per_second > 0.0 { Ok(Self { bytes_per_second }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes_per_second {
            rate if rate >= 1e9 => write!(out, "{:.2} GB/s", rate / 1e9),
            rate if rate >= 1e6 => write!(out, "{:.1} MB/s", rate / 1e6),
            rate => write!(out, "{:.1} kB/s", rate / 1e3),
        }
    }
}

/// How long something takes, each time anew: `20ms`, `uniform(10ms,30ms)`, `exponential(20ms)`,
/// `lognormal(20ms,1.2)`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Times(pub TimeDistribution);

const TIMES: &str = "a time or a distribution of times, such as 20ms, uniform(10ms,30ms), exponential(20ms) or \
                     lognormal(20ms,1.2)";

impl Times {
    /// As a configuration has it.
    fn exact(self) -> String {
        let exact = |time| Time(time).exact();
        match self.0 {
            TimeDistribution::Fixed(time) => exact(time),
            TimeDistribution::Uniform { least, most } => format!("uniform({},{})", exact(least), exact(most)),
            TimeDistribution::Exponential { mean } => format!("exponential({})", exact(mean)),
            TimeDistribution::Lognormal { mean, sigma } => format!("lognormal({},{sigma})", exact(mean)),
        }
    }
}

impl FromStr for Times {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError { text: text.to_owned(), wanted: TIMES };
        let time = |part: &str| part.parse::<Time>().map(|time| time.0).map_err(|_| wrong());
        let Some((kind, arguments)) = text.trim().split_once('(') else {
            return Ok(Self(TimeDistribution::Fixed(time(text)?)));
        };
        let arguments = arguments.strip_suffix(')').ok_or_else(wrong)?;
        let two = || arguments.split_once(',').ok_or_else(wrong);
        match kind {
            "exponential" => Ok(Self(TimeDistribution::Exponential { mean: time(arguments)? })),
            "uniform" => {
                let (least, most) = (time(two()?.0)?, time(two()?.1)?);
                if least <= most { Ok(Self(TimeDistribution::Uniform { least, most })) } else { Err(wrong()) }
            }
            "lognormal" => {
                let sigma: f64 = two()?.1.trim().parse().map_err(|_| wrong())?;
                if (0.0..=5.0).contains(&sigma) {
                    Ok(Self(TimeDistribution::Lognormal { mean: time(two()?.0)?, sigma }))
                } else {
                    Err(wrong())
                }
            }
            _ => Err(wrong()),
        }
    }
}

/// The rate of triggers: `100kHz`, `poisson(100kHz)`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rate(pub TriggerRate);

const RATE: &str = "a rate with a unit, such as 500Hz, 100kHz or poisson(100kHz)";

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError { text: text.to_owned(), wanted: RATE };
        let inner = text.trim().strip_prefix("poisson(").and_then(|rest| rest.strip_suffix(')'));
        let (number, unit) = number_and_unit(inner.unwrap_or(text), RATE).map_err(|_| wrong())?;
        let hertz = match unit {
            "Hz" => number,
            "kHz" => number * 1e3,
            "MHz" => number * 1e6,
            _ => return Err(wrong()),
        };
        if hertz <= 0.0 {
            return Err(wrong());
        }
        Ok(Self(if inner.is_some() { TriggerRate::Poisson { hertz } } else { TriggerRate::Periodic { hertz } }))
    }
}

impl fmt::Display for Rate {
    /// In a form that can be parsed again. A value that is not a valid rate has no such form.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TriggerRate::Unlimited => out.write_str("unlimited"),
            TriggerRate::Periodic { hertz } => write!(out, "{hertz}Hz"),
            TriggerRate::Poisson { hertz } => write!(out, "poisson({hertz}Hz)"),
        }
    }
}

/// How large fragments are: `2KiB`, `lognormal(2KiB,1.2)`, `uniform(1KiB,4KiB)`, `exponential(2KiB)`: the whole FED
/// fragment.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Size(pub SizeDistribution);

const SIZE: &str = "a fragment size of at least 16 bytes and a multiple of 8, such as 2KiB, lognormal(2KiB,1.2), \
                    uniform(1KiB,4KiB) or exponential(2KiB)";

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        size(text, SIZE, |bytes| bytes >= SizeDistribution::SMALLEST_FRAGMENT && bytes % 8 == 0).map(Self)
    }
}

impl Size {
    fn exact(self) -> String {
        exact_sizes(self.0)
    }
}

impl fmt::Display for Size {
    /// As it can be read again.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.exact())
    }
}

/// How large chunks are: `64`, `uniform(16,4KiB)`, `exponential(64)`, `lognormal(256,1.2)`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct ChunkBytes(pub SizeDistribution);

const CHUNK: &str = "a chunk size of at most 1MiB, such as 64, uniform(16,4KiB), exponential(64) or lognormal(256,1.2)";

impl FromStr for ChunkBytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        size(text, CHUNK, |_| true).map(Self)
    }
}

impl ChunkBytes {
    fn exact(self) -> String {
        exact_sizes(self.0)
    }
}

/// Sizes as a configuration has them.
fn exact_sizes(sizes: SizeDistribution) -> String {
    let exact = |bytes: u32| Bytes(bytes.into()).exact();
    match sizes {
        SizeDistribution::Fixed(bytes) => exact(bytes),
        SizeDistribution::Uniform { least, most } => format!("uniform({},{})", exact(least), exact(most)),
        SizeDistribution::Exponential { mean } => format!("exponential({})", exact(mean)),
        SizeDistribution::Lognormal { mean, sigma } => format!("lognormal({},{sigma})", exact(mean)),
    }
}

/// A distribution of sizes, each of which `may_be`.
fn size(text: &str, wanted: &'static str, may_be: fn(u32) -> bool) -> Result<SizeDistribution, QuantityError> {
    let wrong = || QuantityError { text: text.to_owned(), wanted };
    let bytes = |part: &str| {
        let bytes = u32::try_from(part.parse::<Bytes>().map_err(|_| wrong())?.0).map_err(|_| wrong())?;
        if may_be(bytes) && bytes <= SizeDistribution::LARGEST { Ok(bytes) } else { Err(wrong()) }
    };
    let mean = |part: &str| bytes(part).and_then(|mean| if mean > 0 { Ok(mean) } else { Err(wrong()) });
    let Some((kind, arguments)) = text.trim().split_once('(') else {
        return Ok(SizeDistribution::Fixed(bytes(text)?));
    };
    let arguments = arguments.strip_suffix(')').ok_or_else(wrong)?;
    let two = || arguments.split_once(',').ok_or_else(wrong);
    match kind {
        "exponential" => Ok(SizeDistribution::Exponential { mean: mean(arguments)? }),
        "uniform" => {
            let (least, most) = (bytes(two()?.0)?, bytes(two()?.1)?);
            if least <= most { Ok(SizeDistribution::Uniform { least, most }) } else { Err(wrong()) }
        }
        "lognormal" => {
            let sigma: f64 = two()?.1.trim().parse().map_err(|_| wrong())?;
            let mean = mean(two()?.0)?;
            if (0.0..=5.0).contains(&sigma) { Ok(SizeDistribution::Lognormal { mean, sigma }) } else { Err(wrong()) }
        }
        _ => Err(wrong()),
    }
}

/// Reads a value from text. For a value of another type, the error names the expected type.
pub(crate) struct TextVisitor<T> {
    wanted: &'static str,
    kind: PhantomData<T>,
}

impl<T: FromStr<Err: fmt::Display>> TextVisitor<T> {
    pub(crate) fn read<'de, D: Deserializer<'de>>(from: D, wanted: &'static str) -> Result<T, D::Error> {
        from.deserialize_str(Self { wanted, kind: PhantomData })
    }
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, in quotes", self.wanted)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! read_from_text {
    ($($name:ident: $wanted:expr => $form:expr),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::quantity::TextVisitor::read(from, $wanted)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema = json_schema!({ "type": "string", "description": $wanted });
                $form.add_to(&mut schema);
                schema
            }
        }
    )*};
}
pub(crate) use read_from_text;

/// The form of a text in the schema, so that editors check and complete it. A text with a variable, `${NAME}`, may
/// become any value.
pub(crate) enum Form {
    /// A regular expression for the whole text, in the common subset of ECMAScript and Rust.
    Pattern(String),
    /// One of these names.
    Names(Vec<String>),
}

const VARIABLE: &str = r"\$\{";

impl Form {
    pub(crate) fn names<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Names(names.into_iter().map(Into::into).collect())
    }

    pub(crate) fn add_to(self, schema: &mut Schema) {
        match self {
            Self::Pattern(pattern) => schema.insert("pattern".into(), format!("^(?:{pattern})$|{VARIABLE}").into()),
            Self::Names(names) => {
                schema.insert("anyOf".into(), serde_json::json!([{ "enum": names }, { "pattern": VARIABLE }]))
            }
        };
    }
}

/// Name of a unit or flow.
pub(crate) const UNIT_NAME: &str = r"^[A-Za-z0-9_-]{1,32}$|\$\{";
/// Name of an alarm or histogram, which is part of addresses.
pub(crate) const LONG_NAME: &str = r"^[A-Za-z0-9_-]{1,64}$|\$\{";
/// Name of a stream, which is part of file names.
pub(crate) const STREAM_NAME: &str = r"^[a-z0-9_]{1,32}$|\$\{";
/// Host and port of a TCP service.
pub(crate) const HOST_AND_PORT: &str = r"^.+:[0-9]+$|\$\{";

pub(crate) const NUMBER_PATTERN: &str = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)";

/// A number with one of these units, separated by `|`.
pub(crate) fn with_unit(units: &str) -> String {
    format!(r"\s*{NUMBER_PATTERN}\s*(?:{units})\s*")
}

fn bytes_pattern() -> String {
    with_unit("B|kB|MB|GB|KiB|MiB|GiB|")
}

fn time_pattern() -> String {
    with_unit("ns|us|ms|s|min|h")
}

fn rate_pattern() -> String {
    let rate = with_unit("Hz|kHz|MHz");
    format!(r"{rate}|\s*poisson\({rate}\)\s*")
}

/// A value, or a distribution of values.
fn distribution(of: &str) -> String {
    format!(r"{of}|\s*(?:uniform\({of},{of}\)|exponential\({of}\)|lognormal\({of},\s*{NUMBER_PATTERN}\s*\))\s*")
}

read_from_text!(
    Bytes: BYTES => Form::Pattern(bytes_pattern()),
    Time: TIME => Form::Pattern(time_pattern()),
    Rate: RATE => Form::Pattern(rate_pattern()),
    Size: SIZE => Form::Pattern(distribution(&bytes_pattern())),
    ChunkBytes: CHUNK => Form::Pattern(distribution(&bytes_pattern())),
    Bandwidth: BANDWIDTH => Form::Pattern(with_unit("Mb/s|Gb/s|Tb/s|kB/s|MB/s|GB/s|TB/s")),
    Times: TIMES => Form::Pattern(distribution(&time_pattern()))
);

/// Defaults in the schema are written as a configuration has them.
macro_rules! write_as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.exact())
            }
        }
    )*};
}

write_as_text!(Bytes, Time, Times, Size, ChunkBytes);

/// Where bytes come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ByteOrigin {
    /// A file or an existing FIFO; `-` is standard input.
    File(PathBuf),
    /// A FIFO, which is created if it does not exist.
    Fifo(PathBuf),
}

impl ByteOrigin {
    /// The path, for people.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Fifo(path) => path,
        }
    }

    /// Whether it is a file as a disk has it: it can be looked into before it is wanted.
    pub fn is_regular(&self) -> bool {
        matches!(self, Self::File(path) if std::fs::metadata(path).is_ok_and(|file| file.is_file()))
    }
}

impl<'de> Deserialize<'de> for ByteOrigin {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(from)?;
        Ok(match text.strip_prefix("fifo:") {
            Some(path) => Self::Fifo(path.into()),
            None => Self::File(text.as_ref().into()),
        })
    }
}

impl JsonSchema for ByteOrigin {
    fn schema_name() -> Cow<'static, str> {
        "InputChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let description = "a file or a capture; a FIFO, created if it does not exist (fifo:PATH); standard input (-)";
        json_schema!({ "type": "string", "description": description })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Addresses, ChecksumName, FormatName, ListenAddress, NetworkAddress, NumberType, Tick};

    /// Whether the schema of a type, and its reader, accept a text.
    fn accepted<T: JsonSchema + FromStr>(text: &str) -> (bool, bool) {
        let schema = schemars::schema_for!(T);
        let matches = |pattern: &serde_json::Value| {
            let pattern = pattern.as_str().expect("a text");
            regex_lite::Regex::new(pattern).expect("a regular expression").is_match(text)
        };
        let by_schema = match schema.get("anyOf").and_then(|one_of| one_of[0]["enum"].as_array()) {
            Some(names) => names.iter().any(|name| name == text),
            None => matches(schema.get("pattern").expect("a pattern or names")),
        };
        (by_schema, text.parse::<T>().is_ok())
    }

    /// The schema knows the form, not the range: it accepts every text that is read, and refuses those of another form.
    #[test]
    fn the_schema_accepts_the_texts_that_are_read() {
        fn check<T: JsonSchema + FromStr>(good: &[&str], bad: &[&str]) {
            for text in good {
                assert_eq!(accepted::<T>(text), (true, true), "{}: {text}", T::schema_name());
            }
            for text in bad {
                assert_eq!(accepted::<T>(text), (false, false), "{}: {text}", T::schema_name());
            }
        }
        check::<Bytes>(
            &["512", "2KiB", "1.5MiB", " 10 kB ", ".5GB", "7B"],
            &["", "KiB", "2kib", "-1", "2 furlongs", "1.2.3"],
        );
        check::<Time>(&["250us", "2min", "1.5 h", "0s"], &["10", "10 weeks", "s", "-1s"]);
        check::<Rate>(&["100kHz", "poisson(2Hz)", " poisson(0.5MHz) "], &["5", "poisson(2Hz", "2GHz", "often"]);
        let sizes = ["2KiB", "uniform(1KiB,4KiB)", "lognormal(2KiB,1.2)", "exponential(2KiB)"];
        check::<Size>(&sizes, &["lognormal(2KiB)", "normal(1KiB,2)", "uniform(1KiB,4KiB"]);
        check::<ChunkBytes>(&["64", "uniform(16,4KiB)"], &["", "lognormal(64)", "uniform(1,2"]);
        check::<Times>(
            &["20ms", "uniform(10ms,30ms)", "lognormal(20ms,0.5)"],
            &["20", "gamma(1s,2)", "exponential(1s"],
        );
        check::<Bandwidth>(&["10Gb/s", "2.5 GB/s"], &["10", "10Gb", "fast"]);
        check::<NumberType>(&["u8", "u16le", "u24be", "u64be", "u8le"], &["u16", "u72le", "i16le", "16le", ""]);
        check::<Tick>(&["8ns", "11.356860964ns", "40.0789MHz"], &["8", "ns", "8 weeks"]);
        check::<ChecksumName>(&["crc32", "crc16-ccitt", "sum16le"], &["crc", "CRC32"]);
        check::<FormatName>(&["ferol", "generic", "midas"], &["root", ""]);
        check::<ListenAddress>(&["127.0.0.1:9700"], &["127.0.0.1", "localhost:1", ":9700"]);
        check::<Addresses>(&["127.0.0.1", "10.0.0.1:5000"], &["localhost", "10.0.0.1:", "10.0.0"]);
        let network = ["tcp://127.0.0.1:9700", "udp://[::1]:7", "udp://239.0.0.1:5000@10.0.0.1", "ip://10.0.0.1/253"];
        check::<NetworkAddress>(&network, &["127.0.0.1:9700", "tcp://host", "http://host:80", "ip://10.0.0.1"]);
    }

    #[test]
    fn a_text_with_a_variable_fits_every_form() {
        let pattern = regex_lite::Regex::new(VARIABLE).expect("a regular expression");
        assert!(pattern.is_match("${RATE}") && !pattern.is_match("$RATE"));
        assert!(accepted::<Rate>("${RATE}").0 && accepted::<Bytes>("${SIZE}KiB").0);
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("512", 512), ("2KiB", 2048), ("1.5MiB", 1_572_864), ("2GiB", 2 << 30), ("10kB", 10_000)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for text in ["", "KiB", "2kib", "-1", "2 furlongs"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_default_is_written_in_the_largest_unit_of_which_it_is_a_whole_number() {
        for (bytes, text) in
            [(0, "0"), (24, "24"), (1472, "1472"), (4096, "4KiB"), (128 << 20, "128MiB"), (1 << 30, "1GiB")]
        {
            assert_eq!((Bytes(bytes).exact().as_str(), text.parse()), (text, Ok(Bytes(bytes))));
        }
        for text in ["0s", "5ms", "1500ms", "2s", "10min", "61s"] {
            assert_eq!(text.parse::<Time>().expect("a time").exact(), text);
        }
        assert_eq!("exponential(1ms)".parse::<Times>().expect("times").exact(), "exponential(1ms)");
    }

    #[test]
    fn times_are_read() {
        assert_eq!("250us".parse(), Ok(Time(Duration::from_micros(250))));
        assert_eq!("2min".parse(), Ok(Time(Duration::from_secs(120))));
        assert!("10".parse::<Time>().is_err());
        assert!("10 weeks".parse::<Time>().is_err());
    }

    #[test]
    fn a_time_is_at_most_a_century_whatever_is_drawn_or_added_up() {
        assert_eq!("876000h".parse(), Ok(Time::MOST));
        for text in ["876001h", "99999999999999s", "18446744073709551615s"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        let mut random = Random::new(1, 0);
        for text in ["lognormal(876000h,5)", "exponential(876000h)", "uniform(876000h,876000h)"] {
            let Times(times) = text.parse().expect(text);
            assert_eq!(times.mean(), Time::MOST.0);
            assert!((0..1000).all(|_| times.next(&mut random) <= Time::MOST.0), "{text}");
        }
    }

    #[test]
    fn rates_are_read() {
        assert_eq!("100kHz".parse(), Ok(Rate(TriggerRate::Periodic { hertz: 1e5 })));
        assert_eq!("poisson(2Hz)".parse(), Ok(Rate(TriggerRate::Poisson { hertz: 2.0 })));
        for text in ["100000Hz", "poisson(0.5Hz)"] {
            assert_eq!(text.parse::<Rate>().expect("a rate").to_string(), text);
        }
        assert!("0Hz".parse::<Rate>().is_err());
        assert!("poisson(2Hz".parse::<Rate>().is_err());
    }

    #[test]
    fn bandwidths_are_bits_or_bytes_a_second() {
        for (text, bytes_per_second) in [("10Gb/s", 1.25e9), ("2.5GB/s", 2.5e9), ("500MB/s", 5e8), ("1Tb/s", 1.25e11)] {
            assert_eq!(text.parse(), Ok(Bandwidth { bytes_per_second }));
        }
        for text in ["10", "10Gb", "0GB/s", "fast"] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
        assert_eq!(Bandwidth { bytes_per_second: 1.25e9 }.to_string(), "1.25 GB/s");
    }

    #[test]
    fn distributions_of_times_are_read_and_keep_their_mean() {
        let ms = Duration::from_millis;
        let cases = [
            ("20ms", TimeDistribution::Fixed(ms(20))),
            ("uniform(10ms,30ms)", TimeDistribution::Uniform { least: ms(10), most: ms(30) }),
            ("exponential(20ms)", TimeDistribution::Exponential { mean: ms(20) }),
            ("lognormal(20ms,0.5)", TimeDistribution::Lognormal { mean: ms(20), sigma: 0.5 }),
        ];
        let mut random = Random::new(3, 0);
        for (text, times) in cases {
            assert_eq!(text.parse(), Ok(Times(times)));
            assert_eq!(times.mean(), ms(20));
            let total: f64 = (0..20_000).map(|_| times.next(&mut random).as_secs_f64()).sum();
            assert!((total / 20_000.0 / 0.02 - 1.0).abs() < 0.03, "{text}: {total}");
        }
        for text in ["20", "uniform(3s,1s)", "lognormal(20ms)", "gamma(1s,2)", "exponential(1s"] {
            assert!(text.parse::<Times>().is_err(), "{text}");
        }
    }

    #[test]
    fn chunk_sizes_are_read() {
        for (text, size) in [
            ("64", SizeDistribution::Fixed(64)),
            ("0", SizeDistribution::Fixed(0)),
            ("uniform(16,4KiB)", SizeDistribution::Uniform { least: 16, most: 4096 }),
            ("exponential(64)", SizeDistribution::Exponential { mean: 64 }),
            ("lognormal(256,1.2)", SizeDistribution::Lognormal { mean: 256, sigma: 1.2 }),
        ] {
            assert_eq!(text.parse(), Ok(ChunkBytes(size)));
        }
        for text in ["", "2MiB", "uniform(4KiB,16)", "exponential(0)", "lognormal(64)", "normal(1,2)", "uniform(1,2"] {
            assert!(text.parse::<ChunkBytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn fragment_sizes_are_read() {
        assert_eq!("2KiB".parse(), Ok(Size(SizeDistribution::Fixed(2048))));
        assert_eq!("uniform(1KiB,4KiB)".parse(), Ok(Size(SizeDistribution::Uniform { least: 1024, most: 4096 })));
        assert_eq!("lognormal(2KiB,1.2)".parse(), Ok(Size(SizeDistribution::Lognormal { mean: 2048, sigma: 1.2 })));
        assert_eq!("exponential(2KiB)".parse(), Ok(Size(SizeDistribution::Exponential { mean: 2048 })));
        for text in ["24", "2KiB", "uniform(1KiB,4KiB)", "lognormal(2KiB,1.2)", "exponential(2KiB)"] {
            assert_eq!(text.parse::<Size>().expect("a size").to_string(), text);
        }
        for text in ["8", "17", "2MiB", "uniform(4KiB,1KiB)", "exponential(8)", "lognormal(2KiB)", "normal(1KiB,2)"] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert!(error.contains("multiple of 8"), "{error}");
        }
    }
}
