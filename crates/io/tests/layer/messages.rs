//! Messages, their boundaries and their cookies.

use std::time::Duration;

use ropewalk_io::layer::framer::LengthField;
use ropewalk_io::layer::{Completion, Cookie, Ended, Event, FramingError, Received, Setting, Why, WorkRequest};
use ropewalk_io::{BrokenCause, ConnectCause, Endpoint};

use crate::world::{Scene, completion};

/// Length, then bytes that tell the number.
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

pub(crate) fn a_message_that_is_cut_by_the_end_is_told_as_such(mut scene: Scene) {
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

pub(crate) fn bytes_without_a_message_end_the_connection_and_what_came_before_is_told(mut scene: Scene) {
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
    assert_eq!(scene.until_ended(0), Ended::Broken(BrokenCause::Reset), "the peer is told too");
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

pub(crate) fn a_rejected_connection_is_told_with_its_cookie(mut scene: Scene) {
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
