//! Arithmetic of remainders modulo the CRC's polynomial, at compile time where it can be. Bit n of a number is the
//! coefficient of x^n.

/// The polynomial x^16 + x^15 + x^2 + 1, without its highest term.
pub(super) const POLYNOMIAL: u16 = 0x8005;

/// How many words the key table covers.
pub(super) const KEYS: usize = 128;

/// The remainder times x.
pub(super) const fn times_x(remainder: u16) -> u16 {
    (remainder << 1) ^ if remainder >> 15 == 1 { POLYNOMIAL } else { 0 }
}

/// The product of two remainders.
pub(super) const fn multiply(left: u16, right: u16) -> u16 {
    let mut product = 0;
    let mut bit = 16;
    while bit > 0 {
        bit -= 1;
        product = times_x(product) ^ if left >> bit & 1 == 1 { right } else { 0 };
    }
    product
}

/// The remainder of x^exponent.
pub(super) const fn power_of_x(exponent: u64) -> u16 {
    let mut power = 1;
    let mut bit = 64 - exponent.leading_zeros();
    while bit > 0 {
        bit -= 1;
        power = multiply(power, power);
        if exponent >> bit & 1 == 1 {
            power = times_x(power);
        }
    }
    power
}

/// What the words before the end of a message are worth: the word with `n` words behind it adds itself times
/// x^(64 n + 16) to the remainder. The last entry belongs to the last word.
pub(super) const fn keys() -> [u64; KEYS] {
    let mut keys = [0; KEYS];
    let mut after = 0;
    while after < KEYS {
        keys[KEYS - 1 - after] = power_of_x(64 * after as u64 + 16) as u64;
        after += 1;
    }
    keys
}

/// The quotient of x^80 by the polynomial, without its highest term x^64 (Barrett's constant).
pub(super) const fn quotient_of_x80() -> u64 {
    let mut quotient: u64 = 0;
    let mut remainder = 1; // long division: x^80's leading 1 is taken in, its 80 zeros follow
    let mut zeros = 80;
    while zeros > 0 {
        zeros -= 1;
        quotient = quotient << 1 | (remainder >> 15) as u64; // the term x^64 falls out at the top
        remainder = times_x(remainder);
    }
    quotient
}
