//! What the programs `ropewalk` and `ropewalk-lab` share: printing, exit statuses, and which error leads to which.

#![forbid(unsafe_code)]

pub mod exit;
pub mod output;

/// 1234567 as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
