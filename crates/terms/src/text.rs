//! Counts as people read them.

/// `1 frame`, `1,002 frames`.
///
/// # Panics
/// On a negative count.
pub fn counted<N: TryInto<u64, Error: core::fmt::Debug>>(count: N, what: &str) -> String {
    let count = count.try_into().expect("a count is not negative");
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// With commas between thousands, as `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
