//! Where settings live: the machine that this runs on, or a recorded one in a directory; and what of a plan this
//! process may not change there.

mod recorded;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ropewalk_host::{Capability, Rights};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::recorded::Recorded;
use crate::cards::{CardReport, Cards, Netlink};
use crate::{CardError, Form, Plan, Right, RunningThread, Setting, SettingError, threads};

/// The directories of kernel files that may be settings.
const TREES: [&str; 3] = ["proc/sys", "proc/irq", "sys"];

/// Something that has settings: a machine, or its substitute in a test.
pub trait Settings {
    /// The present value in its normal form. `None` if the setting does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&mut self, setting: &Setting) -> Result<Option<String>, SettingError>;

    /// Writes a value in its normal form.
    ///
    /// # Errors
    /// When there is no such setting, the rights are missing, or the value is refused.
    fn write(&mut self, setting: &Setting, value: &str) -> Result<(), SettingError>;
}

/// A machine whose settings can be read and written: the one that this runs on ([`Place::live`]), or one that is
/// recorded in a directory ([`Place::recorded`]).
pub struct Place {
    root: PathBuf,
    cards: Box<dyn Cards + Send>,
    record: Option<Record>,
}

/// What a recorded machine has in its `recorded.json` beside its cards.
struct Record(serde_json::Map<String, serde_json::Value>);

/// Which machine it is, so that what was written down of one is not used on another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Identity {
    /// The host's name.
    pub host: String,
    /// The contents of /etc/machine-id; empty without that file.
    pub machine: String,
    /// Drawn by the kernel when it started; empty if it does not say.
    pub boot: String,
    /// The network namespace, as the kernel names it until its next start (`net:[4026531840]`); empty if it does not
    /// say.
    pub network: String,
}

impl Place {
    /// The file for what a recorded machine does not have in files of the kernel.
    pub const RECORD: &str = "recorded.json";

    /// The machine that this runs on; its cards by netlink.
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), cards: Box::new(Netlink::default()), record: None }
    }

    /// A machine recorded in a directory with `proc/`, `sys/` and [`Place::RECORD`], which holds the reports of its
    /// cards (`cards`: interface to [`CardReport`]) and other records. Settings are written there.
    ///
    /// # Errors
    /// When `recorded.json` is damaged. Without that file the machine has no card reports.
    pub fn recorded(root: &Path) -> Result<Self, SettingError> {
        let path = root.join(Self::RECORD);
        let broken = |why: String| SettingError::Record { path: path.clone(), why };
        let record: serde_json::Map<_, _> = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => serde_json::Map::new(),
            Err(error) => return Err(broken(error.to_string())),
        };
        let cards = Recorded::new(root, &record).map_err(|error| broken(error.to_string()))?;
        Ok(Self { root: root.to_owned(), cards: Box::new(cards), record: Some(Record(record)) })
    }

    /// The directory that has `proc/` and `sys/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it is the machine that this runs on.
    pub fn is_live(&self) -> bool {
        self.record.is_none()
    }

    /// What was recorded by this name; `None` if nothing was, and for the machine that this runs on.
    ///
    /// # Errors
    /// When it is something else.
    pub fn record<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SettingError> {
        let Some(value) = self.record.as_ref().and_then(|record| record.0.get(name)) else { return Ok(None) };
        serde_json::from_value(value.clone()).map(Some).map_err(|error| SettingError::Record {
            path: self.root.join(Self::RECORD),
            why: format!("{name}: {error}"),
        })
    }

    /// The whole report of an interface's driver.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel does not answer.
    pub fn card(&mut self, interface: &str) -> Result<CardReport, CardError> {
        self.cards.report(interface)
    }

    /// Which machine it is.
    pub fn identity(&self) -> Identity {
        let text = |path: &str| std::fs::read_to_string(self.root.join(path)).unwrap_or_default().trim().to_owned();
        let network = std::fs::read_link(self.root.join("proc/thread-self/ns/net")).unwrap_or_default();
        Identity {
            network: network.display().to_string(),
            host: text("proc/sys/kernel/hostname"),
            machine: text("etc/machine-id"),
            boot: text("proc/sys/kernel/random/boot_id"),
        }
    }

    fn read_file(&self, path: &str) -> Result<Option<String>, SettingError> {
        let Some(file) = file_of(&self.root, path)? else { return Ok(None) };
        match std::fs::read(file) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(source) if is_missing(&source) => Ok(None),
            // Some files say so while a link is down: they are there all the same.
            Err(source) if source.kind() == io::ErrorKind::InvalidInput => {
                Err(SettingError::File { path: path.to_owned(), source })
            }
            Err(source) => Err(fault(path, "", source)),
        }
    }

    /// Opens the file of a setting for writing, and writes nothing; a missing file is skipped.
    fn opens(&self, path: &str) -> Result<(), SettingError> {
        let Some(file) = file_of(&self.root, path)? else { return Ok(()) };
        OpenOptions::new().write(true).open(file).map(drop).map_err(|source| fault(path, "", source))
    }

    /// The directory of a thread. `None` if it has ended.
    fn directory_of(&self, thread: &RunningThread) -> Result<Option<PathBuf>, SettingError> {
        inside(&self.root, &thread.path())
    }

    fn read_thread(&self, thread: &RunningThread) -> Result<Option<String>, SettingError> {
        let Some(directory) = self.directory_of(thread)? else { return Ok(None) };
        threads::read(&directory, thread.begun).map_err(|source| fault(&thread.path(), "", source))
    }

    fn write_thread(&self, thread: &RunningThread, value: &str) -> Result<(), SettingError> {
        let wrong = || SettingError::Cpus { thread: thread.clone(), cpus: value.to_owned() };
        let cpus = value.parse().map_err(|_| wrong())?;
        let written = match self.directory_of(thread)?.filter(|_| matches!(self.read_thread(thread), Ok(Some(_)))) {
            // It has ended, and needs nothing.
            None => Ok(()),
            Some(directory) if self.record.is_some() => threads::record(&directory, &cpus),
            Some(_) => threads::write(thread, &cpus),
        };
        written.map_err(|source| match rustix::io::Errno::from_io_error(&source) {
            Some(rustix::io::Errno::INVAL) => wrong(),
            _ => fault(&thread.path(), value, source),
        })
    }

    fn write_file(&self, setting: &Setting, path: &str, value: &str) -> Result<(), SettingError> {
        let Some(file) = file_of(&self.root, path)? else { return Err(SettingError::Missing(setting.clone())) };
        let mut text = setting.written(value);
        if self.record.is_some() {
            let before = std::fs::read_to_string(&file).map_err(|source| fault(path, value, source))?;
            let refused = || fault(path, value, rustix::io::Errno::INVAL.into());
            text = as_the_kernel_writes(setting, &before, value).ok_or_else(refused)?;
        }
        // With the end of the line in the same call: an empty value alone would not reach the kernel.
        text.push('\n');
        let written = OpenOptions::new().write(true).truncate(true).open(file);
        written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|source| fault(path, value, source))
    }
}

impl Settings for Place {
    fn read(&mut self, setting: &Setting) -> Result<Option<String>, SettingError> {
        let text = match setting {
            Setting::File { path, .. } => self.read_file(path)?,
            Setting::Mtu { interface } => there(self.cards.mtu(interface))?.map(|bytes| bytes.to_string()),
            Setting::Card { interface, property } => there(self.cards.value(interface, property))?.flatten(),
            Setting::Thread(thread) => self.read_thread(thread)?,
        };
        Ok(text.map(|text| setting.normal(&text)))
    }

    fn write(&mut self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        match setting {
            Setting::File { path, .. } => self.write_file(setting, path, value),
            Setting::Mtu { interface } => {
                let wrong = || CardError::Mtu { interface: interface.clone(), value: value.to_owned() };
                Ok(self.cards.set_mtu(interface, value.parse().map_err(|_| wrong())?)?)
            }
            Setting::Card { interface, property } => Ok(self.cards.set(interface, property, value)?),
            Setting::Thread(thread) => self.write_thread(thread, value),
        }
    }
}

/// What of a plan this process may not change, by what is missing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Forbidden {
    /// How many settings the plan has.
    pub planned: usize,
    /// What is missing, and the settings that are not changed without it.
    pub missing: Vec<(String, Vec<Setting>)>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.missing.iter().map(|(_, settings)| settings.len()).sum();
        write!(out, "this process may not change {count} of the {} settings, and nothing is changed:", self.planned)?;
        for (why, settings) in &self.missing {
            let names: Vec<_> = settings.iter().map(Setting::to_string).collect();
            write!(out, "\n  {}: {why}", names.join(", "))?;
        }
        write!(out, "\nrun it with these rights, or leave them out with --except and --only")
    }
}

impl Place {
    /// Looks whether this process may change all that is planned. Nothing is written.
    ///
    /// # Errors
    /// What it may not, all of it.
    pub fn permits(&self, plan: &Plan) -> Result<(), Forbidden> {
        let own = if self.is_live() { Rights::read(Path::new("/proc/self")) } else { Rights::default() };
        let mut missing: Vec<(String, Vec<Setting>)> = Vec::new();
        for change in &plan.changes {
            let Some(why) = self.refusal(&change.setting, &own).as_ref().and_then(why) else { continue };
            match missing.iter_mut().find(|(other, _)| *other == why) {
                Some((_, settings)) => settings.push(change.setting.clone()),
                None => missing.push((why, vec![change.setting.clone()])),
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Forbidden { planned: plan.changes.len(), missing }) }
    }

    /// Why a setting cannot be written, as far as that shows without writing.
    fn refusal(&self, setting: &Setting, own: &Rights) -> Option<SettingError> {
        match setting {
            Setting::File { path, .. } => {
                let asked = Right::of_file(path).asked_of_root();
                let lacks = asked.is_some_and(|capability| own.lacks(capability));
                self.opens(path).err().or_else(|| lacks.then(|| SettingError::denied(path)))
            }
            Setting::Mtu { interface } | Setting::Card { interface, .. } => {
                let source = || rustix::io::Errno::PERM.into();
                let refused = || CardError::Refused { interface: interface.clone(), source: source() }.into();
                own.lacks(Capability::NetAdmin).then(refused)
            }
            Setting::Thread(thread) => {
                let directory = self.directory_of(thread).ok()??;
                let may = if self.is_live() {
                    let owner = std::fs::metadata(directory).ok()?.uid();
                    owner == rustix::process::geteuid().as_raw() || !own.lacks(Capability::SysNice)
                } else {
                    OpenOptions::new().write(true).open(directory.join("status")).is_ok()
                };
                (!may).then(|| SettingError::denied(&thread.path()))
            }
        }
    }
}

/// The missing permission, if that is the reason.
fn why(error: &SettingError) -> Option<String> {
    match error {
        SettingError::NotAllowed { right, .. } => Some(format!("needs {}", right.needs())),
        SettingError::NotHere { right, .. } => Some(format!(
            "refused even to root: in a container or network namespace it belongs to the host{}",
            right.or_missing()
        )),
        SettingError::ReadOnly { tree, .. } => Some(format!("/{tree} is mounted read-only, as in most containers")),
        SettingError::Card(CardError::Refused { .. }) => Some(format!("needs {}", Right::NetAdmin.needs())),
        _ => None,
    }
}

/// The text that the kernel would show for a value after `before`, so that a recorded machine behaves like a real one.
/// None if it would refuse the value.
fn as_the_kernel_writes(setting: &Setting, before: &str, value: &str) -> Option<String> {
    match setting {
        Setting::File { form: Form::Choice, .. } if before.contains('[') => {
            let words = before.split_ascii_whitespace().map(|word| word.trim_matches(['[', ']']));
            let shown = words.map(|word| if word == value { format!("[{word}]") } else { word.to_owned() });
            let shown: Vec<String> = shown.collect();
            shown.iter().any(|word| word.starts_with('[')).then(|| shown.join(" "))
        }
        Setting::File { form: Form::CpuMask, .. } => {
            let digits = before.chars().filter(char::is_ascii_hexdigit).count();
            Some(setting.written(&format!("{value:0>digits$}")))
        }
        // Several numbers stand with tabs between them.
        _ if before.contains('\t') => Some(value.replace(' ', "\t")),
        _ => Some(value.to_owned()),
    }
}

/// The file of a setting of the machine below `root`. `None` if the machine does not have it.
fn file_of(root: &Path, path: &str) -> Result<Option<PathBuf>, SettingError> {
    let names = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if !names || !TREES.iter().any(|tree| Path::new(path).starts_with(tree)) {
        return Err(SettingError::Path(path.to_owned()));
    }
    inside(root, path)
}

/// The canonical path of `path` below `root`. `None` if nothing is there.
fn inside(root: &Path, path: &str) -> Result<Option<PathBuf>, SettingError> {
    let error = |source| SettingError::File { path: path.to_owned(), source };
    let root = root.canonicalize().map_err(error)?;
    match root.join(path).canonicalize() {
        // Links of /sys stay in it; one that leads out of a recorded machine would change this one.
        Ok(file) if file.starts_with(&root) => Ok(Some(file)),
        Ok(_) => Err(SettingError::Path(path.to_owned())),
        Err(source) if is_missing(&source) => Ok(None),
        Err(source) => Err(error(source)),
    }
}

/// An interface that is not there has no settings.
fn there<T>(told: Result<T, CardError>) -> Result<Option<T>, CardError> {
    match told {
        Err(CardError::Unknown(_)) => Ok(None),
        told => told.map(Some),
    }
}

/// Whether an error means that a file is missing, or that the machine lacks what it represents.
fn is_missing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::NOENT, Errno::NOTDIR, Errno::NODEV, Errno::NXIO, Errno::OPNOTSUPP];
    lacks.iter().any(|lack| error.raw_os_error() == Some(lack.raw_os_error()))
}

/// What the system says, with what would help.
fn fault(path: &str, value: &str, source: io::Error) -> SettingError {
    use rustix::io::Errno;
    let path = path.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::ACCESS | Errno::PERM) => SettingError::denied(&path),
        Some(Errno::ROFS) => {
            let tree = TREES.into_iter().find(|tree| path.starts_with(tree)).unwrap_or("sys");
            SettingError::ReadOnly { path, tree }
        }
        Some(Errno::INVAL | Errno::RANGE | Errno::DOM | Errno::OVERFLOW) => {
            SettingError::OutOfRange { path, value: value.to_owned() }
        }
        _ => SettingError::File { path, source },
    }
}

#[cfg(test)]
mod tests {

    use std::fs;

    use super::*;
    use crate::Property;

    /// A temporary directory, removed when the value is dropped.
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
        let probed: serde_json::Value =
            directory.place().record("probed").expect("a value").expect("it is there still");
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
    fn what_a_machine_does_not_have_is_none_and_cannot_be_written() {
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
                format!(
                    "`{path}` is no setting: files below /proc/sys, /proc/irq and /sys are, and a path has no `..`"
                )
            );
            assert!(matches!(place.write(&setting, "1"), Err(SettingError::Path(_))), "{path}");
        }
    }

    #[test]
    fn a_recorded_interface_that_leads_out_of_the_root_is_not_found() {
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
    fn what_the_system_refuses_is_reported_with_what_would_help() {
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
        // It has none, and returns an error: a file that cannot be read still exists.
        let speed = Setting::File { path: "sys/class/net/lo/speed".to_owned(), form: Form::Plain };
        let error = place.read(&speed).expect_err("it has none").to_string();
        assert!(error.starts_with("/sys/class/net/lo/speed: "), "{error}");
    }

    /// Another thread may have the same number now.
    #[test]
    fn a_thread_of_a_recorded_machine_is_one_that_began_then() {
        let directory = Directory::new("threads");
        fs::create_dir_all(directory.0.join("proc/4711/task/4712")).expect("a temporary directory can be made");
        let (stat, status) = ("proc/4711/task/4712/stat", "proc/4711/task/4712/status");
        let directory = directory.with(stat, "4712 (ru0) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 8421 20\n");
        let text = |cpus: &str| format!("Name:\tru0\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n");
        let directory = directory.with(status, &text("0-15"));
        let shown = || fs::read_to_string(directory.0.join(status)).expect("it is there");
        let setting =
            |begun| Setting::Thread(RunningThread { process: 4711, thread: 4712, begun, name: "ru0".to_owned() });
        let mut place = directory.place();
        assert_eq!(place.read(&setting(8421)).expect("it can be read").as_deref(), Some("0-15"));
        assert_eq!(place.read(&setting(8422)).expect("it can be read"), None);
        place.write(&setting(8421), "8,9").expect("it can be written");
        assert_eq!(shown(), text("8-9"));
        place.write(&setting(8422), "0").expect("who has ended needs nothing");
        assert_eq!(shown(), text("8-9"));
        let error = place.write(&setting(8421), "many").expect_err("it is no list").to_string();
        assert!(
            error.starts_with("CPUs of thread 4712 (ru0) of process 4711: none of `many` is there for it"),
            "{error}"
        );
    }
}
