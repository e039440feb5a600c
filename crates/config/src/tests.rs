//! Good configurations are read; errors of bad ones say where, what, and what would be right.

use super::*;
use ropewalk_engine::pages::PagesChoice;
use ropewalk_flow::histogram::{FieldOrder, Histogrammed, IntegerField};
use ropewalk_monitor::alarms::{Condition, Severity};
use ropewalk_terms::AcknowledgementLevel;
use std::time::Duration;

const GOOD: &str = r#"version = 1

[[readout]]
name = "ru0"

[[builder]]
name = "bu0"

[[source]]
id = 841
readout = "ru0"
play = "${DATA}/one.raw"
"#;

fn variable(name: &str) -> Option<String> {
    (name == "DATA").then(|| "/data".to_owned())
}

fn error(text: &str) -> ConfigurationError {
    parse("test.toml", text, &variable).expect_err("the configuration is wrong")
}

#[test]
fn a_small_configuration_is_read() {
    let configuration = parse("test.toml", GOOD, &variable).expect("a good configuration");
    assert_eq!(configuration.source[0].input, SourceInput::Played("/data/one.raw".into()));
    assert_eq!(configuration.run.acknowledge, AcknowledgementLevel::Written);
}

#[test]
fn sources_whose_fragments_may_be_too_large_for_a_record_are_named() {
    let with = |fragment: &str, more: &str| {
        let text = format!("{GOOD}max_fragment = \"{fragment}\"\n{more}")
            .replace("name = \"ru0\"", "name = \"ru0\"\npool = \"4GiB\"");
        parse("test.toml", &text, &variable).expect("a good configuration").largest_event_warning()
    };
    let second = "[[source]]\nid = 842\nreadout = \"ru0\"\nmax_fragment = \"600MiB\"\n";
    assert_eq!(with("600MiB", ""), None);
    let warning = with("600MiB", second).expect("both together are longer than a record");
    assert!(warning.contains("1.17 GiB") && warning.contains("too_large"), "{warning}");
    assert_eq!(with("600MiB", &format!("{second}[run]\nwrite = false\nacknowledge = \"built\"\n")), None);
}

#[test]
fn a_wrong_name_is_shown_with_its_place() {
    let error = error(&GOOD.replace("readout = \"ru0\"", "readout = \"ru7\""));
    assert_eq!((error.line, error.column), (11, 11));
    assert_eq!(error.key, "source[0].readout");
    let text = error.to_string();
    assert!(text.contains("test.toml:11:11: source[0].readout: no readout unit is named `ru7`"), "{text}");
    assert!(text.contains(" 11 | readout = \"ru7\"\n"), "{text}");
    assert!(text.ends_with("    |           ^^^^^"), "{text}");
}

#[test]
fn curly_quotes_are_one_error_with_the_right_text() {
    let error = error(&GOOD.replace("readout = \"ru0\"", "readout = \u{201c}ru0\u{201d}"));
    assert_eq!(all(&error), [(11, "", "use straight quotes: \"ru0\"")]);
}

#[test]
fn an_unknown_key_is_shown_with_what_would_be_right() {
    let error = error(&GOOD.replace("id = 841", "identity = 841"));
    let [missing, unknown] = error.each().collect::<Vec<_>>()[..] else { panic!("two errors: {error}") };
    assert_eq!((missing.line, missing.message.as_str()), (9, "`id` is missing"));
    assert_eq!(unknown.line, 10);
    assert!(unknown.message.contains("`identity`; there are name, id,"), "{error}");
}

/// Line, key and message of each error.
fn all(error: &ConfigurationError) -> Vec<(usize, &str, &str)> {
    error.each().map(|one| (one.line, one.key.as_str(), one.message.as_str())).collect()
}

#[test]
fn everything_that_is_wrong_is_reported_at_once() {
    let text = r#"version = 1
[run]
outptu = "x"
keep = 5
placement = "automatic"
[[readout]]
name = "ru0"
window = 40000
[[builder]]
nam = "bu0"
events = "many"
[[source]]
id = 841
readout = "ru7"
[[source]]
id = 841
readout = "ru0"
format = "ferrol"
[storage]
compress_threads = 40
[timeouts]
readout = "6 parsecs"
[stroage]
"#;
    let error = error(text);
    let expected = [
        (3, "", "did you mean `output`?"),
        (4, "run.keep", "a size, such as 2GiB"),
        (5, "run.placement", "there are: rules, auto"),
        (8, "readout[0].window", "half the capacity"),
        (10, "", "did you mean `name`?"),
        (11, "builder[0].events", "expected a whole number"),
        (14, "source[0].readout", "did you mean `ru0`?"),
        (18, "source[1].format", "did you mean `ferol`?"),
        (20, "storage.compress_threads", "1 to 16"),
        (22, "timeouts.readout", "such as 250us"),
        (23, "", "did you mean `storage`?"),
    ];
    let told = all(&error);
    let text = error.to_string();
    assert_eq!(told.len(), expected.len(), "{text}");
    for ((line, key, message), (expected_line, expected_key, words)) in told.into_iter().zip(expected) {
        assert_eq!((line, key), (expected_line, expected_key), "{text}");
        assert!(message.contains(words), "{words}: {text}");
    }
    for example in ["window = 4096 (the default)", "events = 2048 (the default)", "readout = \"2s\" (the default)"] {
        assert!(text.contains(&format!("= example: {example}")), "{example}: {text}");
    }
    assert!(text.ends_with("\n11 errors in test.toml"), "{text}");
}

#[test]
fn syntax_errors_and_missing_keys_are_reported_together() {
    let syntax = error("version = 1\n[run\nkeep = = 3\n");
    let lines: Vec<usize> = syntax.each().map(|error| error.line).collect();
    assert!(lines.contains(&2) && lines.contains(&3), "{syntax}");
    let empty = error("");
    let [version, nodes @ ..] = &all(&empty)[..] else { panic!("{empty}") };
    assert_eq!(*version, (0, "", "`version` is missing"));
    assert_eq!(nodes.len(), 3, "readout, builder and source are missing as well: {empty}");
    assert!(nodes.iter().all(|(line, _, message)| *line == 0 && message.starts_with("at least one")), "{empty}");
    let variables = error(&GOOD.replace("DATA", "NOWHERE").replace("\"bu0\"", "\"${ELSEWHERE}\""));
    assert_eq!(variables.each().map(|error| error.line).collect::<Vec<_>>(), [7, 12]);
}

#[test]
fn the_default_is_no_example_where_it_would_be_wrong() {
    let error = error(&format!("{GOOD}\n[timeouts]\nreadout = \"30s\"\nbuilder = \"29s\"\n"));
    // The one that is not in the file has the place of its section.
    let [manager, builder] = &all(&error)[..] else { panic!("{error}") };
    assert_eq!((manager.1, builder.1), ("timeouts.manager", "timeouts.builder"));
    assert_eq!(builder.0, manager.0 + 2);
    assert!(!error.to_string().contains("example"), "5s is shorter still: {error}");
}

#[test]
fn a_value_of_a_wrong_form_has_examples_of_right_ones() {
    let cases = [
        ("[run]\nlumisection = \"23s\"", "lumisection = { events = 1 } or { time = \"250us\" }"),
        ("[run]\nlumisection = { seconds = 1 }", "lumisection = { events = 1 } or { time = \"250us\" }"),
        ("[filter]\ntriggers = \"all\"", "triggers = [\"all\"]"),
    ];
    for (section, example) in cases {
        let error = error(&format!("{GOOD}\n{section}\n"));
        assert!(error.to_string().contains(&format!("= example: {example}")), "{example}: {error}");
    }
}

#[test]
fn what_is_misread_is_not_missing_as_well() {
    for (from, to) in
        [("id = 841", "id = \"many\""), ("name = \"bu0\"", "name = 7"), ("version = 1", "version = \"1\"")]
    {
        let error = error(&GOOD.replace(from, to));
        assert!(all(&error).len() == 1 && error.message.starts_with("invalid type"), "{error}");
    }
}

#[test]
fn a_key_in_the_wrong_section_is_refused_with_the_right_one() {
    let error = error(&format!("{GOOD}\n[timeouts]\ntransport = \"tcp\"\nacknowledge = \"built\"\nname = \"x\"\n"));
    let messages: Vec<&str> = error.each().map(|error| error.message.as_str()).collect();
    let [transport, acknowledge, name] = messages[..] else { panic!("{error}") };
    assert_eq!(transport, "no key is named `transport` here; it is a key of [farm]");
    assert_eq!(acknowledge, "no key is named `acknowledge` here; it is a key of [run]");
    assert!(name.contains("there are: readout, builder"), "too many sections have names: {name}");
}

#[test]
fn so_many_errors_are_shown_and_the_others_counted() {
    let many: String = (0..30).map(|number| format!("key{number} = 1\n")).collect();
    let text = error(&format!("{many}{GOOD}")).to_string();
    assert!(text.ends_with("30 errors in test.toml; the first 20 are shown"), "{text}");
    assert!(text.contains("`key0`") && text.contains("`key19`") && !text.contains("`key20`"), "{text}");
}

#[test]
fn a_syntax_error_is_shown_with_its_place() {
    assert_eq!(error(&GOOD.replace("id = 841", "id = = 841")).line, 10);
}

#[test]
fn an_unset_variable_is_named() {
    let error = error(&GOOD.replace("DATA", "NOWHERE"));
    assert!(error.message.contains("NOWHERE is not set"), "{error}");
    assert_eq!(error.line, 12);
}

#[test]
fn pages_are_where_they_are_wanted() {
    let read = |text: &str| {
        let text = format!("{GOOD}\n[monitor]\n{text}\n");
        parse("test.toml", &text, &variable).expect("a good configuration").monitor.pages
    };
    assert_eq!(read(""), PagesChoice::Usual);
    assert_eq!(read("pages = \"none\""), PagesChoice::Nowhere);
    assert_eq!(read("pages = \"/run/daq\""), PagesChoice::In("/run/daq".into()));
    let error = error(&format!("{GOOD}\n[monitor]\npages = \"\"\n"));
    assert_eq!(error.line, 15);
    assert!(error.message.contains("a directory in memory"), "{error}");
}

#[test]
fn time_outs_must_fit_together() {
    let error = error(&format!("{GOOD}\n[timeouts]\nreadout = \"6s\"\n"));
    assert_eq!(error.key, "timeouts.builder");
    assert!(error.message.contains("readout < builder < manager < drain"), "{error}");
}

#[test]
fn ids_names_and_pools_are_checked() {
    let second = "\n[[source]]\nid = 841\nreadout = \"ru0\"\n";
    assert_eq!(error(&format!("{GOOD}{second}")).key, "source[1].id");
    assert_eq!(error(&GOOD.replace("id = 841", "id = 5000")).key, "source[0].id");
    assert_eq!(error(&GOOD.replace("name = \"bu0\"", "name = \"ru0\"")).key, "builder[0].name");
    assert_eq!(error(&GOOD.replace("name = \"ru0\"", "name = \"ru0\"\npool = \"1MiB\"")).key, "readout[0].pool");
    assert_eq!(error(&GOOD.replace("version = 1", "version = 2")).key, "version");
}

/// Two boards at one address; the keys of the second one.
fn beside(format: &str, first: &str, second: &str) -> Result<Configuration, ConfigurationError> {
    let (head, _) = GOOD.split_once("[[source]]").expect("it has one");
    let mut text = head.to_owned();
    for (id, keys) in [(1, first), (2, second)] {
        text +=
            &format!("[[source]]\nid = {id}\nreadout = \"ru0\"\nlisten = \"udp://0.0.0.0:9000\"\n{format}\n{keys}\n");
    }
    parse("test.toml", &text, &variable)
}

#[test]
fn a_source_has_one_input() {
    let inputs = [
        ("felix", "{ card = \"flx\", elink = 3 }"),
        ("controlled", "true"),
        ("listen", "\"tcp://127.0.0.1:5000\""),
        ("connect", "\"tcp://127.0.0.1:5000\""),
        ("input", "\"run7.pcapng\""),
        ("program", "[\"read-out\"]"),
        ("play", "\"one.raw\""),
    ];
    let with = |keys: &str| GOOD.replace("play = \"${DATA}/one.raw\"\n", keys);
    let pairs =
        inputs.iter().enumerate().flat_map(|(place, one)| inputs[place + 1..].iter().map(move |two| (one, two)));
    for ((first, one), (second, two)) in pairs {
        let needed = match *first {
            "felix" => "[[felix]]\nname = \"flx\"\n",
            "controlled" => "format = \"generic\"\n",
            _ => "",
        };
        let text = with(&format!("{second} = {two}\n{first} = {one}\n{needed}"));
        let error = error(&text.replace("\"bu0\"", "\"bu0\"\nevents = 0"));
        let (key, message) =
            (format!("source[0].{second}"), format!("it has `{first}` already; a source has one input"));
        let expected = [(8, "builder[0].events", "between 1 and 1048576 events in work"), (13, &*key, &*message)];
        assert_eq!(all(&error), expected);
        let caret = format!(" 13 | {second} = {two}\n    | {}{}", " ".repeat(second.len() + 3), "^".repeat(two.len()));
        assert!(error.to_string().contains(&caret), "{error}");
    }
    let everything: String = inputs.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    let error = error(&with(&format!("{everything}[[felix]]\nname = \"flx\"\n")));
    let keys = inputs[1..].iter().map(|(key, _)| format!("source[0].{key}"));
    assert!(error.each().map(|one| &one.key).eq(&keys.collect::<Vec<_>>()), "{error}");
}

#[test]
fn keys_of_an_input_need_that_input() {
    let with = |keys: &str| GOOD.replace("play = \"${DATA}/one.raw\"", keys);
    for (keys, key, words) in [
        ("packets = { port = 1 }", "source[0].packets", "`input = \"run7.pcapng\"`"),
        ("listen = \"udp://0.0.0.0:9000\"\npackets = {}", "source[0].packets", "`input = \"run7.pcapng\"`"),
        ("input = \"a.raw\"\nsettings = \"a\"", "source[0].settings", "`controlled = true`"),
        ("program = []", "source[0].program", "a program and its arguments"),
        ("connect = \"udp://daqpc2:9000\"", "source[0].connect", "only TCP connects"),
    ] {
        let error = error(&with(keys));
        assert_eq!(all(&error).len(), 1, "{error}");
        assert!(error.key == key && error.message.contains(words), "{error}");
    }
    let read =
        |keys: &str| parse("test.toml", &with(keys), &variable).expect("a good configuration").source.remove(0).input;
    assert_eq!(read(""), SourceInput::Readout);
    assert_eq!(read("controlled = false"), SourceInput::Readout);
    let packets = PacketsTable { port: Some(9000), ..PacketsTable::default() };
    let origin = ByteOrigin::Fifo("board".into());
    assert_eq!(read("input = \"fifo:board\"\npackets = { port = 9000 }"), SourceInput::File(origin, packets));
}

#[test]
fn boards_that_share_an_address_are_told_apart() {
    let described = "frame = \"datagram\"\nevent = { at = 4, type = \"u32le\" }";
    let peer = |is: &str| format!("demux = {{ at = \"ip.source\", is = \"10.0.0.{is}\" }}");
    let (any, number) = ("demux = { at = \"ip.source\" }", "demux = { at = 0, type = \"u8\" }");
    for format in [described, "format = \"srs\""] {
        assert!(beside(format, any, any).is_ok() && beside(format, &peer("1"), &peer("2")).is_ok(), "{format}");
    }
    assert!(beside(described, number, number).is_ok());
    for (first, second, key, words) in [
        ("", "", "source[1].listen", "what tells the two boards apart?"),
        (any, "", "source[1].listen", "what tells the two boards apart?"),
        (&peer("1"), &peer("1"), "source[1].demux", "source[0] is the board at 10.0.0.1 already"),
        (&peer("1"), any, "source[1].demux", "or neither does"),
        (any, number, "source[1].demux", "distinguished by something else"),
    ] {
        let error = beside(described, first, second).expect_err(words);
        assert!(error.key == key && error.message.contains(words), "{error}");
    }
    let error = beside("format = \"srs\"", number, number).expect_err("a format says where its numbers stand");
    assert_eq!(error.key, "source[0].demux");
    // One board may send to two addresses.
    let at = |id| {
        format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\nlisten = \"udp://0.0.0.0:900{id}\"\n{described}\n{}\n",
            peer("1")
        )
    };
    let (head, _) = GOOD.split_once("[[source]]").expect("it has one");
    parse("test.toml", &[head, &at(1), &at(2)].concat(), &variable).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn rules_of_placement_say_what_would_be_right() {
    let with = |rule: &str| format!("{GOOD}\n{rule}\n");
    for (rule, key, words) in [
        ("[[thread]]\nmatch = \"(\"\ncpus = \"0\"", "thread[0].match", "no regular expression"),
        ("[[thread]]\nmatch = \"a\"\ncpus = \"5-3\"", "thread[0].cpus", "write for example 0-3,8"),
        ("[[thread]]\nmatch = \"a\"\ncpus = \"\"", "thread[0].cpus", "name at least one CPU"),
        ("[[thread]]\nmatch = \"a\"", "thread[0]", "give it `cpus`"),
        (
            "[[thread]]\nmatch = \"a\"\nin_turn = true\nscheduling = \"idle\"",
            "thread[0].in_turn",
            "name them with `cpus` or `node`",
        ),
        ("[[thread]]\nmatch = \"a\"\nscheduling = \"fifo\"\npriority = 100", "thread[0].priority", "1 to 99"),
        (
            "[[thread]]\nmatch = \"a\"\nscheduling = \"batch\"\npriority = 1",
            "thread[0].priority",
            "`fifo` and `rr` alone",
        ),
        ("[[thread]]\nmatch = \"a\"\ncpus = \"0\"\npriority = 1", "thread[0].priority", "`fifo` and `rr` alone"),
        ("[[pool]]\nmatch = \"[\"\nnode = 0", "pool[0].match", "no regular expression"),
        ("[[pool]]\nmatch = \"a\"\nnode = 0\n[[pool]]\nmatch = \"b\"", "pool[1]", "`lock = true`"),
    ] {
        let error = error(&with(rule));
        assert_eq!(error.key, key, "{rule}");
        assert!(error.message.contains(words) && error.line >= 14, "{rule}: {error}");
    }
    let all = "[[thread]]\nmatch = \"a\"\ncpus = \"5-3\"\npriority = 100\n[[thread]]\nmatch = \"(\"\nnode = 0\n[[pool]]\nmatch = \"[\"\nnode = 0";
    let all = error(&with(all));
    let keys: Vec<&str> = all.each().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["thread[0].cpus", "thread[0].priority", "thread[1].match", "pool[0].match"]);
    assert!(error(&with("[[thread]]\nmatch = \"a\"\nscheduling = \"real\"")).message.contains("fifo, rr"));
    assert!(error(&with("[run]\nplacement = \"automatic\"")).message.contains("there are: rules, auto"));
}

#[test]
fn quantities_say_what_would_be_right() {
    let error = error(&GOOD.replace("name = \"ru0\"", "name = \"ru0\"\npool = \"many\""));
    assert!(error.message.contains("such as 2GiB, 64MiB"), "{error}");
    assert_eq!(error.line, 5);
}

#[test]
fn a_transfer_says_what_it_takes_and_deletes_nothing_beside() {
    let with = |text: &str| GOOD.replace("version = 1\n", &format!("version = 1\n{text}\n"));
    let command = "[storage.transfer]\ncommand = [\"cp\", \"{file}\", \"/archive\"]\n";
    let good = parse("test.toml", &with(command), &variable).expect("a good configuration");
    assert!(good.storage.transfer.is_some_and(|transfer| !transfer.delete && transfer.at_once == 1));
    for (text, key, words) in [
        ("[storage.transfer]\ncommand = [\"cp\"]", "storage.transfer.command", "{file}"),
        ("[storage.transfer]\ncommand = [\"\", \"{file}\"]", "storage.transfer.command", "a program"),
        (&format!("{command}checksum = []"), "storage.transfer.checksum", "a program"),
        (&format!("{command}timeout = \"0s\""), "storage.transfer.timeout", "at once"),
        (&format!("{command}at_once = 0"), "storage.transfer.at_once", "1 to 64"),
        (&format!("[run]\nkeep = \"1GiB\"\n{command}"), "storage.transfer", "`delete`"),
        ("[storage]\nfile_mode = \"0o440\"", "storage.file_mode", "three octal digits"),
        ("[storage]\nfile_mode = \"490\"", "storage.file_mode", "three octal digits"),
        ("[storage]\npipe = \"events\"\ncompress = \"lz4\"", "storage.compress", "there are none"),
        ("[run]\nacknowledge = \"synced\"\n[storage]\npipe = \"events\"", "run.acknowledge", "cannot be synced"),
    ] {
        let error = error(&with(text));
        assert!(error.key == key && error.message.contains(words), "{text}: {error}");
    }
}

#[test]
fn the_schema_names_every_section() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("the schema is JSON");
    for section in ["run", "storage", "readout", "builder", "manager", "source", "timeouts", "synchrony"] {
        assert!(schema["properties"].get(section).is_some(), "{section}");
    }
}

#[test]
fn a_value_may_be_given_in_the_place_of_the_files() {
    let with = |key: &str, value: &str| {
        let instead = [(key.to_owned(), value.to_owned())];
        parse_as("test.toml", GOOD, &variable, &instead, |_: &Configuration, _| {})
    };
    assert_eq!(with("manager.batch", "7").expect("a number").manager.batch, 7);
    assert_eq!(with("run.keep", "512").expect("a size").run.keep, Some(crate::quantity::Bytes(512)));
    assert_eq!(with("run.keep", "2GiB").expect("a size").run.keep, Some(crate::quantity::Bytes(2 << 30)));
    assert!(!with("run.write", "false").expect("a truth value").run.write);
    assert!(with("run.kept", "1").expect_err("an unknown key").message.contains("kept"));
    let error = with("version.minor", "1").expect_err("a number is no table");
    assert_eq!((error.key.as_str(), error.line), ("version.minor", 0));
    let error = with("run.keep", "much").expect_err("no size");
    assert!(error.key == "run.keep" && error.message.contains("such as 2GiB, 64MiB"), "{error}");
}

#[test]
fn event_managers_that_stand_by_need_addresses_of_their_own() {
    let standby = |addresses: &str| format!("{GOOD}\n[manager]\naddress = \"host:4000\"\nstandby = [{addresses}]\n");
    assert!(parse("test.toml", &standby("\"other:4000\", \"host:4001\""), &variable).is_ok());
    assert_eq!(error(&standby("\"other:4000\", \"host:4000\"")).key, "manager.standby[1]");
    assert_eq!(error(&standby("\"other:0\"")).key, "manager.standby[0]");
}

#[test]
fn cards_and_their_links_say_what_would_be_right() {
    let base =
        GOOD.replace("play = \"${DATA}/one.raw\"", "felix = { card = \"flx\", elink = 3 }\nmax_fragment = \"64KiB\"");
    let card = "[[felix]]\nname = \"flx\"\n";
    let with = |card: &str, more: &str| format!("{base}{more}{card}");
    let good = parse("test.toml", &with(card, ""), &variable).expect("a good configuration");
    assert_eq!((good.felix[0].blocks, good.felix[0].wake), (Blocks::default(), WakeChoice::Interrupt));
    let another = |readout: &str, elink: u32| {
        format!("[[source]]\nid = 2\nreadout = \"{readout}\"\nfelix = {{ card = \"flx\", elink = {elink} }}\n")
    };
    let second = format!("{}[[readout]]\nname = \"ru1\"\n", another("ru1", 4));
    let emulate = |what: &str| format!("{card}[felix.emulate]\n{what}\n");
    for (text, key, words) in [
        (with("", ""), "source[0].felix.card", "no [[felix]] card is named `flx`"),
        (with(card, &another("ru0", 3)), "source[1].felix.elink", "source[0] is that e-link"),
        (with(card, &another("ru0", 2048)), "source[1].felix.elink", "0 to 2047"),
        (with(card, &second), "source[1].readout", "one readout unit reads a card"),
        (with(&format!("{card}{}", card.replace("flx", "other")), ""), "felix[1].name", "no source is an e-link"),
        (with(&format!("{card}memory = \"100KiB\""), ""), "felix[0].memory", "1.0 MiB in all"),
        (with(&format!("{card}event = {{ bytes = 9 }}"), ""), "felix[0].event", "1 to 8 bytes"),
        (with(&format!("{card}event = {{ mask = 0x0f }}"), ""), "felix[0].event", "at least 8"),
        (
            with(card, "").replace("elink = 3 }", "elink = 3, event = { bytes = 0 } }"),
            "source[0].felix.event",
            "1 to 8 bytes",
        ),
        (
            with(card, "").replace("elink = 3 }", "elink = 3, event = \"rod\" }\ncounter_bits = 32"),
            "source[0].counter_bits",
            "leave it out",
        ),
        (with(&format!("{card}serve = {{ subscribers = 65 }}"), ""), "felix[0].serve.subscribers", "1 to 64"),
        (with(&format!("{card}input = \"-\"\n[felix.emulate]"), ""), "felix[0].input", "leave out"),
        (with(&format!("{card}writer = \"process\""), ""), "felix[0].writer", "only an emulated card"),
        (with(&format!("{card}input_speed = \"1GB/s\""), ""), "felix[0].input_speed", "give `input`"),
        (with(&format!("{card}serve = {{ wait = 17 }}"), ""), "felix[0].serve.wait", "no more than 16"),
        (with(&emulate("chunk_size = \"128KiB\""), ""), "felix[0].emulate.chunk_size", "max_fragment"),
        (
            with(&emulate("faults = { busy = 0.1 }").replacen('\n', "\nblocks = \"narrow\"\n", 1), ""),
            "felix[0].emulate.faults.busy",
            "trailers of 32 bits",
        ),
        (with(&emulate("faults = { lost_bytes = 0.1 }"), ""), "felix[0].emulate.faults.lost_bytes", "has its place"),
        (
            with(&emulate("outages = [{ elink = 9, from = \"1s\", lasts = \"1s\" }]"), ""),
            "felix[0].emulate.outages[0].elink",
            "no source is this e-link",
        ),
        (with(card, "").replace("elink = 3 }", "elink = 3 }\nemulate = {}"), "source[0].felix", "with its whole card"),
        (
            with(card, "").replace("elink = 3 }", "elink = 3 }\ncounter_bits = 24"),
            "source[0].counter_bits",
            "leave it out",
        ),
    ] {
        let error = error(&text);
        assert_eq!(error.key, key, "{text}");
        assert!(error.message.contains(words) && error.line > 0, "{error}");
    }
}

#[test]
fn what_a_card_cannot_be_is_said_in_words() {
    let base =
        GOOD.replace("play = \"${DATA}/one.raw\"", "felix = { card = \"flx\", elink = 3 }\nmax_fragment = \"64KiB\"");
    let card = "[[felix]]\nname = \"flx\"\n";
    let with = |card: &str, more: &str| format!("{base}{more}{card}");
    let emulate = |what: &str| format!("{card}[felix.emulate]\n{what}\n");
    let own = with(&format!("{card}event = {{ offset = 4, endian = \"big\" }}"), "")
        .replace("elink = 3 }", "elink = 3, event = \"rod\" }");
    let own = parse("test.toml", &own, &variable).expect("a link with a rule of its own");
    assert_eq!(own.felix[0].rule_of(&own.source[0]), EventChoice::Rod.rule());
    assert_eq!(own.felix[0].event.rule().head_bytes(), 8);
    let narrow = |chunks: &str| {
        let text = with(&emulate(&format!("chunk_size = \"{chunks}\"\ntrigger_chunk_size = \"{chunks}\"")), "");
        text.replacen("[[readout]]", "[[readout]]\nwindow = 100", 1)
    };
    // In 4 KiB, less a header and a trailer of four bytes, 111 chunks of 33 bytes begin, or 100 of 37.
    assert_eq!(error(&narrow("33")).key, "readout[0].window");
    assert!(parse("test.toml", &narrow("37"), &variable).is_ok(), "100 of them fit");
    let slow = narrow("33").replace("[felix.emulate]", "[felix.emulate]\nrate = \"50kHz\"");
    assert!(parse("test.toml", &slow, &variable).is_ok(), "no block waits for so many");
    for (text, words) in [
        (narrow("33"), "brings chunks of 111 events"),
        (with(&format!("{card}blocks = \"3B\""), ""), "such as 4KiB"),
        (with(&format!("{card}event = \"ros\""), ""), "`ros` is no kind of heads: a table of `offset`"),
        (with(&format!("{card}event = 4"), ""), "or \"rod\", the header of a ROD fragment"),
        (with(&format!("{card}event = {{ ofset = 4 }}"), ""), "did you mean `offset`?"),
        (with(&emulate("faults = { crc = 2.0 }"), ""), "`crc` strikes a share of all chunks: a number from 0 to 1"),
        (with(&emulate("faults = { bitrot = 0.1 }"), ""), "no fault `bitrot`; there are busy, crc,"),
        (with(&emulate("faults = { crc = 0.6, busy = 0.6 }"), ""), "1 at most together"),
    ] {
        let error = error(&text);
        assert!(error.message.contains(words) && error.line > 0, "{error}");
    }
}

#[test]
fn a_source_comes_in_by_one_way() {
    for (keys, key, what) in [
        ("listen = \"tcp://0.0.0.0:5000\"", "source[0].play", "it has `listen` already"),
        ("connect = \"udp://10.0.0.7:9000\"\n#", "source[0].connect", "`listen`"),
        ("connect = \"daqpc2:5000\"\n#", "source[0].connect", "tcp://daqpc2:5000"),
        ("program = []\n#", "source[0].program", "such as"),
        ("emulate = { packing = 3 }\n#", "source[0].emulate.packing", "hold one event each"),
        ("format = \"lhcb-mep\"\nemulate = { packing = 0 }\n#", "source[0].emulate.packing", "1 or more"),
        ("black_box = { max = \"1KiB\" }\n#", "source[0].black_box.max", "between 4KiB"),
        ("black_box = { last = \"0s\" }\n#", "source[0].black_box.last", "such as"),
        ("splitter = { library = \"a.so\" }\n#", "source[0].splitter", "give `frame` or `format`"),
        ("splitter = { libary = \"a.so\" }\n#", "", "did you mean `library`?"),
        (
            "listen = \"tcp://127.0.0.1:0\"\nformat = \"lhcb-mep\"\nsplitter = { library = \"a.so\" }\n#",
            "source[0].splitter",
            "without one",
        ),
        ("emulate = 7\n#", "source[0].emulate", "true, false, or a table such as"),
        ("emulate = { size = 7 }\n#", "", "no key is named `size`"),
    ] {
        let error = error(&GOOD.replace("play = ", &format!("{keys}\nplay = ").replace("#\nplay", "#play")));
        assert_eq!(error.key, key, "{error}");
        assert!(error.message.contains(what), "{error}");
    }
}

#[test]
fn a_splitter_has_limits_that_mean_something() {
    let with = |keys: &str| {
        let keys = format!(
            "listen = \"udp://127.0.0.1:0\"\nframe = \"datagram\"\nsplitter = {{ library = \"a.so\", {keys} }}\n#"
        );
        GOOD.replace("play = ", &format!("{keys}play = "))
    };
    for (keys, key) in [
        ("timeout = \"0s\"", "source[0].splitter.timeout"),
        ("memory = \"1KiB\"", "source[0].splitter.memory"),
        ("restarts = 0", "source[0].splitter.restarts"),
    ] {
        let error = error(&with(keys));
        assert_eq!(error.key, key, "{error}");
    }
    let growing = with("keys = \"events\"")
        .replace("splitter =", "event = { at = 0, type = \"u32le\", numbers = \"growing\" }\nsplitter =");
    assert_eq!(error(&growing).key, "source[0].splitter.keys");
    // A splitter gives the numbers of events; an emulator in place of its source composes frames with theirs.
    let event = "event = { at = 0, type = \"u32le\" }\n";
    let numbered = with("").replace("splitter =", &format!("{event}splitter ="));
    let refused = error(&numbered);
    assert!(refused.key == "source[0].event" && refused.message.contains("leave `event` out"), "{refused}");
    let emulated = numbered.replace("splitter =", "emulate = true\nsplitter =");
    assert!(parse("test.toml", &emulated, &variable).is_ok());
    // Its frames have numbers of their own, or of their first events.
    let warning = |text: &str| parse("test.toml", text, &variable).expect("it is good").sequence_beside_splitter();
    let sequence = with("").replace("splitter =", &format!("{}splitter =", event.replace("event", "sequence")));
    assert_eq!(warning(&with("")), None);
    assert!(warning(&sequence).is_some_and(|text| text.contains("`sequence` beside a splitter must go up by one")));
}

#[test]
fn names_of_sources_are_unique_and_brackets_are_explained() {
    let second = |name: &str| format!("{GOOD}name = \"adc\"\n[[source]]\nname = {name:?}\nid = 2\nreadout = \"ru0\"\n");
    assert!(parse("test.toml", &second("hits"), &variable).is_ok());
    let twice = error(&second("adc"));
    assert!(twice.key == "source[1].name" && twice.message.contains("has the name `adc` already"), "{twice}");
    for list in ["source", "readout", "builder"] {
        let single = error(&GOOD.replace(&format!("[[{list}]]"), &format!("[{list}]")));
        assert!(single.message.contains(&format!("write `[[{list}]]`")), "{single}");
    }
    let double = error(&format!("{GOOD}[[run]]\noutput = \"runs\"\n"));
    assert!(double.message.contains("write `[run]`"), "{double}");
}

#[test]
fn only_frames_with_the_numbers_of_their_events_are_gathered() {
    let with = |keys: &str| GOOD.replace("play = ", &format!("listen = \"udp://127.0.0.1:0\"\n{keys}\n#play = "));
    let number = "{ at = 0, type = \"u32le\" }";
    for (keys, key) in [
        ("format = \"generic\"\ngather = true".to_owned(), "source[0].gather"),
        ("frame = \"datagram\"\ngather = true".to_owned(), "source[0].gather"),
        ("format = \"midas\"\ngather = true".to_owned(), "source[0].gather"),
        ("format = \"lhcb-mep\"\ngather = true".to_owned(), "source[0].gather"),
        ("frame = \"datagram\"\nsplitter = { library = \"a.so\" }\ngather = true".to_owned(), "source[0].gather"),
        (
            format!("frame = \"datagram\"\nevent = {number}\ngather = true\ngather_timeout = \"0s\""),
            "source[0].gather_timeout",
        ),
    ] {
        let error = error(&with(&keys));
        assert_eq!(error.key, key, "{error}");
    }
    let gathers = |keys: &str| {
        let configuration = parse("test.toml", &with(keys), &variable).unwrap_or_else(|error| panic!("{error}"));
        configuration.source[0].gathering().map(|timeout| timeout.as_millis())
    };
    assert_eq!(gathers("format = \"dune\""), Some(100), "as the format has it");
    assert_eq!(gathers("format = \"dune\"\ngather = false"), None);
    assert_eq!(gathers("format = \"ess\""), None);
    let layout = format!("frame = \"datagram\"\nevent = {number}\n");
    assert_eq!(gathers(&layout), None);
    assert_eq!(gathers(&format!("{layout}gather = true\ngather_timeout = \"20ms\"")), Some(20));
}

/// A source under run control with these keys.
fn controlled(keys: &str) -> String {
    GOOD.replace("play = \"${DATA}/one.raw\"", &format!("format = \"generic\"\ncontrolled = true\n{keys}"))
}

#[test]
fn settings_are_handed_on_as_toml_or_as_they_stand() {
    let settings = |keys: &str| {
        let configuration = parse("test.toml", &controlled(keys), &variable).unwrap_or_else(|error| panic!("{error}"));
        configuration.source[0].settings().cloned().unwrap_or_default().0
    };
    assert_eq!(settings("settings = { rate = 10.5, name = \"a\" }"), "name = \"a\"\nrate = 10.5\n");
    assert_eq!(
        settings("[source.settings]\nat = 2026-01-01\n[source.settings.hv]\nch = [1, 2]"),
        "at = 2026-01-01\n\n[hv]\nch = [1, 2]\n"
    );
    assert_eq!(settings("settings = \"--whatever it wants\""), "--whatever it wants");
    assert_eq!(settings(""), "");
}

#[test]
fn a_source_under_run_control_learns_where_to_send_and_where_to_begin() {
    for (text, key) in [
        (controlled("listen = \"tcp://127.0.0.1:5000\""), "source[0].listen"),
        (controlled("first = 2"), "source[0].first"),
        (controlled("").replace("format = \"generic\"", ""), "source[0].format"),
        (controlled("settings = { a = 1 }").replace("controlled = true", ""), "source[0].settings"),
        (controlled(&format!("settings = \"{}\"", "x".repeat(61_441))), "source[0].settings"),
    ] {
        let error = error(&text);
        assert_eq!(error.key, key, "{error}");
    }
    assert!(error(&controlled("settings = 7")).message.contains("a table [source.settings] or a text"));
    let emulated = controlled("emulate = {}").replace("format = \"generic\"", "");
    let configuration = parse("test.toml", &emulated, &variable).expect("an emulator takes its place");
    assert!(!configuration.source[0].is_under_run_control());
}

#[test]
fn alarms_are_the_configurations_and_those_of_every_run() {
    let with = |more: &str| parse("test.toml", &format!("{GOOD}\n{more}"), &variable);
    let rules = with(
        "[[alarm]]\nname = \"slow\"\nquantity = \"events_per_second\"\nbelow = 10\nfor = \"5s\"\nlatched = true\n\
         [[alarm]]\nname = \"no_triggers\"\nenabled = false\n[[alarm]]\nname = \"checksums_wrong\"\n\
         quantity = \"per_second:crc_errors\"\nabove = 5\nseverity = \"critical\"",
    );
    let rules = alarm_rules(&rules.unwrap_or_else(|error| panic!("{error}")).alarm);
    let named = |name: &str| rules.iter().filter(|rule| rule.name == name).collect::<Vec<_>>();
    assert!(named("no_triggers").is_empty() && !named("disk_full").is_empty());
    let [slow, checksums] = ["slow", "checksums_wrong"].map(|name| named(name)[0]);
    assert_eq!((slow.condition, slow.hold, slow.is_latched), (Condition::Below(10.0), Duration::from_secs(5), true));
    assert_eq!((checksums.condition, checksums.severity), (Condition::Above(5.0), Severity::Critical));
    for (wrong, key) in [
        ("[[alarm]]\nname = \"a b\"\nquantity = \"dead\"\nabove = 0", "alarm[0].name"),
        ("[[alarm]]\nname = \"a\"\nabove = 0", "alarm[0].quantity"),
        ("[[alarm]]\nname = \"a\"\nquantity = \"dead\"", "alarm[0].above"),
        ("[[alarm]]\nname = \"a\"\nenabled = false\n[[alarm]]\nname = \"a\"\nenabled = false", "alarm[1].name"),
        ("[alarms]\nwebhook = \"ftp://elsewhere\"", "alarms.webhook"),
        ("[alarms]\nalive_every = \"1min\"", "alarms.alive_every"),
        ("[logbook]\nwebhook = \"elsewhere\"", "logbook.webhook"),
        ("[control]\ncertificate = \"server.pem\"", "control.key"),
        ("[control]\nkey = \"server.key\"", "control.certificate"),
        ("[logbook]\ncommand = [\"\"]", "logbook.command"),
        ("[run]\nrequired_fields = [\"Beam\"]", "run.required_fields"),
        ("[alarms]\ncommand = [\"true\"]\ntimeout = \"0s\"", "alarms.timeout"),
    ] {
        assert_eq!(with(wrong).expect_err(wrong).key, key);
    }
    let error = with("[[alarm]]\nname = \"a\"\nquantity = \"total:crc_error\"").expect_err("no such counter");
    assert!(error.message.contains("is it crc_errors"), "{error}");
}

#[test]
fn what_cannot_work_is_refused_at_its_place() {
    let with = |more: &str| parse("test.toml", &format!("{GOOD}\n{more}\n"), &variable);
    let readout = |more: &str| with(&format!("[[readout]]\nname = \"ru9\"\n{more}"));
    let builder = |more: &str| with(&format!("[[builder]]\nname = \"bu9\"\n{more}"));
    for (parsed, key) in [
        (readout("listen = \"127.0.0.1\""), "readout[1].listen"),
        (readout("listen = \"127.0.0.1:99999\""), "readout[1].listen"),
        (readout("address = \":4000\""), "readout[1].address"),
        (readout("listen = \"[fe80:1]:4000\""), "readout[1].listen"),
        (with("[manager]\naddress = \"x\""), "manager.address"),
        (with("[manager]\naddress = \"a:1\"\nstandby = [\"b\"]"), "manager.standby[0]"),
        (with("[run]\nfront_ends = \"nonsense\""), "run.front_ends"),
        (with("[run]\nsegment_events = 0"), "run.segment_events"),
        (with("[run]\nsegment_bytes = \"1\""), "run.segment_bytes"),
        (with("[run]\nsegment_time = \"0s\""), "run.segment_time"),
        (builder("bytes = \"0\""), "builder[1].bytes"),
        (builder("pool = \"1KiB\""), "builder[1].pool"),
        (with("[farm]\nnodes = 3"), "farm"),
        (with("[trigger]"), "trigger"),
        // What is missing has the place of its section.
        (with("[run]\nwrite = false"), "run.acknowledge"),
        (with("[timeouts]\nreadout = \"10s\""), "timeouts.builder"),
        (with("[[alarm]]\nname = \"a\"\nabove = 0"), "alarm[0].quantity"),
        (with("[[alarm]]\nname = \"a\"\nquantity = \"dead\""), "alarm[0].above"),
        (with("[control]\ncertificate = \"server.pem\""), "control.key"),
        (readout("capacity = 64"), "readout[1].window"),
    ] {
        let error = parsed.expect_err(key);
        let error = error.each().find(|error| error.key == key).unwrap_or_else(|| panic!("{key}: {error}"));
        assert!(error.line > GOOD.lines().count() && error.column > 0, "{key}: {error}");
    }
    for address in ["127.0.0.1:0", "[::1]:0", "daq-1.example.org:65535", "0.0.0.0:5000"] {
        assert!(readout(&format!("listen = \"{address}\"")).is_ok(), "{address}");
    }
}

#[test]
fn histograms_say_of_which_sources_what_is_counted_into_which_bins() {
    let with = |more: &str| parse("test.toml", &format!("{GOOD}\n{more}"), &variable);
    let one = |keys: &str| format!("[[histogram]]\nname = \"a\"\n{keys}");
    let good = with(&format!(
        "{}\n{}",
        one("of = \"size\"\nfrom = 0\nto = \"1KiB\"\nbins = 2"),
        "[[histogram]]\nname = \"b\"\nof = { offset = 4, bytes = 2, order = \"big\", bits = [4, 11] }\n\
         from = 1\nto = 256\nbins = 8\nscale = \"logarithmic\""
    ));
    let good = good.unwrap_or_else(|error| panic!("{error}"));
    let [sizes, field] = &good.histogram_configs()[..] else { panic!("two of them") };
    assert_eq!((sizes.binning.edges(), sizes.sources.len()), (&[0, 512, 1024][..], good.source.len()));
    assert_eq!(field.binning.edges(), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    let wanted = IntegerField { offset: 4, bytes: 2, order: FieldOrder::Big, lowest_bit: 4, bits: 8 };
    assert_eq!((field.index, field.of), (1, Histogrammed::Field(wanted)));
    let bounds = "from = 0\nto = 100";
    for (keys, key) in [
        (format!("of = \"sizes\"\n{bounds}"), "histogram[0].of"),
        (format!("of = {{ offset = 0, bytes = 9 }}\n{bounds}"), "histogram[0].of"),
        (format!("of = {{ offset = 0, bytes = 1, bits = [0, 8] }}\n{bounds}"), "histogram[0].of"),
        (format!("of = \"interval\"\n{bounds}"), "histogram[0].to"),
        ("of = \"size\"\nfrom = 7\nto = 7".to_owned(), "histogram[0].to"),
        (format!("of = \"size\"\n{bounds}\nbins = 257"), "histogram[0].bins"),
        (format!("of = \"size\"\n{bounds}\nbins = 101"), "histogram[0].bins"),
        (format!("of = \"size\"\n{bounds}\nscale = \"logarithmic\""), "histogram[0].from"),
        (format!("of = \"size\"\n{bounds}\nsources = [\"9-2\"]"), "histogram[0].sources"),
        (format!("of = \"size\"\n{bounds}\nsources = [98765]"), "histogram[0].sources"),
        (format!("of = \"size\"\n{bounds}\nsources = \"some\""), "histogram[0].sources"),
        (format!("of = \"size\"\n{bounds}\n{}", one(&format!("of = \"size\"\n{bounds}"))), "histogram[1].name"),
    ] {
        assert_eq!(with(&one(&keys)).expect_err(&keys).key, key, "{keys}");
    }
    let all =
        with(&one("of = \"size\"\nfrom = \"some\"\nto = \"more\"\nbins = 257\nsources = [98765]")).expect_err("four");
    let keys: Vec<&str> = all.each().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["from", "to", "bins", "sources"].map(|key| format!("histogram[0].{key}")));
}
