//! Two kinds of time that cannot be mixed: monotonic instants for decisions, UTC for people and records.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// A point of monotonic time in nanoseconds since an arbitrary start. Passed into machines, never read by them.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// The start of this clock.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `nanoseconds` after the clock's start.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanoseconds(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` later, at most [`Instant::FAR_FUTURE`].
    pub const fn after(self, duration: Duration) -> Self {
        let nanoseconds = duration.as_nanos();
        if nanoseconds > u64::MAX as u128 { Self::FAR_FUTURE } else { Self(self.0.saturating_add(nanoseconds as u64)) }
    }
}

/// A point of civil time: nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Utc(pub i64);

impl Utc {
    /// The day, such as `2026-11-23`.
    pub fn date(self) -> String {
        // Days are counted from 0000-03-01, so that the leap day ends a year; 400 years have 146,097 of them.
        let days = self.0.div_euclid(86_400_000_000_000) + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        format!("{:04}-{month:02}-{day:02}", year + 400 * era + i64::from(month <= 2))
    }

    /// Hours, minutes and seconds, such as `06:31:07`.
    pub fn time_of_day(self) -> String {
        let seconds = self.0.div_euclid(1_000_000_000).rem_euclid(24 * 3600);
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

impl From<SystemTime> for Utc {
    /// Times before 1970 become 1970.
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_know_leap_years() {
        let dates = [0, 951_782_399, 951_782_400, 951_868_800, 1_709_164_800, 1_795_398_780, 4_107_542_399, -1];
        let expected = "1970-01-01 2000-02-28 2000-02-29 2000-03-01 2024-02-29 2026-11-23 2100-02-28 1969-12-31";
        assert_eq!(dates.map(|seconds| Utc(seconds * 1_000_000_000).date()).join(" "), expected);
    }

    #[test]
    fn any_time_has_a_time_of_day() {
        assert_eq!(Utc(1_795_398_780_123_456_789).time_of_day(), "01:53:00");
        assert_eq!(Utc(0).time_of_day(), "00:00:00");
        assert_eq!(Utc(-1).time_of_day(), "23:59:59");
    }

    #[test]
    fn instants_saturate() {
        let early = Instant::from_nanoseconds(5);
        let late = early.after(Duration::from_micros(1));
        assert_eq!(late.since(early), Duration::from_micros(1));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.after(Duration::MAX), Instant::FAR_FUTURE);
    }
}
