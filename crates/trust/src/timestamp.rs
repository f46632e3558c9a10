//! A time, in seconds since 1970, and its human-readable text.

use core::fmt;

use rustls::pki_types::UnixTime;
use time::OffsetDateTime;

/// A time in seconds since 1970, UTC. `Display` prints it as `2026-05-04 12:30:00 UTC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

impl Timestamp {
    /// Returns the time `days` days later, or the last representable one.
    #[must_use]
    pub fn plus_days(self, days: u32) -> Self {
        Self(self.0.saturating_add(u64::from(days) * DAY))
    }

    /// Returns the number of whole days from `now` until this time; negative if this time is in the past.
    pub fn days_after(self, now: Self) -> i64 {
        let seconds = i128::from(self.0) - i128::from(now.0);
        i64::try_from(seconds.div_euclid(i128::from(DAY))).unwrap_or(i64::MAX)
    }

    /// Returns the time of a certificate, whose years may precede 1970.
    pub(crate) fn of(time: x509_parser::time::ASN1Time) -> Self {
        Self(u64::try_from(time.timestamp()).unwrap_or(0))
    }
}

impl From<UnixTime> for Timestamp {
    fn from(time: UnixTime) -> Self {
        Self(time.as_secs())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0).ok().and_then(|time| OffsetDateTime::from_unix_timestamp(time).ok());
        let Some(time) = time else { return write!(f, "{} s since 1970", self.0) };
        let (hour, minute, second) = time.to_hms();
        let (year, month, day) = time.to_calendar_date();
        write!(f, "{year}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC", u8::from(month))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        assert_eq!(Timestamp(1_777_897_800).to_string(), "2026-05-04 12:30:00 UTC");
        assert_eq!(Timestamp(u64::MAX).to_string(), "18446744073709551615 s since 1970");
    }

    #[test]
    fn days_are_whole() {
        let now = Timestamp(1_000_000);
        assert_eq!(now.plus_days(3).days_after(now), 3);
        assert_eq!(Timestamp(now.plus_days(3).0 - 1).days_after(now), 2);
        assert_eq!(Timestamp(now.0 - 1).days_after(now), -1);
        assert_eq!(now.days_after(now), 0);
    }
}
