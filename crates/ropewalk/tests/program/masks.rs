//! A source that dies in mid-run is taken out, begun anew, and taken in again, by `ctl`.

use crate::control::Controlled;
use crate::process::Program;
use crate::support::{FrontEnd, Held, Setup, wait_for};
use serde_json::{Value, json};

impl Controlled {
    pub(crate) fn mask(&self, command: &str, sources: &str) -> Value {
        let ended = Program::run(["ctl", command, sources, "--url", &self.url, "--by", "ada", "--json"]);
        ended.expect_status(0).account()
    }

    pub(crate) fn wait_for_written(&self, events: u64) {
        wait_for(&format!("{events} events"), || (self.good("ledger")["events"]["written"] == events).then_some(()));
    }

    pub(crate) fn address_of(&self, readout: &str) -> String {
        let addresses = self.good("addresses");
        let known = addresses.as_array().expect("a list").iter().find(|one| one["name"] == readout);
        known.expect("a readout unit")["address"].as_str().expect("text").to_owned()
    }
}

/// Which of the two sources each event from 1 on has; nothing is missing in any.
fn held(setup: &Setup, run: u32) -> Vec<Vec<u32>> {
    let held = Held::in_directories(&[setup.output().join(format!("run{run:06}"))]);
    assert!(held.events.values().all(|event| event.missing.is_empty()), "a masked source is not missing");
    held.expect_keys_up_to(held.events.len() as u64);
    held.events.values().map(|event| event.fragments.keys().copied().collect()).collect()
}

/// Who is masked stays so in the next run.
fn next_run(setup: &Setup, controlled: &Controlled) {
    controlled.wait("the next run to be set up", |state| state["run"] == 2 && state["task"].is_null());
    let mut one = FrontEnd::ferol(&controlled.address_of("ru0"), 841);
    controlled.good("start");
    one.send(1..=20);
    controlled.wait_for_written(20);
    controlled.good("stop");
    assert_eq!(held(setup, 2), vec![vec![841]; 20]);
}

#[test]
fn a_source_that_died_is_taken_out_and_in_again_while_the_run_goes_on() {
    let setup = Setup::new("masks", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let (mut one, mut other) =
        (FrontEnd::ferol(&controlled.address_of("ru0"), 841), FrontEnd::ferol(&controlled.address_of("ru1"), 843));
    assert_eq!(controlled.good("start")["state"], "running");
    one.send(1..=50);
    other.send(1..=50);
    controlled.wait_for_written(50);
    other.disconnect();
    one.send(51..=100);
    // The time-outs of this test pass after it has failed.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(controlled.good("ledger")["events"]["written"], 50, "the events wait for who died");

    let masked =
        json!([{ "source": 843, "is_masked": true, "in_run": "masked", "events": [{ "from": "51", "to": null }] }]);
    assert_eq!(controlled.mask("mask", "843"), masked);
    controlled.wait_for_written(100);
    other.connect();
    other.send(101..=110);
    one.send(101..=110);
    controlled.wait_for_written(110);
    wait_for("what came of the masked source", || {
        let sources = controlled.good("sources");
        let of_other = sources.as_array().expect("a list").iter().find(|source| source["id"] == 843);
        of_other.filter(|source| source["dropped"]["masked"] == 10).map(|_| ())
    });

    assert_eq!(controlled.mask("unmask", "843")[0]["in_run"], "asked_back");
    other.send(111..=120);
    wait_for("the source to take part", || {
        let masks = controlled.good("masks");
        (masks[0]["in_run"] == "takes_part")
            .then(|| assert_eq!(masks[0]["events"], json!([{ "from": "51", "to": "111" }])))
    });
    other.send(121..=150);
    one.send(111..=150);
    controlled.wait_for_written(150);
    let refused = Program::run(["ctl", "mask", "841,843", "--url", &controlled.url]);
    assert!(refused.expect_status(3).out.concat().contains("no source would be left"), "{:?}", refused.out);
    controlled.mask("mask", "843");
    assert_eq!(controlled.good("stop")["answer"], "done");
    let of_event = held(&setup, 1);
    let expected = |number: u64| if (51..=110).contains(&number) { vec![841] } else { vec![841, 843] };
    assert_eq!(of_event, (1..=150).map(expected).collect::<Vec<_>>());

    next_run(&setup, &controlled);
    controlled.good("shutdown");
    let told: Vec<Value> =
        controlled.program.end().out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    let turns =
        [json!([{ "from": "51", "to": "111" }, { "from": "151", "to": null }]), json!([{ "from": "1", "to": null }])];
    for (account, turns) in told.iter().zip(turns) {
        assert_eq!(
            (&account["ledger"]["balanced"], &account["masked"]),
            (&json!(true), &json!({ "843": turns })),
            "{account:#}"
        );
        assert_eq!(account["events"]["incomplete_emitted"], 0, "{account:#}");
    }
    assert_eq!((told.len(), &told[0]["fragments"]["dropped"]), (2, &json!({ "masked": 10 })));
}

#[test]
fn a_source_that_died_is_begun_anew_by_one_command() {
    let setup = Setup::new("restart", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let restart = |by: &str| Program::run(["ctl", "restart", "843", "--url", &controlled.url, "--by", by, "--json"]);
    assert!(
        restart("ada").expect_status(3).account()["error"].as_str().is_some_and(|why| why.contains("no run goes on"))
    );
    let (mut one, mut other) =
        (FrontEnd::ferol(&controlled.address_of("ru0"), 841), FrontEnd::ferol(&controlled.address_of("ru1"), 843));
    controlled.good("start");
    one.send(1..=50);
    other.send(1..=50);
    controlled.wait_for_written(50);
    other.disconnect();
    one.send(51..=100);
    Program::run(["ctl", "take", "--url", &controlled.url, "--by", "bob"]).expect_status(0);
    assert!(restart("ada").expect_status(3).account()["error"].as_str().is_some_and(|why| why.contains("bob holds")));
    Program::run(["ctl", "give", "--url", &controlled.url, "--by", "bob"]).expect_status(0);

    // Once more it changes nothing.
    for _ in 0..2 {
        let restarted = restart("ada").expect_status(0).account();
        assert_eq!(restarted["answer"], "done", "{restarted}");
        assert_eq!(restarted["restarted"], json!([{ "source": 843, "out_from": "51" }]));
    }
    controlled.wait_for_written(100);
    other.connect();
    other.send(101..=120);
    wait_for("the source to take part", || {
        let masks = controlled.good("masks");
        (masks[0]["in_run"] == "takes_part")
            .then(|| assert_eq!(masks[0]["events"], json!([{ "from": "51", "to": "101" }])))
    });
    one.send(101..=120);
    controlled.wait_for_written(120);
    let files = controlled.good("files");
    assert_eq!((&files["run"], files["files"].as_array().map(Vec::len)), (&json!(1), Some(1)), "{files}");
    controlled.good("stop");
    let expected = |number: u64| if (51..=100).contains(&number) { vec![841] } else { vec![841, 843] };
    assert_eq!(held(&setup, 1), (1..=120).map(expected).collect::<Vec<_>>());
    let files = Program::run(["ctl", "files", "1", "--url", &controlled.url]);
    let told = files.expect_status(0).out.concat();
    assert!(told.contains("run000001-bu0-000001.rwk") && told.contains("120 events"), "{told}");
    Program::run(["ctl", "files", "99", "--url", &controlled.url]).expect_status(2);
    controlled.good("shutdown");
    let account = controlled.program.end().account();
    assert_eq!(account["masked"], json!({ "843": [{ "from": "51", "to": "101" }] }), "{account:#}");
    assert_eq!((&account["ledger"]["balanced"], &account["events"]["incomplete_emitted"]), (&json!(true), &json!(0)));
}
