//! Arithmetic of reflected remainders modulo the polynomial, at compile time. The highest bit of a number is the
//! coefficient of x^0, the lowest that of x^31.

/// The polynomial without its highest term.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// How many words the key table covers.
pub(super) const KEYS: usize = 80;

/// The remainder times x.
pub(super) const fn times_x(remainder: u32) -> u32 {
    remainder >> 1 ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// The remainder divided by x: the polynomial's last term is 1, so that there is such a thing.
const fn divided_by_x(remainder: u32) -> u32 {
    if remainder >> 31 == 1 { (remainder ^ POLYNOMIAL) << 1 | 1 } else { remainder << 1 }
}

/// What the words before the end of a message are worth: the word with `n` words behind it adds itself times
/// x^(64 n) to the message. The last entry belongs to the last word.
///
/// A carry-less product of reflected numbers comes out times x; the keys are divided by x for that.
pub(super) const fn keys() -> [u64; KEYS] {
    let mut keys = [0; KEYS];
    let mut power = divided_by_x(1 << 31);
    let mut index = KEYS;
    while index > 0 {
        index -= 1;
        keys[index] = (power as u64) << 32;
        let mut step = 0;
        while step < 64 {
            power = times_x(power);
            step += 1;
        }
    }
    keys
}
