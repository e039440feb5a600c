//! Strangers where both sides are to greet.

use std::io::{Read, Write};
use std::net::TcpStream;

use ropewalk_io::layer::{Ended, Event, FramingError};

use crate::greeting;

#[test]
fn a_stranger_is_shut_out_and_nobody_hears_of_it() {
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"RWHELLO1 and out of turn"] {
        let mut scene = greeting();
        let address = scene.listen(1);
        let mut stranger = TcpStream::connect(address).expect("somebody listens");
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
            // Whoever greets is announced, and then found wrong.
            [Event::ConnectionRequested { .. }, Event::Ended { how, .. }] => assert_eq!(how, out_of_turn),
            _ => panic!("{events:?}"),
        }
    }
}
