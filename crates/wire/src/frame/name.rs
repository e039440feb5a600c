//! The name that somebody gives in a hello.

/// Bytes of a name.
pub const NAME_BYTES: usize = 32;

/// A name padded with zeros; a longer one is cut.
pub(crate) fn padded(name: &str) -> [u8; NAME_BYTES] {
    let mut padded = [0; NAME_BYTES];
    padded.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    padded
}

/// The name up to its first zero; what is no text is replaced.
pub(crate) fn unpadded(name: &[u8; NAME_BYTES]) -> String {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_a_long_one_is_cut() {
        assert_eq!(unpadded(&padded("ru0")), "ru0");
        assert_eq!(unpadded(&padded(&"long".repeat(20))), "long".repeat(8));
        assert_eq!(unpadded(&[0xff; NAME_BYTES]), "\u{fffd}".repeat(NAME_BYTES));
    }
}
