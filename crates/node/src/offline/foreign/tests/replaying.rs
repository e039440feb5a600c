//! What was captured goes out again: as it was, from an address for each sender, no sooner than it should.

use super::*;
use std::io::Read;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

/// A file in the system's temporary directory, removed when it is dropped.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-replaying-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file can be written");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options(target: Target) -> ForeignReplayOptions {
    ForeignReplayOptions { target, pace: Pace::Most, port: None, format: None, times: 1 }
}

fn receiver() -> (UdpSocket, Target) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time above 0");
    let target = Target::Udp(socket.local_addr().expect("it is bound"));
    (socket, target)
}

fn received(socket: &UdpSocket, count: usize) -> Vec<(IpAddr, Vec<u8>)> {
    let mut room = [0; 2048];
    let mut next = || socket.recv_from(&mut room).map(|(bytes, from)| (from.ip(), room[..bytes].to_vec()));
    (0..count).map(|_| next().expect("it was sent")).collect()
}

#[test]
fn datagrams_go_out_in_order_from_an_address_for_each_sender() {
    let sent: Vec<(u8, Vec<u8>)> = (0..20).map(|index| (7 + index % 2, vec![index; 30])).collect();
    let mut packets: Vec<_> = sent.iter().map(|(last, bytes)| udp(host(*last, 9000), 9001, bytes)).collect();
    packets.insert(3, udp(host(9, 53), 53, b"somebody else's"));
    packets.insert(5, ip(1, host(9, 0), b"a complaint"));
    packets.insert(9, tcp(host(9, 80), 1, b"a connection"));
    let file = Temporary::new("order", &capture(&packets));
    let (socket, target) = receiver();
    let wanted = ForeignReplayOptions { port: Some(9001), times: 2, ..options(target) };
    let played = replay_foreign(&file.0, &wanted).expect("it goes out");
    assert_eq!((played.messages, played.bytes), (40, 1200));
    assert_eq!(played.aside, [("icmp", 2), ("other_port", 4)].into());
    let locals = played.lines.iter().map(|(peer, local)| (peer.as_str(), local.ip().to_string()));
    let expected = [("10.0.0.7:9000", "127.0.0.7".to_owned()), ("10.0.0.8:9000", "127.0.0.8".to_owned())];
    assert_eq!(locals.collect::<Vec<_>>(), expected);
    let expected = sent.iter().map(|(last, bytes)| (IpAddr::from([127, 0, 0, *last]), bytes.clone()));
    let expected: Vec<_> = expected.collect();
    assert_eq!(received(&socket, 40), [expected.clone(), expected].concat());
}

/// Sources that name the addresses of their boards know them again.
#[test]
fn who_sent_from_an_address_of_this_machine_does_so_again() {
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 9000);
    let file = Temporary::new("own", &capture(&[udp(own, 9001, b"one"), udp(host(7, 9000), 9001, b"two")]));
    let (socket, target) = receiver();
    replay_foreign(&file.0, &options(target)).expect("it goes out");
    let from = |address: [u8; 4], bytes: &[u8]| (IpAddr::from(address), bytes.to_vec());
    assert_eq!(received(&socket, 2), [from([127, 1, 2, 3], b"one"), from([127, 0, 0, 7], b"two")]);
}

#[test]
fn a_connection_goes_out_byte_for_byte() {
    let stream: Vec<u8> = (0..3000_u32).map(|index| index as u8).collect();
    let mut packets: Vec<_> =
        stream.chunks(100).zip(0..).map(|(chunk, index)| tcp(host(7, 99), 100 * index, chunk)).collect();
    packets.swap(4, 6);
    packets.push(udp(host(7, 1), 2, b"a datagram"));
    let file = Temporary::new("connection", &capture(&packets));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = Target::Tcp(listener.local_addr().expect("it is bound"));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let (mut stream, _) = listener.accept().expect("somebody calls");
        stream.read_to_end(&mut bytes).expect("it ends well");
        bytes
    });
    let played = replay_foreign(&file.0, &options(target)).expect("it goes out");
    assert_eq!((played.bytes, played.lines.len()), (3000, 1));
    assert_eq!(played.aside, [("other_protocol", 1)].into());
    assert_eq!(reader.join().expect("it does not fail"), stream);
}

#[test]
fn a_file_goes_out_frame_by_frame_and_no_faster_than_asked() {
    let sent = frames(ForeignFormat::Fed, 3, 1..21);
    let file = Temporary::new("frames", &sent.concat());
    let (socket, target) = receiver();
    let begin = Instant::now();
    let wanted = ForeignReplayOptions { pace: Pace::Hertz(500.0), ..options(target) };
    replay_foreign(&file.0, &wanted).expect("it goes out");
    assert!(begin.elapsed() >= Duration::from_millis(38), "19 times 2 ms: {:?}", begin.elapsed());
    assert!(received(&socket, 20).into_iter().map(|(_, bytes)| bytes).eq(sent));
}

#[test]
fn what_was_recorded_keeps_its_distances() {
    let mut bytes = Vec::new();
    encode_interface(LinkType::RAW, &mut bytes);
    for time in [5, 6, 45] {
        encode_packet(Utc(1_000_000 * time), &udp(host(7, 1), 2, &[time as u8]), &mut bytes);
    }
    let file = Temporary::new("recorded", &bytes);
    let (socket, target) = receiver();
    let begin = Instant::now();
    replay_foreign(&file.0, &ForeignReplayOptions { pace: Pace::Recorded, ..options(target) }).expect("it goes out");
    assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
    assert_eq!(received(&socket, 3).len(), 3);
}

#[test]
fn what_cannot_go_out_says_why() {
    for text in ["127.0.0.1:5000", "udp:127.0.0.1:5000", "http://127.0.0.1:80", "udp://nowhere", "tcp://127.0.0.1"] {
        let error = text.parse::<Target>().expect_err("it is no target").to_string();
        assert!(error.contains("udp://HOST:PORT"), "{error}");
    }
    assert_eq!("tcp://127.0.0.1:5".parse::<Target>().map(|target| target.to_string()), Ok("tcp://127.0.0.1:5".into()));
    let file = Temporary::new("refused", &frames(ForeignFormat::Fed, 3, 1..3).concat());
    let (_socket, target) = receiver();
    let error = replay_foreign(&file.0, &ForeignReplayOptions { pace: Pace::Recorded, ..options(target) });
    assert!(matches!(error, Err(OfflineError::NoTimes)), "{error:?}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = Target::Tcp(listener.local_addr().expect("it is bound"));
    drop(listener);
    let error = replay_foreign(&file.0, &options(target)).expect_err("nobody listens").to_string();
    assert!(error.contains("does anybody listen"), "{error}");
    let empty = Temporary::new("empty", &capture(&[]));
    let played = replay_foreign(&empty.0, &ForeignReplayOptions { times: 0, ..options(target) });
    assert_eq!(played.expect("there is nothing to send").messages, 0, "and it ends");
}

#[test]
fn the_ess_capture_goes_out_from_two_addresses() {
    let test = "foreign::tests::replaying::the_ess_capture_goes_out_from_two_addresses";
    let Some(directory) = ropewalk_tidy::real_data(test, "vmm") else { return };
    let (socket, target) = receiver();
    let path = directory.join("example_LET.pcapng");
    let player = std::thread::spawn(move || {
        // So slowly that a socket's queue holds what nobody has read yet.
        replay_foreign(&path, &ForeignReplayOptions { pace: Pace::Hertz(2000.0), ..options(target) })
    });
    let received = {
        let mut room = vec![0; 65_536];
        let mut next = || socket.recv_from(&mut room).map(|(bytes, from)| (from.ip(), bytes, room[2..5].to_vec()));
        (0..200).map(|_| next().expect("it was sent")).collect::<Vec<_>>()
    };
    let played = player.join().expect("it does not fail").expect("it goes out");
    assert_eq!((played.messages, played.lines.len()), (200, 2));
    for last in [1, 2] {
        let of_host =
            received.iter().filter(|(from, _, cookie)| *from == IpAddr::from([127, 0, 0, last]) && cookie == b"ESS");
        assert_eq!(of_host.count(), 100);
    }
}
