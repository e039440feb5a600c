use super::*;
use crate::Property;
use std::fs;

/// A directory of its own, which goes with the value.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-tune-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("proc/sys/net/core")).expect("a temporary directory can be made");
        fs::create_dir_all(path.join("sys/class/net/eth0")).expect("a temporary directory can be made");
        Self(path)
    }

    fn with(self, path: &str, text: &str) -> Self {
        fs::write(self.0.join(path), text).expect("a file can be written");
        self
    }

    fn place(&self) -> Place {
        Place::recorded(&self.0).expect("a record")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RECORD: &str = r#"{ "probed": { "free_bytes": 7 }, "cards": { "eth0": { "most_receive_ring": 8192, "properties": [
    [{ "of": "receive_ring" }, "1024"], [{ "of": "feature", "name": "rx-gro" }, "on"] ] } } }"#;

fn card(property: Property) -> Setting {
    Setting::Card { interface: "eth0".to_owned(), property }
}

#[test]
fn a_recorded_machine_keeps_what_is_set() {
    let directory = Directory::new("keeps").with("proc/sys/net/core/rmem_max", "212992\n");
    let directory = directory.with("sys/class/net/eth0/mtu", "1500\n").with(Place::RECORD, RECORD);
    let mtu = Setting::Mtu { interface: "eth0".to_owned() };
    let settings = [Setting::sysctl("net.core.rmem_max"), mtu, card(Property::ReceiveRing)];
    let mut place = directory.place();
    for (setting, (old, new)) in settings.iter().zip([("212992", "16777216"), ("1500", "9000"), ("1024", "8192")]) {
        assert_eq!(place.read(setting).expect("it can be read").as_deref(), Some(old), "{setting}");
        place.write(setting, new).expect("it can be written");
        assert_eq!(directory.place().read(setting).expect("it can be read").as_deref(), Some(new), "{setting}");
    }
    let probed: serde_json::Value = directory.place().record("probed").expect("a value").expect("it is there still");
    assert_eq!(probed["free_bytes"], 7);
    assert!(!place.is_live());
}

#[test]
fn a_recorded_machine_shows_values_as_the_kernel_does() {
    let directory = Directory::new("shows");
    let (choice, mask, several) = ("sys/choice", "sys/mask", "proc/sys/net/core/several");
    let directory = directory.with(choice, "always [madvise] never\n").with(mask, "00000000,000000ff\n");
    let directory = directory.with(several, "4096\t131072\t6291456\n");
    let setting = |path: &str, form| Setting::File { path: path.to_owned(), form };
    let mut place = directory.place();
    for (setting, value, shown) in [
        (setting(choice, Form::Choice), "never", "always madvise [never]\n"),
        (setting(mask, Form::CpuMask), "f00000000", "0000000f,00000000\n"),
        (setting(several, Form::Plain), "4096 131072 9", "4096\t131072\t9\n"),
    ] {
        place.write(&setting, value).expect("it can be written");
        let Setting::File { path, .. } = &setting else { panic!("all are files") };
        assert_eq!(fs::read_to_string(directory.0.join(path)).expect("it is there"), shown);
        assert_eq!(place.read(&setting).expect("it can be read").as_deref(), Some(value));
    }
    let error = place.write(&setting(choice, Form::Choice), "often").expect_err("it is no choice").to_string();
    assert_eq!(
        error,
        "/sys/choice: the kernel takes no value `often` there: it is out of range, or no value of this file"
    );
}

#[test]
fn what_a_machine_has_not_is_none_and_cannot_be_written() {
    let directory = Directory::new("none").with(Place::RECORD, RECORD).with("sys/class/net/eth0/mtu", "1500\n");
    let mut place = directory.place();
    let missing = Setting::sysctl("net.core.no_such_thing");
    assert_eq!(place.read(&missing).expect("it can be asked for"), None);
    let error = place.write(&missing, "1").expect_err("it is not there");
    assert_eq!(error.to_string(), "net.core.no_such_thing: this machine has no such setting");
    assert_eq!(place.read(&card(Property::TransmitRing)).expect("it can be asked for"), None);
    let error = place.write(&card(Property::TransmitRing), "9").expect_err("the driver lacks it");
    assert_eq!(error.to_string(), "eth0: the driver cannot set the transmit ring");
    let mtu = Setting::Mtu { interface: "eth7".to_owned() };
    assert_eq!(place.read(&mtu).expect("it can be asked for"), None);
    let error = place.write(&mtu, "9000").expect_err("it is not there");
    assert_eq!(error.to_string(), "there is no network interface `eth7`");
}

#[test]
fn values_beyond_what_a_card_can_are_refused() {
    let directory = Directory::new("beyond").with(Place::RECORD, RECORD);
    let mut place = directory.place();
    for (property, value) in [(Property::ReceiveRing, "8193"), (Property::Feature("rx-gro".to_owned()), "1")] {
        let error = place.write(&card(property.clone()), value).expect_err("it is no value");
        assert_eq!(error.to_string(), format!("eth0: `{value}` is no value of the {property}"));
    }
    assert!(place.write(&Setting::Mtu { interface: "eth0".to_owned() }, "large").is_err());
}

#[test]
fn no_path_leaves_the_root() {
    let directory = Directory::new("leaves");
    let mut place = directory.place();
    std::os::unix::fs::symlink("/etc/passwd", directory.0.join("sys/out")).expect("a link can be made");
    for path in
        ["proc/sys/../../etc/passwd", "/proc/sys/kernel/hostname", "etc/passwd", "proc/1/oom_adj", "sys/out", ""]
    {
        let setting = Setting::File { path: path.to_owned(), form: Form::Plain };
        let error = place.read(&setting).expect_err(path).to_string();
        assert_eq!(
            error,
            format!("`{path}` is no setting: files below /proc/sys, /proc/irq and /sys are, and a path has no `..`")
        );
        assert!(matches!(place.write(&setting, "1"), Err(SettingError::Path(_))), "{path}");
    }
}

#[test]
fn a_recorded_interface_that_leads_out_of_the_root_is_none_of_it() {
    let outside = Directory::new("outside").with("sys/class/net/eth0/mtu", "1500\n");
    let directory = Directory::new("leads-out");
    let link = directory.0.join("sys/class/net/eth1");
    std::os::unix::fs::symlink(outside.0.join("sys/class/net/eth0"), link).expect("a link can be made");
    let mut place = directory.place();
    let mtu = Setting::Mtu { interface: "eth1".to_owned() };
    assert_eq!(place.read(&mtu).expect("it can be asked for"), None);
    let error = place.write(&mtu, "9000").expect_err("it is of another machine").to_string();
    assert_eq!(error, "there is no network interface `eth1`");
    assert_eq!(fs::read_to_string(outside.0.join("sys/class/net/eth0/mtu")).expect("it is there"), "1500\n");
}

#[test]
fn a_damaged_record_is_refused() {
    for text in ["", "[]", "{\"cards\": 7}", "{\"cards\": {\"eth0\": {\"properties\": [[\"x\"]]}}}"] {
        let directory = Directory::new("damaged").with(Place::RECORD, text);
        let error = Place::recorded(&directory.0).err().expect(text).to_string();
        assert!(error.contains("recorded.json: this is no record of a machine: "), "{error}");
    }
    let directory = Directory::new("damaged").with(Place::RECORD, RECORD);
    let error = directory.place().record::<u32>("probed").expect_err("it is an object").to_string();
    assert!(error.contains("recorded.json: this is no record of a machine: probed: "), "{error}");
}

#[test]
fn what_the_system_refuses_is_told_with_what_would_help() {
    use rustix::io::Errno;
    let said = |path: &str, errno: Errno| fault(path, "-1", io::Error::from(errno)).to_string();
    let denied = |path: &str, is_root| SettingError::denied_to(path, is_root).to_string();
    assert_eq!(
        denied("proc/sys/net/core/rmem_max", false),
        "/proc/sys/net/core/rmem_max: permission denied; this needs root or CAP_NET_ADMIN: run it with sudo"
    );
    assert_eq!(
        denied("sys/kernel/mm/transparent_hugepage/enabled", true),
        "/sys/kernel/mm/transparent_hugepage/enabled: permission denied, even to root: in a container or network \
         namespace it belongs to the host; change it on the host"
    );
    for (path, needed) in [
        ("proc/sys/vm/swappiness", "root"),
        ("proc/sys/kernel/numa_balancing", "root with CAP_SYS_ADMIN"),
        ("proc/irq/24/smp_affinity_list", "root or CAP_DAC_OVERRIDE"),
        ("sys/block/sda/queue/scheduler", "root or CAP_DAC_OVERRIDE"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "root, or CAP_DAC_OVERRIDE and CAP_NET_ADMIN"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state3/disable", "root, or CAP_DAC_OVERRIDE and CAP_SYS_ADMIN"),
    ] {
        let line = format!("/{path}: permission denied; this needs {needed}: run it with sudo");
        assert_eq!(denied(path, false), line);
    }
    assert!(denied("sys/class/net/eth0/gro_flush_timeout", true).contains("or CAP_NET_ADMIN is missing"));
    assert_eq!(
        said("sys/class/net/eth0/gro_flush_timeout", Errno::ROFS),
        "/sys/class/net/eth0/gro_flush_timeout: /sys is mounted read-only, as in most containers; change it on the host"
    );
    assert_eq!(
        said("proc/sys/net/core/rmem_max", Errno::INVAL),
        "/proc/sys/net/core/rmem_max: the kernel takes no value `-1` there: it is out of range, or no value of this file"
    );
    assert!(said("proc/irq/7/smp_affinity", Errno::IO).starts_with("/proc/irq/7/smp_affinity: "));
}

#[test]
fn this_machine_is_read() {
    let mut place = Place::live();
    let kernel = place.read(&Setting::sysctl("kernel.osrelease")).expect("it can be read").expect("it is there");
    let identity = place.identity();
    assert!(
        !kernel.is_empty() && place.is_live() && !identity.boot.is_empty() && identity.network.starts_with("net:[")
    );
    assert_eq!(place.read(&Setting::sysctl("kernel.no_such_thing")).expect("it can be asked for"), None);
    // It has none, and says so with an error: what cannot be read is there all the same.
    let speed = Setting::File { path: "sys/class/net/lo/speed".to_owned(), form: Form::Plain };
    let error = place.read(&speed).expect_err("it has none").to_string();
    assert!(error.starts_with("/sys/class/net/lo/speed: "), "{error}");
}

/// Another one may have its number by now.
#[test]
fn a_thread_of_a_recorded_machine_is_one_that_began_then() {
    let directory = Directory::new("threads");
    fs::create_dir_all(directory.0.join("proc/4711/task/4712")).expect("a temporary directory can be made");
    let (stat, status) = ("proc/4711/task/4712/stat", "proc/4711/task/4712/status");
    let directory = directory.with(stat, "4712 (ru0) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 8421 20\n");
    let text = |cpus: &str| format!("Name:\tru0\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n");
    let directory = directory.with(status, &text("0-15"));
    let shown = || fs::read_to_string(directory.0.join(status)).expect("it is there");
    let setting = |begun| Setting::Thread(RunningThread { process: 4711, thread: 4712, begun, name: "ru0".to_owned() });
    let mut place = directory.place();
    assert_eq!(place.read(&setting(8421)).expect("it can be read").as_deref(), Some("0-15"));
    assert_eq!(place.read(&setting(8422)).expect("it can be read"), None);
    place.write(&setting(8421), "8,9").expect("it can be written");
    assert_eq!(shown(), text("8-9"));
    place.write(&setting(8422), "0").expect("who has ended needs nothing");
    assert_eq!(shown(), text("8-9"));
    let error = place.write(&setting(8421), "many").expect_err("it is no list").to_string();
    assert!(error.starts_with("CPUs of thread 4712 (ru0) of process 4711: none of `many` is there for it"), "{error}");
}
