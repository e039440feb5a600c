//! Rules for every disk.

use ropewalk_io::disk::{Disk, DiskCause, NewFile, QueueFull};

use ropewalk_memory::Slice;
use ropewalk_terms::{Attempt, EventKey, Incarnation, RunNumber, SourceId, Utc};
use ropewalk_wire::run_file::{
    BeginOfRun, Checksum, EventFlags, EventHead, EventRecordEncoder, FragmentEntry, encode_event,
};

use super::{Medium, Said, Settings, World};

fn new<M: Medium>() -> World<M> {
    World::new(Settings { queue_bytes: 1 << 20, sync_on_publish: true })
}

pub(crate) fn appends_stand_in_the_file_in_order<M: Medium>() {
    let mut world = new::<M>();
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile { preallocate: 1 << 16, ..NewFile::default() });
    let mut expected = Vec::new();
    for number in 0..500u64 {
        let piece: Vec<u8> = (0..number % 300).map(|place| (number + place) as u8).collect();
        world.append(file, number, &piece);
        world.wait_for(if number % 50 == 49 { number as usize + 2 } else { world.said.len() });
        expected.extend(piece);
    }
    world.wait_for(501);
    assert_eq!(world.read("file"), Some(expected), "set-aside room is not part of the file");
    let mut offset = 0;
    for (number, said) in world.said[1..].iter().enumerate() {
        assert_eq!(*said, Said::Appended(number as u64, offset));
        offset += number as u64 % 300;
    }
    world.finish();
}

pub(crate) fn an_append_may_have_more_slices_than_one_system_call_takes<M: Medium>() {
    let mut world = new::<M>();
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    let mut data = Vec::new();
    for _ in 0..5 {
        data.extend(world.source.slices(&[7; 1000], 1));
    }
    assert_eq!(data.len(), 5000);
    world.disk.append(file, 1, &mut data).expect("room in the queue");
    assert!(data.is_empty() && data.capacity() >= 5000, "the vector's capacity stays with the caller");
    world.wait_for(2);
    assert_eq!(world.read("file"), Some(vec![7; 5000]));
    world.finish();
}

pub(crate) fn a_published_file_has_its_final_name_alone<M: Medium>() {
    let mut world = new::<M>();
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, b"content");
    world.disk.publish(file, &final_path, 2);
    world.wait_for(3);
    assert_eq!((world.read("file"), world.read("file.open")), (Some(b"content".to_vec()), None));
    world.finish();
}

pub(crate) fn a_published_file_has_its_checksum_beside_it<M: Medium>() {
    let mut world = new::<M>();
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile { checksum: true, ..NewFile::default() });
    // The check value of CRC-32C.
    world.append(file, 1, b"12345");
    world.append(file, 2, b"6789");
    world.disk.publish(file, &final_path, 3);
    world.wait_for(4);
    assert_eq!(world.read("file.crc32c"), Some(b"e3069283  file\n".to_vec()));
    assert_eq!(world.read("file"), Some(b"123456789".to_vec()));
    world.finish();
}

/// An event of fragments of these lengths: as an open record in slices, and as in the file.
fn event<M: Medium>(world: &mut World<M>, number: u64, lengths: &[usize]) -> (Vec<Slice>, Vec<u8>) {
    let head = EventHead {
        key: EventKey::new(0, number),
        incarnation: Incarnation(1),
        attempt: Attempt(1),
        trigger_type: 0,
        flags: EventFlags::default(),
    };
    let payloads: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![number as u8 + 1; length]).collect();
    let entries = (0..)
        .zip(&payloads)
        .map(|(source, payload)| FragmentEntry::bare(SourceId(source), number, payload.len() as u32));
    let entries: Vec<_> = entries.collect();
    let mut buffer = vec![0; EventRecordEncoder::head_bytes(0, lengths.len())];
    let mut encoder = EventRecordEncoder::begin_open(&mut buffer, &head, [].into_iter(), entries.iter().copied())
        .expect("it is short");
    let mut slices = world.source.slices(&buffer, 1000);
    for payload in &payloads {
        encoder.payload(payload);
        payload.chunks(1000).for_each(|part| slices.extend(world.source.slices(part, 700)));
    }
    slices.extend(world.source.slices(encoder.finish().expect("all payloads").as_bytes(), 100));
    let fragments: Vec<_> = entries.iter().copied().zip(payloads.iter().map(Vec::as_slice)).collect();
    let mut written = Vec::new();
    encode_event(&mut written, 0, &head, &[], &fragments).expect("it is short");
    (slices, written)
}

pub(crate) fn open_records_are_sealed_and_others_stay_as_they_are<M: Medium>() {
    let mut world = new::<M>();
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile { seals: true, checksum: true, ..NewFile::default() });
    let (mut expected, mut appends) = (Vec::new(), 0);
    for (number, lengths) in (0..).zip([&[][..], &[0, 1], &[20_000, 7], &[3; 12], &[999], &[4096, 1]]) {
        // A record that is sealed already, cut anywhere, then two open ones.
        let mut sealed = Vec::new();
        let begin = BeginOfRun { run: RunNumber(number as u32), start: Utc(0), text: "x".repeat(number as usize) };
        begin.encode(&mut sealed).expect("it is short");
        let mut data = world.source.slices(&sealed, 5);
        expected.extend(sealed);
        for lengths in [lengths, &[8]] {
            let (slices, written) = event(&mut world, number, lengths);
            data.extend(slices);
            expected.extend(written);
        }
        let before = data.clone();
        world.disk.append(file, number, &mut data).expect("room in the queue");
        appends += 1;
        world.wait_for(1 + appends);
        let open: Vec<u8> = before.iter().flat_map(|slice| slice.iter().copied()).collect();
        assert_ne!(open, expected[expected.len() - open.len()..], "the slices stay open");
    }
    assert!(world.read("file.open") == Some(expected.clone()), "while it is written");
    world.disk.publish(file, &final_path, 9);
    world.wait_for(2 + appends);
    let mut checksum = Checksum::default();
    checksum.update(&expected);
    assert!(world.read("file") == Some(expected));
    assert_eq!(world.read("file.crc32c"), Some(format!("{:08x}  file\n", checksum.value()).into_bytes()));
    world.finish();
}

pub(crate) fn every_call_completes_once_and_in_order<M: Medium>() {
    let mut world = new::<M>();
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 10, b"ab");
    world.disk.sync(file, 11);
    world.append(file, 12, b"");
    world.append(file, 13, b"cd");
    assert_eq!(world.disk.queued_bytes(), 4);
    world.disk.publish(file, &final_path, 14);
    world.disk.remove(&final_path, 15);
    world.wait_for(7);
    let expected = [
        Said::Created(file, Ok(())),
        Said::Appended(10, 0),
        Said::Synced(11, Ok(())),
        Said::Appended(12, 2),
        Said::Appended(13, 2),
        Said::Published(14, Ok(())),
        Said::Removed(15, Ok(())),
    ];
    assert_eq!(world.said, expected);
    world.finish();
}

pub(crate) fn the_queue_is_bounded_in_bytes_but_an_empty_one_takes_any_size<M: Medium>() {
    let mut world = World::<M>::new(Settings { queue_bytes: 500, sync_on_publish: false });
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, &[1; 1000]);
    let mut data = world.source.slices(&[2; 10], 3);
    assert_eq!(world.disk.append(file, 2, &mut data), Err(QueueFull));
    assert_eq!(data.len(), 4, "nothing was taken");
    world.wait_for(2);
    world.disk.append(file, 2, &mut data).expect("room now");
    world.wait_for(3);
    assert_eq!(world.read("file").map(|bytes| bytes.len()), Some(1010));
    world.finish();
}

pub(crate) fn a_file_that_cannot_be_created_takes_nothing_and_gives_the_slices_back<M: Medium>() {
    let mut world = new::<M>();
    let path = world.path("nowhere/file");
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, b"content");
    world.disk.sync(file, 2);
    world.wait_for(3);
    assert_eq!(world.said[0], Said::Created(file, Err("no such file or directory".to_owned())));
    assert_eq!(world.said[1], Said::Failed(1, "the file is not open".to_owned()));
    assert_eq!(world.said[2], Said::Synced(2, Err("the file is not open".to_owned())));
    assert_eq!((world.back[0].0, &*world.back[0].1[0]), (1, &b"content"[..]));
    world.finish();
}

pub(crate) fn nothing_is_overwritten<M: Medium>() {
    let mut world = new::<M>();
    let path = world.path("file");
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, b"precious");
    let again = world.disk.create(&path, NewFile::default());
    world.wait_for(3);
    assert_ne!(again, file);
    assert_eq!(world.said[2], Said::Created(again, Err("the file exists already".to_owned())));
    assert_eq!(world.read("file"), Some(b"precious".to_vec()));
    world.finish();
}

pub(crate) fn a_file_that_is_published_is_not_open<M: Medium>() {
    let mut world = new::<M>();
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile::default());
    world.disk.publish(file, &final_path, 1);
    world.append(file, 2, b"late");
    world.wait_for(3);
    assert_eq!(world.said[2], Said::Failed(2, "the file is not open".to_owned()));
    assert_eq!(world.read("file"), Some(Vec::new()));
    world.finish();
}

pub(crate) fn publishing_into_nowhere_leaves_the_file_open<M: Medium>() {
    let mut world = new::<M>();
    let (path, nowhere, final_path) = (world.path("file.open"), world.path("nowhere/file"), world.path("file"));
    let file = world.disk.create(&path, NewFile::default());
    world.disk.publish(file, &nowhere, 1);
    world.append(file, 2, b"more");
    world.disk.publish(file, &final_path, 3);
    world.wait_for(4);
    assert_eq!(world.said[1], Said::Published(1, Err("no such file or directory".to_owned())));
    assert_eq!(world.said[3], Said::Published(3, Ok(())));
    assert_eq!(world.read("file"), Some(b"more".to_vec()));
    world.finish();
}

pub(crate) fn removed_files_are_gone<M: Medium>() {
    let mut world = new::<M>();
    let path = world.path("file");
    world.disk.create(&path, NewFile::default());
    world.disk.remove(&path, 1);
    world.disk.remove(&path, 2);
    world.wait_for(3);
    assert_eq!(world.said[1], Said::Removed(1, Ok(())));
    assert_eq!(world.said[2], Said::Removed(2, Err("no such file or directory".to_owned())));
    let directory = world.medium.directory();
    world.disk.look_for(&directory.join("nothing"), 3);
    world.wait_for(4);
    assert_eq!(world.said[3], Said::LookedFor(3, Err("no such file or directory".to_owned())));
    assert_eq!(world.read("file"), None);
    world.finish();
}

pub(crate) fn directories_are_made_and_listed<M: Medium>() {
    let mut world = new::<M>();
    let directory = world.path("one/two");
    assert!(world.disk.enter_directory(&directory).is_empty());
    world.disk.create(&directory.join("file"), NewFile::default());
    world.wait_for(1);
    assert_eq!(world.disk.enter_directory(&directory), ["file"]);
    world.finish();
}

pub(crate) fn a_published_file_is_read_as_it_was_written<M: Medium>() {
    let mut world = new::<M>();
    let (path, final_path) = (world.path("file.open"), world.path("file"));
    let file = world.disk.create(&path, NewFile::default());
    world.append(file, 1, b"{}");
    world.disk.publish(file, &final_path, 2);
    world.wait_for(3);
    assert_eq!(world.disk.read(&final_path), Ok(b"{}".to_vec()));
    assert_eq!(world.disk.read(&path), Err(DiskCause::NotFound));
    world.finish();
}

pub(crate) fn there_is_free_room<M: Medium>() {
    let mut world = new::<M>();
    let directory = world.medium.directory();
    assert!(world.disk.free_bytes(&directory).is_ok_and(|bytes| bytes > 0));
    world.finish();
}

pub(crate) fn a_file_that_is_deleted_while_it_is_written_is_written_once_more<M: Medium>() {
    let mut world = new::<M>();
    let (directory, closed) = (world.path("run"), world.path("done"));
    let (path, final_path) = (directory.join("file.open"), closed.join("file"));
    assert!(world.disk.enter_directory(&directory).is_empty() && world.disk.enter_directory(&closed).is_empty());
    let file = world.disk.create(&path, NewFile { checksum: true, ..NewFile::default() });
    world.append(file, 1, &[1; 300]);
    world.wait_for(2);
    world.medium.remove_directory(&directory);
    world.append(file, 2, &[2; 300]);
    world.wait_for(3);
    assert_eq!((&world.said[2], world.disk.restored_files()), (&Said::Appended(2, 300), 1));
    let both = [[1; 300], [2; 300]].concat();
    assert_eq!(world.medium.read(&path), Some(both.clone()), "what is said to be appended is there");
    world.medium.remove_directory(&directory);
    world.disk.sync(file, 3);
    world.wait_for(4);
    assert_eq!((&world.said[3], world.medium.read(&path)), (&Said::Synced(3, Ok(())), Some(both.clone())));
    world.medium.remove_directory(&directory);
    world.medium.remove_directory(&closed);
    world.disk.publish(file, &final_path, 4);
    world.wait_for(5);
    assert_eq!((&world.said[4], world.disk.restored_files()), (&Said::Published(4, Ok(())), 3));
    assert_eq!(world.medium.read(&final_path), Some(both));
    assert!(world.medium.read(&closed.join("file.crc32c")).is_some());
    world.disk.look_for(&final_path, 6);
    world.wait_for(6);
    assert_eq!(world.said[5], Said::LookedFor(6, Ok(())));
    world.medium.remove_directory(&directory);
    let next = world.disk.create(&path, NewFile::default());
    world.append(next, 5, b"next");
    world.wait_for(8);
    assert_eq!(world.medium.read(&path), Some(b"next".to_vec()), "a new file finds its directory");
    assert_eq!(world.disk.restored_files(), 3);
    world.finish();
}
