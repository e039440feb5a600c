//! Words, signs, configuration, and what goes to other rooms.

use super::super::{Action, ConfigError, Doubt};
use super::*;
use ropewalk_terms::Cause;
use ropewalk_wire::message::{FragmentFlags, FragmentMeta, SynchronyState};

fn change(verdict: Verdict) -> Change {
    Change { source: SourceId(843), verdict, since: EventKey::new(0, 2000), at: EventKey::new(0, 2040), action: None }
}

#[test]
fn verdicts_are_lines_of_the_summary() {
    let lines = [
        (Verdict::Offset(1), "source 843: one event early since event 2000"),
        (Verdict::Offset(-3), "source 843: 3 events late since event 2000"),
        (Verdict::InSync, "source 843: in sync since event 2000"),
        (Verdict::Lost, "source 843: lost since event 2000"),
        (Verdict::CannotTell(Doubt::NoInformation), "source 843: cannot tell, the triggers are too regular"),
    ];
    for (verdict, line) in lines {
        assert_eq!(change(verdict).to_string(), line);
    }
}

#[test]
fn verdicts_have_causes_and_messages() {
    let offset = change(Verdict::Offset(-2));
    assert_eq!(offset.verdict.cause(), Some(Cause::SynchronyOffset));
    let message = SynchronyState { source: SourceId(843), verdict: 2, offset: -2, since: EventKey::new(0, 2000) };
    assert_eq!(SynchronyState::from(&offset), message);
    assert_eq!(Verdict::Lost.cause(), Some(Cause::SynchronyLost));
    assert_eq!(Verdict::InSync.cause(), None);
    assert_eq!(Verdict::CannotTell(Doubt::TooFew).cause(), None);
}

#[test]
fn a_displacement_carries_the_configured_action_and_flags_its_source_alone() {
    let triggers = random_triggers(50, 700);
    let carried = losing(in_step(700), 300, 1);
    let mut config = config(3);
    config.action = Action::Pause;
    let mut machine = machine(config);
    let crossing = |trigger: &Trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing);
    let changes = feed(&mut machine, 600, |event| {
        vec![crossing(&triggers[event]), crossing(&triggers[carried[event]]), crossing(&triggers[event])]
    });
    let actions: Vec<_> = changes.iter().map(|change| (change.verdict, change.action)).collect();
    let in_sync = (Verdict::InSync, None);
    assert_eq!(actions, [in_sync, in_sync, (Verdict::Offset(1), Some(Action::Pause))]);
    assert_eq!([0, 1, 2, 3].map(|source| machine.cause(source)), [None, Some(Cause::SynchronyOffset), None, None]);
    assert!(machine.any_displaced());
    assert_eq!(machine.suspicion_of_reference(), None);
}

#[test]
fn wrong_configurations_are_refused() {
    let mut unknown = config(2);
    unknown.reference = Some(SourceId(7));
    assert_eq!(Synchrony::new(unknown).err(), Some(ConfigError::UnknownReference(SourceId(7))));
    let mut short = config(2);
    short.window = 10;
    assert_eq!(Synchrony::new(short).err(), Some(ConfigError::Window(10)));
}

#[test]
fn fragments_become_observations() {
    let mut meta = FragmentMeta::missing(SourceId(1), Cause::TimedOut);
    assert!(Observation::from(&meta).is_missing());
    meta.flags = FragmentFlags::HAS_BUNCH_CROSSING;
    meta.bunch_crossing = 654;
    let observation = Observation::from(&meta);
    assert_eq!((observation.bunch_crossing(), observation.time()), (Some(654), None));
    meta.flags = meta.flags.with(FragmentFlags::HAS_TIME);
    meta.time = 99;
    assert_eq!(Observation::from(&meta).time(), Some(99));
}

#[test]
fn an_observation_is_16_bytes() {
    assert_eq!(size_of::<Observation>(), 16);
}

#[test]
fn lists_never_grow() {
    let triggers = random_triggers(51, 3000);
    let mut random = Random(52);
    let mut machine = machine(config(20));
    let room = machine.room();
    for (number, trigger) in triggers.iter().enumerate() {
        // Changes are not asked for, so that they pile up as far as they can.
        let nonsense = number / 400 % 2 == 1;
        let row: Vec<_> = (0..20)
            .map(|source| {
                let crossing = if nonsense && source > 0 { random.below(3564) as u16 } else { trigger.bunch_crossing };
                Observation::MISSING.with_bunch_crossing(crossing)
            })
            .collect();
        machine.observe(EventKey::new(0, number as u64), &row);
    }
    machine.conclude();
    assert_eq!(machine.room(), room);
    assert_eq!(core::iter::from_fn(|| machine.poll()).count(), 19);
}
