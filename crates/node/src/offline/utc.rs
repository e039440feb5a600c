//! UTC for people.

use ropewalk_terms::Utc;

const NANOSECONDS: i64 = 1_000_000_000;
const SECONDS_OF_A_DAY: i64 = 24 * 60 * 60;

/// The time as `2026-11-21T07:10:00.000000000Z`.
pub(super) fn utc_text(time: Utc) -> String {
    let (seconds, nanoseconds) = (time.0.div_euclid(NANOSECONDS), time.0.rem_euclid(NANOSECONDS));
    let (days, of_day) = (seconds.div_euclid(SECONDS_OF_A_DAY), seconds.rem_euclid(SECONDS_OF_A_DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// Year, month and day of a day counted from 1970-01-01; 64-bit nanoseconds reach from 1677 to 2262, so that
/// walking over years is quick enough.
fn date(mut days: i64) -> (i64, usize, i64) {
    let mut year = 1970;
    while days < 0 {
        year -= 1;
        days += length_of(year);
    }
    while days >= length_of(year) {
        days -= length_of(year);
        year += 1;
    }
    let february = length_of(year) - 337;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

/// Days of a year.
const fn length_of(year: i64) -> i64 {
    if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (nanoseconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_825_599_000_000_001, "2000-02-29T11:59:59.000000001Z"),
            (1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ] {
            assert_eq!(utc_text(Utc(nanoseconds)), text);
        }
    }
}
