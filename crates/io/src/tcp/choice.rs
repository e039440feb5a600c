//! Which mechanism a dispatcher uses, and why.

use std::io;

use super::Mechanism;

/// The mechanism that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Never [`Mechanism::Auto`].
    pub mechanism: Mechanism,
    /// For people: a sentence.
    pub why: String,
}

impl Choice {
    /// What is wanted; where that is left open, io_uring if a ring can be made, else epoll. Gives the ring too.
    pub(super) fn make<R>(wanted: Mechanism, ring: impl FnOnce() -> io::Result<R>) -> io::Result<(Self, Option<R>)> {
        let named = |mechanism| Self { mechanism, why: format!("{mechanism}, because it was asked for") };
        match wanted {
            Mechanism::Auto => Ok(match ring() {
                Ok(ring) => (Self { mechanism: Mechanism::IoUring, why: Self::why_io_uring() }, Some(ring)),
                Err(error) => {
                    let why = format!("epoll, because io_uring cannot be had: {error}");
                    (Self { mechanism: Mechanism::Epoll, why }, None)
                }
            }),
            Mechanism::IoUring => Ok((named(wanted), Some(ring()?))),
            Mechanism::Epoll | Mechanism::Poll | Mechanism::Select => Ok((named(wanted), None)),
        }
    }

    fn why_io_uring() -> String {
        "io_uring, because this kernel has all of it: it sends with fewer system calls than epoll, and receives as fast"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(wanted: Mechanism, ring: io::Result<u8>) -> io::Result<(Choice, Option<u8>)> {
        Choice::make(wanted, || ring)
    }

    #[test]
    fn what_is_left_open_is_io_uring_where_there_is_one() {
        let (choice, ring) = choice(Mechanism::Auto, Ok(7)).expect("there is one");
        assert_eq!((choice.mechanism, ring), (Mechanism::IoUring, Some(7)));
    }

    #[test]
    fn where_there_is_none_it_is_epoll_which_says_why() {
        let none = || Err(io::Error::other("this kernel has no io_uring"));
        let (taken, ring) = choice(Mechanism::Auto, none()).expect("epoll is always there");
        assert_eq!((taken.mechanism, ring), (Mechanism::Epoll, None));
        assert_eq!(taken.why, "epoll, because io_uring cannot be had: this kernel has no io_uring");
        let refused = choice(Mechanism::IoUring, none()).expect_err("it was asked for by name");
        assert_eq!(refused.to_string(), "this kernel has no io_uring");
        let (taken, ring) = choice(Mechanism::Poll, none()).expect("it is not even asked");
        assert_eq!((taken.mechanism, ring), (Mechanism::Poll, None));
    }
}
