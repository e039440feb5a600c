//! Rules for the layer over every mechanism: messages, posted buffers, and greetings.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ropewalk_io::layer::framer::{FixedSize, LengthField};
use ropewalk_io::layer::{
    Completion, Cookie, Ended, Event, FlushReason, FramingError, PostError, Received, Requests, Setting, Why, Work,
    WorkRequest,
};
use ropewalk_io::{BrokenCause, ConnectCause, Endpoint};
use ropewalk_memory::{Owner, Pool};

use super::{Scene, completion, greeting, pool};

/// A length, then bytes that depend on the number.
fn message(number: u32, length: u32) -> Vec<u8> {
    let content = (0..length).map(|at| (number.wrapping_mul(31) ^ at ^ (at >> 8)) as u8);
    length.to_le_bytes().into_iter().chain(content).collect()
}

fn frame(scene: &mut Scene, endpoint: Endpoint) {
    let setting = Setting::Framer(Box::new(LengthField::U32.framer(1 << 20)));
    scene.post(1, WorkRequest::Set { endpoint, setting });
}

pub(crate) fn every_message_is_sent_and_received_whole_and_its_cookie_comes_back_once(mut scene: Scene) {
    let (here, there) = scene.connect();
    frame(&mut scene, there);
    let (mut received, mut sent) = (0, Vec::new());
    for round in 0..40_u32 {
        let numbers = 4 * round..4 * round + 4;
        for number in numbers.clone() {
            scene.send(0, here, &message(number, number * number % 17_000), u64::from(number));
        }
        while received < numbers.end {
            let completed = scene.until(1, completion);
            let Completion::Received(Received { cookie, payload, why, is_last }) = completed else { continue };
            assert_eq!((cookie, why, is_last), (None, Why::Boundary, false));
            assert!(payload.to_vec() == message(received, received * received % 17_000), "message {received}");
            received += 1;
        }
        while sent.len() < numbers.end as usize {
            if let Completion::Sent { cookie } = scene.until(0, completion) {
                sent.push(cookie.0);
            }
        }
    }
    assert_eq!(sent, (0..160).collect::<Vec<u64>>(), "each once, in order");
    scene.post(0, WorkRequest::Close { endpoint: here });
    assert_eq!((scene.until_ended(1), scene.until_ended(0)), (Ended::Disconnected, Ended::Disconnected));
}

pub(crate) fn a_message_that_is_cut_by_the_end_is_reported_as_such(mut scene: Scene) {
    let (here, there) = scene.connect();
    frame(&mut scene, there);
    scene.send(0, here, &[message(1, 100), message(2, 100)[..50].to_vec()].concat(), 1);
    scene.post(0, WorkRequest::Close { endpoint: here });
    let mut told = Vec::new();
    let how = scene.until(1, |event| match event {
        Event::Completed { completion: Completion::Received(received), .. } => {
            told.push((received.why, received.payload.len()));
            None
        }
        Event::Ended { how, .. } => Some(how),
        _ => None,
    });
    assert_eq!((told, how), (vec![(Why::Boundary, 104), (Why::End, 50)], Ended::Disconnected));
}

pub(crate) fn bytes_without_a_message_end_the_connection_and_earlier_messages_are_reported(mut scene: Scene) {
    let (here, there) = scene.connect();
    frame(&mut scene, there);
    scene.send(0, here, &[message(1, 100), vec![0xff; 1000]].concat(), 1);
    let mut told = Vec::new();
    let how = scene.until(1, |event| match event {
        Event::Completed { completion: Completion::Received(received), .. } => {
            told.push((received.why, received.payload.len()));
            None
        }
        Event::Ended { how, .. } => Some(how),
        _ => None,
    });
    assert_eq!(told, [(Why::Boundary, 104)]);
    assert_eq!(how, Ended::Framing(FramingError::TooLong { bytes: (1 << 32) + 3, most: 1 << 20 }));
    assert_eq!(scene.until_ended(0), Ended::Broken(BrokenCause::Reset), "the peer sees the end too");
}

pub(crate) fn without_a_framer_bytes_are_received_with_the_turn_or_after_the_deadline(mut scene: Scene) {
    const PATIENCE: Duration = Duration::from_millis(30);
    let (here, there) = scene.connect();
    scene.send(0, here, b"at once", 1);
    let received = |event| match completion(event) {
        Some(Completion::Received(received)) => Some(received),
        _ => None,
    };
    let first = scene.until(1, received);
    assert_eq!((first.payload.to_vec(), first.why), (b"at once".to_vec(), Why::Deadline));
    scene.post(1, WorkRequest::Set { endpoint: there, setting: Setting::Deadline(PATIENCE) });
    let begin = scene.now;
    scene.send(0, here, b"to", 2);
    scene.until(0, |event| matches!(completion(event), Some(Completion::Sent { cookie: Cookie(2) })).then_some(()));
    scene.send(0, here, b"gether", 3);
    let second = scene.until(1, received);
    assert_eq!((second.payload.to_vec(), second.why), (b"together".to_vec(), Why::Deadline));
    assert!(scene.now.since(begin) >= PATIENCE);
}

pub(crate) fn a_rejected_connection_is_reported_with_its_cookie(mut scene: Scene) {
    let address = scene.listen(1);
    scene.post(0, WorkRequest::Connect { address, cookie: Cookie(7) });
    let endpoint = scene.until(1, |event| match event {
        Event::ConnectionRequested { endpoint, .. } => Some(endpoint),
        _ => None,
    });
    scene.post(1, WorkRequest::Reject { endpoint });
    let ended = scene.until(0, |event| match event {
        Event::Ended { cookie, how, .. } => Some((cookie, how)),
        _ => None,
    });
    let broken = Ended::Broken(BrokenCause::Reset);
    let how = if scene.tells_rejection { Ended::NotConnected(ConnectCause::Rejected) } else { broken };
    assert_eq!(ended, (Some(Cookie(7)), how));
}

pub(crate) fn an_event_of_the_users_own_comes_in_order(mut scene: Scene) {
    for number in 0..3 {
        scene.post(0, WorkRequest::Raise { cookie: Cookie(number) });
    }
    for number in 0..3 {
        let raised = scene.until(0, |event| match event {
            Event::Raised { cookie } => Some(cookie),
            _ => None,
        });
        assert_eq!(raised, Cookie(number));
    }
}

/// Posts a buffer. Returns whether the mechanism takes buffers: in-process does not.
fn post(scene: &mut Scene, endpoint: Endpoint, from: &mut Pool, cookie: u64) -> bool {
    let buffer = from.loan(Owner::SHARED).expect("a free block");
    let posted = scene.nodes[1].post(WorkRequest::Receive { endpoint, buffer, cookie: Cookie(cookie) });
    match posted {
        Ok(()) => assert!(scene.has_buffers),
        Err(refused) => {
            assert!(!scene.has_buffers && matches!(refused.why, PostError::NoBuffers), "{refused:?}");
            assert!(matches!(refused.request, WorkRequest::Receive { cookie: given, .. } if given == Cookie(cookie)));
        }
    }
    scene.has_buffers
}

fn is_full(pool: &mut Pool) -> bool {
    pool.collect();
    pool.held() == 0
}

pub(crate) fn every_posted_buffer_comes_back_once(mut scene: Scene) {
    const SIZE: usize = 1_000;
    let mut buffers = pool("posted", SIZE, 8);
    let (here, there) = scene.connect();
    for cookie in 0..8 {
        if !post(&mut scene, there, &mut buffers, cookie) {
            return;
        }
    }
    let stream: Vec<u8> = (0..20 * SIZE as u32).map(|at| (at ^ (at >> 8)) as u8).collect();
    for (number, piece) in stream.chunks(777).enumerate() {
        scene.send(0, here, piece, number as u64);
        scene.step();
    }
    let (mut at, mut next, mut filled) = (0, 8, BTreeMap::<u64, usize>::new());
    while at < stream.len() {
        let Completion::Received(Received { cookie, payload, why, is_last }) = scene.until(1, completion) else {
            continue;
        };
        let cookie = cookie.expect("a posted buffer").0;
        let bytes = payload.contiguous().expect("one piece");
        assert_eq!(bytes, &stream[at..at + bytes.len()]);
        at += bytes.len();
        let so_far = filled.entry(cookie).or_default();
        *so_far += bytes.len();
        assert_eq!((why == Why::Full, is_last), (*so_far == SIZE, *so_far == SIZE));
        if is_last {
            drop(payload);
            buffers.collect();
            post(&mut scene, there, &mut buffers, next);
            next += 1;
        }
    }
    assert_eq!(filled.into_iter().collect::<Vec<_>>(), (0..20).map(|cookie| (cookie, SIZE)).collect::<Vec<_>>());
    scene.post(0, WorkRequest::Close { endpoint: here });
    let flushed: Vec<u64> = (20..28)
        .map(|_| match scene.until(1, completion) {
            Completion::Flushed { cookie, work: Work::Receive, reason: FlushReason::Disconnected } => cookie.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flushed, (20..28).collect::<Vec<u64>>());
    assert_eq!(scene.until_ended(1), Ended::Disconnected);
    assert!(is_full(&mut buffers));
}

pub(crate) fn a_half_filled_buffer_does_not_hold_back_a_slow_source(mut scene: Scene) {
    let mut buffers = pool("posted", 1_000, 1);
    let (here, there) = scene.connect();
    if !post(&mut scene, there, &mut buffers, 5) {
        return;
    }
    for number in 0..3 {
        scene.send(0, here, &[number; 10], 1);
        let Completion::Received(received) = scene.until(1, completion) else { panic!("it was sent") };
        assert_eq!((received.cookie, received.why, received.is_last), (Some(Cookie(5)), Why::Deadline, false));
        assert_eq!(received.payload.to_vec(), [number; 10]);
    }
}

pub(crate) fn a_boundary_ends_a_report_and_the_buffer_goes_on(mut scene: Scene) {
    let mut buffers = pool("posted", 250, 2);
    let (here, there) = scene.connect();
    let setting = Setting::Framer(Box::new(FixedSize::new(100)));
    scene.post(1, WorkRequest::Set { endpoint: there, setting });
    for cookie in [1, 2] {
        if !post(&mut scene, there, &mut buffers, cookie) {
            return;
        }
    }
    scene.send(0, here, &[1; 400], 1);
    let expected = [
        (1, 100, Why::Boundary, false),
        (1, 100, Why::Boundary, false),
        (1, 50, Why::Full, true),
        (2, 50, Why::Boundary, false),
        (2, 100, Why::Boundary, false),
    ];
    for expected in expected {
        let Completion::Received(Received { cookie, payload, why, is_last }) = scene.until(1, completion) else {
            panic!("more was sent");
        };
        assert_eq!((cookie.map_or(0, |cookie| cookie.0), payload.len(), why, is_last), expected);
    }
}

pub(crate) fn what_is_posted_comes_back_however_the_connection_ends(mut scene: Scene) {
    for is_aborted_here in [true, false] {
        let mut buffers = pool("posted", 1_000, 2);
        let (here, there) = scene.connect();
        scene.post(0, WorkRequest::Set { endpoint: here, setting: Setting::Reading(false) });
        let has_buffers = scene.has_buffers && post(&mut scene, there, &mut buffers, 1);
        // More than any socket accepts.
        let (mut whole, megabyte) = (ropewalk_memory::Payload::default(), scene.payload(&vec![0; 1 << 20]));
        (0..30).for_each(|_| whole.append(megabyte.clone()));
        scene.post(1, WorkRequest::Send { endpoint: there, message: whole, cookie: Cookie(2) });
        (0..20).for_each(|_| scene.step());
        let (aborting, endpoint) = if is_aborted_here { (1, there) } else { (0, here) };
        scene.post(aborting, WorkRequest::Abort { endpoint });
        let broken = FlushReason::Broken(BrokenCause::Reset);
        let reason = if is_aborted_here { FlushReason::Closed } else { broken };
        let mut flushed = Vec::new();
        let how = scene.until(1, |event| match event {
            Event::Completed { completion: Completion::Flushed { cookie, work, reason: why }, .. } => {
                assert_eq!(why, reason);
                flushed.push((cookie.0, work));
                None
            }
            Event::Ended { how, .. } => Some(how),
            _ => None,
        });
        assert_eq!(how, if is_aborted_here { Ended::Aborted } else { Ended::Broken(BrokenCause::Reset) });
        let expected = [(2, Work::Send), (1, Work::Receive)];
        assert_eq!(flushed, expected[..1 + usize::from(has_buffers)]);
        assert!(is_full(&mut buffers));
        // An end point that is not read does not report its end.
        let _ = scene.nodes[0].post(WorkRequest::Set { endpoint: here, setting: Setting::Reading(true) });
        scene.until_ended(0);
    }
}

pub(crate) fn a_closed_end_point_gives_requests_back(mut scene: Scene) {
    let mut buffers = pool("posted", 1_000, 1);
    let (here, _) = scene.connect();
    scene.post(0, WorkRequest::Close { endpoint: here });
    let message = scene.payload(b"late");
    let refused = scene.nodes[0].post(WorkRequest::Send { endpoint: here, message, cookie: Cookie(1) });
    let refused = refused.expect_err("it is closing");
    assert!(matches!(refused.why, PostError::Closed));
    let WorkRequest::Send { message, .. } = refused.request else { panic!("as it was given") };
    assert_eq!(message.to_vec(), b"late");
    let buffer = buffers.loan(Owner::SHARED).expect("the only block");
    let refused = scene.nodes[0].post(WorkRequest::Receive { endpoint: here, buffer, cookie: Cookie(2) });
    assert!(matches!(refused.expect_err("it is closing").why, PostError::Closed | PostError::NoBuffers));
    assert_eq!((scene.until_ended(0), is_full(&mut buffers)), (Ended::Disconnected, true));
}

#[test]
fn a_stranger_is_shut_out_without_an_event() {
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"RWHELLO1 and out of turn"] {
        let mut scene = greeting();
        let address = scene.listen(1);
        let mut stranger = TcpStream::connect(address).expect("a listener");
        stranger.write_all(bytes).expect("room");
        stranger.set_nonblocking(true).expect("a socket");
        let mut events = Vec::new();
        let closed = loop {
            scene.step();
            events.extend(scene.events[1].drain(..));
            match stranger.read(&mut [0; 100]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                end => break end,
            }
        };
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        let out_of_turn = Ended::Framing(FramingError::Malformed("no hello"));
        match events[..] {
            [] => assert!(bytes.starts_with(b"GET")),
            // A stranger that sends a greeting is announced first, and rejected afterwards.
            [Event::ConnectionRequested { .. }, Event::Ended { how, .. }] => assert_eq!(how, out_of_turn),
            _ => panic!("{events:?}"),
        }
    }
}
