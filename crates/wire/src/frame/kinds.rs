//! The kinds of a protocol's messages, each with its number on the wire.

/// Declares `Kind`: each kind with its number and what it says.
macro_rules! kinds {
    ($($(#[doc = $help:literal])* $name:ident = $number:literal,)*) => {
        /// What a message is.
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind { $($(#[doc = $help])* $name = $number),* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The kind with this number on the wire, if there is one.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}
pub(crate) use kinds;

#[cfg(test)]
#[expect(unreachable_pub, reason = "kinds are what users of a protocol match on")]
mod tests {
    kinds! {
        /// Asks.
        Question = 3,
        /// Says.
        Answer = 7,
    }

    #[test]
    fn a_kind_is_its_number_and_no_other_number_is_a_kind() {
        assert_eq!(Kind::ALL, [Kind::Question, Kind::Answer]);
        let kinds = (0..=255).filter_map(|number| Kind::from_u8(number).map(|kind| (number, kind)));
        assert!(kinds.eq([(3, Kind::Question), (7, Kind::Answer)]));
    }
}
