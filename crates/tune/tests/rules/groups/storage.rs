//! Where events are written to.

use ropewalk_tune::{Grade, Wish};

use crate::machines::{Copy, changes, finds, readout, worst};

#[test]
fn file_systems_that_are_far_layered_or_copy_are_found() {
    for (tree, output, found, grade) in [
        ("server", "/data/runs", "ext4 at /data", Grade::Good),
        ("container", "/runs/now", "nfs4 at /runs", Grade::CouldBeBetter),
        ("container", "/elsewhere", "overlay at /", Grade::CouldBeBetter),
        ("laptop", "/runs", "btrfs at /", Grade::CouldBeBetter),
        ("server", "/run/events", "tmpfs at /run", Grade::Harmful),
        ("server", "/running", "ext4 at /", Grade::Good),
    ] {
        let told = finds(tree, "file_system", &readout("eth0", output));
        assert_eq!((told[0].found.as_str(), told[0].grade), (found, grade), "{tree} {output}");
    }
    assert!(finds("server", "file_system", &Wish::default()).is_empty(), "nothing is written");
    let on = |kind: &str| {
        let line = format!("41 22 0:41 / /data rw shared:5 - {kind} 10.0.0.1@o2ib:/scratch rw\n");
        let copy = Copy::of("server").with("proc/self/mountinfo", &line);
        copy.finds("file_system", &readout("eth1", "/data"))[0].grade
    };
    for kind in ["lustre", "gpfs", "beegfs", "fuse.sshfs"] {
        assert_eq!(on(kind), Grade::CouldBeBetter, "{kind}: over the network");
    }
    assert_eq!((on("xfs"), on("newfs")), (Grade::Good, Grade::Told));
}

#[test]
fn mounts_that_wait_for_the_disk_are_found() {
    let found = finds("server", "mount_options", &readout("eth1", "/data"));
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::CouldBeBetter, "sync,discard"));
    assert_eq!(worst(&finds("laptop", "mount_options", &readout("eth0", "/media/disk"))), Grade::Good);
    let line = "22 1 259:2 / / ro,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n";
    let read_only = Copy::of("server").with("proc/self/mountinfo", line);
    assert_eq!(worst(&read_only.finds("mount_options", &readout("eth1", "/data"))), Grade::Harmful);
}

/// One that lies in no mount that is known does not keep the others from being looked at.
#[test]
fn each_directory_is_looked_at_by_itself() {
    let wish = Wish { outputs: vec!["somewhere".into(), "/data/runs".into()], ..Wish::default() };
    for (rule, grade) in
        [("file_system", Grade::Good), ("mount_options", Grade::CouldBeBetter), ("free_space", Grade::Harmful)]
    {
        let found = finds("server", rule, &wish);
        let told: Vec<_> = found.iter().map(|finding| (finding.grade, finding.subject.as_str())).collect();
        let what = rule.replace('_', " ");
        let expected = [(Grade::Told, format!("somewhere: {what}")), (grade, format!("/data/runs: {what}"))];
        assert_eq!(told, expected.each_ref().map(|(grade, subject)| (*grade, subject.as_str())));
        assert_eq!(found[0].found, "could not be read");
    }
    assert_eq!(changes(&finds("server", "disk_scheduler", &wish)).len(), 1);
}

#[test]
fn disks_have_the_scheduler_of_their_kind() {
    let found = finds("server", "disk_scheduler", &readout("eth1", "/data"));
    assert_eq!(changes(&found), ["/sys/block/nvme1n1/queue/scheduler: mq-deadline -> none"]);
    assert_eq!(worst(&finds("laptop", "disk_scheduler", &readout("eth0", "/media/disk"))), Grade::Good);
    let own = finds("laptop", "disk_scheduler", &readout("eth0", "/runs"));
    assert_eq!((own[0].subject.as_str(), worst(&own)), ("nvme0n1: scheduler", Grade::Good), "by its partition's name");
    let turning = Copy::of("server").with("sys/block/nvme1n1/queue/rotational", "1\n");
    assert_eq!(worst(&turning.finds("disk_scheduler", &readout("eth1", "/data"))), Grade::Good);
}

/// A volume hands requests on to the disks that it is made of; here one of encryption on one of LVM, on a partition and a
/// disk.
#[test]
fn disks_are_looked_at_behind_the_volumes_that_they_are_made_into() {
    let device = |copy: Copy, disk: &str, number: &str| {
        let copy = copy.with(&format!("sys/block/{disk}/dev"), &format!("{number}\n"));
        let copy = copy.with(&format!("sys/block/{disk}/queue/rotational"), "0\n");
        copy.with(&format!("sys/block/{disk}/queue/scheduler"), "none\n")
    };
    let line = "41 22 253:1 / /data rw,relatime shared:5 - ext4 /dev/mapper/data rw\n";
    let copy = device(device(Copy::of("server"), "dm-0", "253:0"), "dm-1", "253:1").with("proc/self/mountinfo", line);
    let found = copy.finds("disk_scheduler", &readout("eth1", "/data"));
    let told = |found: &[ropewalk_tune::Finding]| -> Vec<_> {
        found.iter().map(|finding| (finding.subject.clone(), finding.grade)).collect()
    };
    assert_eq!(told(&found), [("dm-1: scheduler".to_owned(), Grade::Good)], "what it is made of is not known");
    let copy = copy.with("sys/block/dm-1/slaves/dm-0/dev", "253:0\n");
    let copy = copy.with("sys/block/dm-0/slaves/nvme0n1p2/dev", "259:2\n");
    let copy = copy.with("sys/block/dm-0/slaves/nvme1n1/dev", "259:4\n");
    let found = copy.finds("disk_scheduler", &readout("eth1", "/data"));
    let expected = ["nvme0n1", "nvme1n1"].map(|disk| format!("/sys/block/{disk}/queue/scheduler: mq-deadline -> none"));
    assert_eq!(changes(&found), expected);
    let itself = copy.with("sys/block/dm-1/queue/scheduler", "none [mq-deadline]\n");
    let found = itself.finds("disk_scheduler", &readout("eth1", "/data"));
    assert_eq!(changes(&found), ["/sys/block/dm-1/queue/scheduler: mq-deadline -> none"], "it orders them itself");
}

#[test]
fn full_disks_are_found() {
    assert_eq!(worst(&finds("server", "free_space", &readout("eth1", "/data/runs"))), Grade::Harmful);
    assert_eq!(worst(&finds("laptop", "free_space", &readout("eth0", "/runs"))), Grade::Good);
    let fuller = Copy::of("laptop").recorded("410000000000", "41000000000");
    assert_eq!(worst(&fuller.finds("free_space", &readout("eth0", "/runs"))), Grade::CouldBeBetter);
    let told = finds("laptop", "free_space", &readout("eth0", "/media/disk"));
    assert_eq!((told[0].grade, told[0].found.as_str()), (Grade::Told, "could not be read"));
}
