//! The process irqbalance, which moves interrupts to where it wants them.

use ropewalk_host::{Card, CpuList};

use super::Seen;
use super::layout::{held, receiving};
use crate::found::{Found, Unread};
use crate::{Plan, Setting, Wish};

/// What becomes of the interrupts that a plan moves, where irqbalance runs and may move them, too.
pub fn moved_back(found: &Found, plan: &Plan) -> Option<String> {
    let number = process(found)?;
    let planned = plan.changes.iter().filter_map(|change| match &change.setting {
        Setting::File { path, .. } => path.strip_prefix("proc/irq/")?.split('/').next()?.parse::<u32>().ok(),
        Setting::Mtu { .. } | Setting::Card { .. } | Setting::Thread(_) => None,
    });
    let moved = CpuList::from_iter(planned).without(&Banned::read(found).interrupts);
    (!moved.is_empty()).then(|| {
        format!(
            "irqbalance runs as process {number} and moves interrupts {moved} again within seconds: stop it first \
             (`systemctl disable --now irqbalance`), or have it leave them alone (`--banirq`)"
        )
    })
}

/// The number of the process, if there is one.
fn process(found: &Found) -> Option<&str> {
    let (path, _) = found.each("proc/", "/comm").find(|(_, name)| *name == "irqbalance")?;
    path.strip_prefix("proc/")?.split('/').next()
}

/// The rule.
pub(super) fn irqbalance(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "irqbalance";
    const FAST: u32 = 10_000;
    let Some(number) = process(found) else { return Ok(vec![Seen::good(SUBJECT, "does not run")]) };
    let Banned { cpus, interrupts } = Banned::read(found);
    let banned: Vec<String> = [("CPU", &cpus), ("interrupts", &interrupts)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(what, list)| format!("{what} {list} banned"))
        .collect();
    let banned = if banned.is_empty() { "no CPU banned".to_owned() } else { banned.join(", ") };
    let told = format!("runs as process {number}, with {banned}");
    let is_fast = |card: &&Card| card.megabits_per_second.is_some_and(|speed| speed >= FAST);
    let hardware = found.hardware(wish).into_iter();
    let taking: Vec<&Card> = hardware.filter(|card| found.readers_of(card, wish) > 0 || is_fast(card)).collect();
    if taking.is_empty() {
        return Ok(vec![Seen::good(SUBJECT, told)]);
    }
    let of_cards = taking.iter().flat_map(|card| receiving(found, wish, card)).map(|interrupt| interrupt.number);
    let (moved, coming) = (CpuList::from_iter(of_cards).without(&interrupts), held(found, wish).without(&cpus));
    let ways = [
        (!moved.is_empty()).then(|| format!("`--banirq` for {moved}")),
        (!coming.is_empty()).then(|| format!("`IRQBALANCE_BANNED_CPULIST` with CPU {coming}")),
    ];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    Ok(vec![if ways.is_empty() {
        Seen::good(SUBJECT, told)
    } else {
        let advised = format!("`systemctl disable --now irqbalance`, or ban from it: {}", ways.join(" and "));
        Seen::better(SUBJECT, told, advised)
    }])
}

/// What irqbalance leaves alone, as far as its files of settings say it.
#[derive(Default)]
struct Banned {
    /// To these CPUs no interrupts are moved.
    cpus: CpuList,
    /// These interrupts are not moved.
    interrupts: CpuList,
}

impl Banned {
    fn read(found: &Found) -> Self {
        let files = ["etc/default/irqbalance", "etc/sysconfig/irqbalance"];
        let lines = files.into_iter().filter_map(|path| found.text(path)).flat_map(str::lines);
        let mut banned = Self::default();
        for (key, value) in lines.filter_map(|line| line.trim().split_once('=')) {
            let value = value.trim().trim_matches(['"', '\'']);
            match key.trim_start_matches("export ").trim() {
                "IRQBALANCE_BANNED_CPULIST" => banned.cpus = value.parse().unwrap_or_default(),
                "IRQBALANCE_BANNED_CPUS" => banned.cpus = cpus_in(value),
                // Under which name the options stand is a matter of the distribution.
                key if !key.starts_with('#') => banned.interrupts = banned.interrupts.union(&banned_interrupts(value)),
                _ => {}
            }
        }
        banned
    }
}

/// The interrupts behind `--banirq=N`, `--banirq N`, `-i N` and `-iN` among options.
fn banned_interrupts(options: &str) -> CpuList {
    let (mut banned, mut words) = (Vec::new(), options.split([' ', '\t', '=']));
    while let Some(word) = words.next() {
        let number = if ["-i", "--banirq"].contains(&word) { words.next() } else { word.strip_prefix("-i") };
        banned.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    banned.into_iter().collect()
}

/// The CPUs of a mask, which may have commas in it.
fn cpus_in(mask: &str) -> CpuList {
    let digits = mask.trim_start_matches("0x").chars().rev().filter(|letter| *letter != ',');
    let cpus = (0..).zip(digits).flat_map(|(place, letter): (u32, char)| {
        let digit = letter.to_digit(16).unwrap_or(0);
        (0..4).filter(move |bit| (digit >> bit) & 1 == 1).map(move |bit| place * 4 + bit)
    });
    cpus.collect()
}
