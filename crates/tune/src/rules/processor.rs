//! Frequencies, sleep, scheduling, clocks.

use super::{Rule, Seen};
use crate::found::{Found, Unread};
use crate::{Form, Grade, Group, Setting, Sureness, Wish};

/// Rules on processors.
pub(super) const PROCESSOR: &[Rule] = &[
    Rule {
        name: "frequency_governor",
        group: Group::Processor,
        what: "Who chooses the frequency of CPUs (`scaling_governor`). `performance`.",
        why: "The others lower it whenever a thread waits for a moment, and raise it when the queue is already full.",
        source: "the kernel's admin-guide/pm/cpufreq.rst",
        worth: "up to the ratio of the frequencies in bursts; `ropewalk bench machines`",
        sureness: Sureness::Documented,
        look: frequency_governor,
    },
    Rule {
        name: "idle_states",
        group: Group::Processor,
        what: "How deeply idle CPUs of a node that feeds may sleep (`cpuidle`). No state from which waking takes longer than \
               50 us.",
        why: "Packets that come meanwhile wait in the card's ring, and each request of a builder unit waits as long.",
        source: "the kernel's admin-guide/pm/cpuidle.rst",
        worth: "the state's latency each time: 100 to 900 us; `ropewalk doctor` shows how long it takes to wake a \
               thread",
        sureness: Sureness::Documented,
        look: idle_states,
    },
    Rule {
        name: "guest_halt_poll",
        group: Group::Processor,
        what: "How long a CPU of a virtual machine looks for work before it gives itself back to the host \
               (`guest_halt_poll_ns` of the governor haltpoll). 200000.",
        why: "To wake a CPU that was given back the host has to take part.",
        source: "the kernel's virt/guest-halt-polling.rst; measured with Ropewalk",
        worth: "half of a round trip between two threads that sleep: 28 us with 0, 17 us with 200000, 5 us where the \
               host has \
                cores to spare; `ropewalk doctor`. A run that is busy is no faster",
        sureness: Sureness::Measured,
        look: guest_halt_poll,
    },
    Rule {
        name: "hardware_threads",
        group: Group::Processor,
        what: "Whether a core runs two hardware threads. Only reported: the layout leaves the other one of each \
               reading core without work.",
        why: "Two busy threads on one core have half a core each: two reading threads on siblings are no faster than one.",
        source: "docs/placement.md",
        worth: "two threads on two cores against two on one: 2.0 against 1.0 times one, at the vector unit's limit; \
               `ropewalk doctor` shows what two CPUs do",
        sureness: Sureness::Measured,
        look: hardware_threads,
    },
    Rule {
        name: "numa_balancing",
        group: Group::Processor,
        what: "`kernel.numa_balancing`, whether the kernel moves memory to the threads that use it, on machines with several \
               nodes. 0.",
        why: "It finds out by taking pages away for a moment, so that each of them faults. Ropewalk places its memory \
              itself.",
        source: "the kernel's admin-guide/sysctl/kernel.rst; paper 3, IV-B, on memory that is placed",
        worth: "no page faults while data is taken; no bench of Ropewalk shows it: it takes two nodes \
               (admin-guide/sysctl/kernel.rst)",
        sureness: Sureness::Documented,
        look: numa_balancing,
    },
    Rule {
        name: "clock_source",
        group: Group::Processor,
        what: "What the kernel reads the time from. `tsc`, or in virtual machines `kvm-clock`, `hyperv_clocksource_tsc_page`, \
               `xen`; on ARM `arch_sys_counter`.",
        why: "Those are read without a system call. Others cost a system call and an access to a slow device each time.",
        source: "the kernel's timers/timekeeping.rst; vdso(7)",
        worth: "25 ns against 1 us and more for each read of the clock, of which there is one in each batch; no bench \
               of Ropewalk shows it: the times are those of `clock_gettime`, with and without a system call (vdso(7))",
        sureness: Sureness::Documented,
        look: clock_source,
    },
    Rule {
        name: "mitigations",
        group: Group::Processor,
        what: "Which defects of the processor the kernel works around. Only reported, never changed.",
        why: "Some make system calls and context switches dearer: figures of two machines compare only where both are known. \
              Whether they are needed is not a question of speed.",
        source: "the kernel's admin-guide/hw-vuln",
        worth: "a system call costs 133 ns on one machine that was measured, and many messages in each call make it \
               small; `ropewalk bench packet --case figure=cost` shows both",
        sureness: Sureness::Documented,
        look: mitigations,
    },
    Rule {
        name: "realtime_throttling",
        group: Group::Processor,
        what: "`kernel.sched_rt_runtime_us`, how long in each second threads with strict priority may run. Where the \
               configuration has such threads: each on a core where something else never has to run.",
        why: "Threads that poll all the time (as reading threads do for a while) are stopped for 50 ms in each \
              second when they share a core; with -1 they are not, and may keep the kernel's own threads from running.",
        source: "sched(7); the kernel's scheduler/sched-rt-group.rst; paper 1, IV-C",
        worth: "no pause of 50 ms; no bench of Ropewalk shows it: the 50 ms of each second are the kernel's (sched(7))",
        sureness: Sureness::Documented,
        look: realtime_throttling,
    },
];

fn frequency_governor(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "frequency governor";
    const WANTED: &str = "performance";
    let policies: Vec<(&str, &str)> =
        found.each("sys/devices/system/cpu/cpufreq/policy", "/scaling_governor").collect();
    if policies.is_empty() {
        return Ok(vec![Seen::good(SUBJECT, "the kernel does not choose frequencies here")]);
    }
    let has_wanted = |path: &str| {
        let available = path.replace("scaling_governor", "scaling_available_governors");
        found.text(&available).is_none_or(|names| names.split_ascii_whitespace().any(|name| name == WANTED))
    };
    let others: Vec<_> = policies.iter().filter(|(path, name)| *name != WANTED && has_wanted(path)).collect();
    let Some((_, first)) = others.first() else { return Ok(vec![Seen::good(SUBJECT, policies[0].1)]) };
    let told = format!("{first} for {} of {} CPUs or groups of them", others.len(), policies.len());
    let seen = Seen::better(SUBJECT, told, WANTED);
    let setting = |path: &str| Setting::File { path: path.to_owned(), form: Form::Plain };
    Ok(vec![others.iter().fold(seen, |seen, (path, name)| seen.change(setting(path), *name, WANTED))])
}

fn idle_states(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "deep sleep of CPUs";
    /// Microseconds that waking may take.
    const LONGEST: u64 = 50;
    let feeding = found.hardware(wish).into_iter().filter(|card| found.readers_of(card, wish) > 0);
    let near: Vec<_> = feeding.map(|card| found.cpus_near(card)).collect();
    let cpu_of = |path: &str| path.strip_prefix("sys/devices/system/cpu/cpu")?.split('/').next()?.parse::<u32>().ok();
    let mut deepest: Option<(u64, &str)> = None;
    let mut seen = Seen::better(SUBJECT, "", "");
    for (path, enabled) in found.each("sys/devices/system/cpu/cpu", "/disable").filter(|(_, value)| *value == "0") {
        let Some(latency) = found.number(&path.replace("/disable", "/latency")).filter(|&time| time > LONGEST) else {
            continue;
        };
        let name = found.text(&path.replace("/disable", "/name")).unwrap_or("a state");
        deepest = deepest.max(Some((latency, name)));
        if cpu_of(path).is_some_and(|cpu| near.iter().any(|cpus| cpus.contains(cpu))) {
            let setting = Setting::File { path: path.to_owned(), form: Form::Plain };
            seen = seen.change(setting, enabled, "1");
        }
    }
    let Some((latency, name)) = deepest else {
        return Ok(vec![Seen::good(SUBJECT, "none from which waking takes longer than 50 us")]);
    };
    seen.found = format!("{name}: waking takes {latency} us");
    seen.advised = if seen.changes.is_empty() {
        seen.grade = Grade::Told;
        "none for CPUs of a card's node that feeds".to_owned()
    } else {
        format!("none on the node that feeds ({} states of CPUs)", seen.changes.len())
    };
    // Only the states on a feeding node matter; elsewhere sleeping saves energy and costs no time.
    if seen.changes.is_empty() && !near.is_empty() {
        return Ok(vec![Seen::good(SUBJECT, "none on the node that feeds")]);
    }
    Ok(vec![seen])
}

fn guest_halt_poll(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "guest_halt_poll_ns";
    const PATH: &str = "sys/module/haltpoll/parameters/guest_halt_poll_ns";
    const WANTED: u64 = 200_000;
    let driver = found.text("sys/devices/system/cpu/cpuidle/current_driver");
    let Some(text) = found.text(PATH).filter(|_| driver == Some("haltpoll")) else {
        let is_guest = found.is_virtual();
        // The host offers other drivers; if it has none, the guest may poll by itself.
        return Ok(vec![match driver.filter(|name| !name.is_empty() && *name != "none") {
            None if is_guest => Seen::told(
                SUBJECT,
                "a virtual machine without the driver haltpoll: an idle CPU returns to the host at once",
                "load it, where the host is KVM: `modprobe cpuidle_haltpoll force=1`",
            ),
            _ => Seen::good(SUBJECT, "is not used here"),
        }]);
    };
    let present: u64 = text.parse().map_err(|_| Unread(format!("/{PATH}")))?;
    Ok(vec![if present >= WANTED {
        Seen::good(SUBJECT, text)
    } else {
        let setting = Setting::File { path: PATH.to_owned(), form: Form::Plain };
        Seen::better(SUBJECT, text, WANTED.to_string()).change(setting, text, WANTED.to_string())
    }])
}

fn hardware_threads(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "hardware threads";
    let (cores, cpus) = (found.machine.cores.len(), found.machine.online.len());
    Ok(vec![if found.machine.has_hardware_threads() {
        let told = format!("{cpus} on {cores} cores");
        Seen::told(SUBJECT, told, "leave the other one of each core that reads without work, as `auto` does")
    } else {
        Seen::good(SUBJECT, format!("one on each of {cores} cores"))
    }])
}

fn numa_balancing(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "kernel.numa_balancing";
    if found.machine.nodes.len() < 2 {
        return Ok(vec![Seen::good(NAME, "there is one node")]);
    }
    Ok(vec![match found.sysctl(NAME)? {
        0 => Seen::good(NAME, "0"),
        present => Seen::sysctl(Grade::CouldBeBetter, NAME, present, 0),
    }])
}

fn clock_source(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "clock source";
    const GOOD: [&str; 5] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter"];
    let directory = "sys/devices/system/clocksource/clocksource0";
    let present = found.must(&format!("{directory}/current_clocksource"))?;
    if GOOD.contains(&present) {
        return Ok(vec![Seen::good(SUBJECT, present)]);
    }
    let available = found.text(&format!("{directory}/available_clocksource")).unwrap_or_default();
    let better = available.split_ascii_whitespace().find(|name| GOOD.contains(name));
    // The kernel reports at boot that it leaves an unsteady clock: no program can switch it back.
    Ok(vec![match better {
        Some(name) => {
            Seen::harmful(SUBJECT, present, format!("{name}, if `dmesg` does not say why the kernel left it"))
        }
        None => {
            Seen::harmful(SUBJECT, present, "tsc: see in `dmesg` why the kernel does not trust it (firmware, `tsc=`)")
        }
    }])
}

fn mitigations(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    let first = "sys/devices/system/cpu/vulnerabilities/";
    let known = found.each(first, "").filter(|(_, text)| !text.is_empty() && *text != "Not affected");
    let seen: Vec<Seen> = known
        .map(|(path, text)| {
            Seen::told(path.trim_start_matches(first), text, "nothing: whether it is needed is not a question of speed")
        })
        .collect();
    Ok(if seen.is_empty() { vec![Seen::good("mitigations", "none are in force")] } else { seen })
}

fn realtime_throttling(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "kernel.sched_rt_runtime_us";
    let (present, period) = (found.sysctl(NAME)?, found.sysctl("kernel.sched_rt_period_us")?);
    let advised = "a core for each thread with strict priority, where nothing else has to run";
    Ok(vec![match (wish.realtime_priority, present) {
        // As much as there is is no bound, either.
        (Some(_), _) if present == -1 || present >= period => {
            Seen::told(NAME, format!("{present}: such threads are never stopped"), advised)
        }
        (Some(_), _) => Seen::told(NAME, format!("{present} of each {period} us"), advised),
        (None, _) => Seen::good(NAME, present.to_string()),
    }])
}
