//! The output of an interval: a table for people, or an object for programs.

use core::cmp::Reverse;
use core::fmt::Write as _;
use core::time::Duration;

use nix::unistd::{Uid, User};
use pronto_expedite::{Caps, Counts, Totals};
use serde_json::{Map, Value, json};

use super::interval::{Interval, Row};
use super::owner::{By, Owner};
use crate::commands::printable;

/// The column by whose values rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Arrivals,
    Boosts,
    Denied,
    Boosted,
}

impl Sort {
    pub(super) const ALL: [Self; 4] = [Self::Arrivals, Self::Boosts, Self::Denied, Self::Boosted];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Arrivals => "arrivals",
            Self::Boosts => "boosts",
            Self::Denied => "denied",
            Self::Boosted => "boosted",
        }
    }

    fn value(self, counts: &Counts) -> u64 {
        match self {
            Self::Arrivals => counts.calls,
            Self::Boosts => counts.boosts(),
            Self::Denied => counts.denied(),
            Self::Boosted => ns(counts.boosted_time),
        }
    }
}

/// Returns the rows in the order of a column, highest values first.
fn sorted(interval: &Interval, sort: Sort) -> Vec<(&Owner, &Row)> {
    let mut rows: Vec<_> = interval.rows.iter().collect();
    rows.sort_by_key(|(_, row)| (Reverse(sort.value(&row.counts)), Reverse(row.counts.calls)));
    rows
}

/// Arrivals of threads without a row are shown if they are more than this number, and this share of all: fewer may come between the
/// readings of the counters of all threads and of one.
const FEW: u64 = 5;
const SHARE: f64 = 0.05;

/// Returns a table of at most `most` rows, below the caps of the module, if they are known.
pub(super) fn text(interval: &Interval, caps: Option<&Caps>, by: By, sort: Sort, most: usize) -> String {
    let rates = Rates { seconds: interval.elapsed().as_secs_f64() };
    let mut text = caps.map_or_else(String::new, in_words) + &summary(interval, &rates);
    let (first, ids) = match by {
        By::Thread => ("LEFT us", "     PID      TID  COMMAND"),
        By::Process => ("THREADS", "     PID  COMMAND"),
        By::User => ("THREADS", "     UID  USER"),
        By::Cgroup => ("THREADS", " CGROUP"),
    };
    let _ = writeln!(
        text,
        "\n{:>10} {:>9} {:>9} {:>9}  {:17} {first:>8} {ids}",
        "ARRIVALS/s", "BOOSTS/s", "DENIED/s", "BOOSTED %", "NO BOOST"
    );
    let rows = sorted(interval, sort);
    for (owner, row) in rows.iter().take(most) {
        let counts = &row.counts;
        let first = if by == By::Thread { row.left.as_micros() } else { row.threads.len() as u128 };
        let _ = writeln!(
            text,
            "{:>10.0} {:>9.0} {:>9.0} {:>9.2}  {:17} {first:>8} {}",
            rates.of(counts.calls),
            rates.of(counts.boosts()),
            rates.of(counts.denied()),
            rates.percent(counts.boosted_time),
            main_reason(counts),
            label(owner),
        );
    }
    if rows.is_empty() {
        text.push_str("no thread had an arrival at a flagged file that this user may see\n");
    }
    if rows.len() > most {
        let _ = writeln!(text, "and {} more rows (--rows)", rows.len() - most);
    }
    let others = interval.others();
    if others.calls > FEW && rates.of(others.calls) > SHARE * rates.of(interval.counts().calls) {
        let _ = writeln!(
            text,
            "threads that have ended, or belong to other users: arrivals {:.0}/s, boosts {:.0}/s",
            rates.of(others.calls),
            rates.of(others.boosts())
        );
    }
    text
}

/// Returns the line about the caps.
fn in_words(caps: &Caps) -> String {
    let Caps { slice, thread_percent, user_percent, cpu_percent, user_flags, .. } = caps;
    let mut text = format!(
        "caps: slice {} us, thread {thread_percent} %, user {user_percent} %, CPU {cpu_percent} %, flags of a user {user_flags}",
        slice.as_micros()
    );
    for (is_set, name) in [(caps.sleepers_only, "sleepers_only"), (caps.even_if_idle, "even_if_idle")] {
        if is_set {
            text.push_str(", ");
            text.push_str(name);
        }
    }
    text + "\n"
}

/// Returns the lines about all threads together.
fn summary(interval: &Interval, rates: &Rates) -> String {
    let Totals { flags, threads, accounts, .. } = interval.totals;
    let counts = &interval.counts();
    let reasons = reasons(counts).into_iter().filter(|(_, _, count)| *count > 0);
    let reasons: Vec<_> =
        reasons.map(|(name, _, count)| format!("{name} {:.0}/s", rates.of(count))).collect();
    format!(
        "flags {flags}, threads {threads}, accounts {accounts}\n\
         arrivals {:.0}/s, boosts {:.0}/s (direct {:.0}, worker {:.0}), boosted {:.2} % of a CPU, charged for sleep {:.2} %\n\
         no boost: {}\n",
        rates.of(counts.calls),
        rates.of(counts.boosts()),
        rates.of(counts.direct),
        rates.of(counts.worker),
        rates.percent(counts.boosted_time),
        rates.percent(counts.slept_time),
        if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") }
    )
}

/// Counts per second, and times per second of a CPU.
struct Rates {
    seconds: f64,
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "a rate to read")]
    fn of(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    fn percent(&self, time: Duration) -> f64 {
        100.0 * time.as_secs_f64() / self.seconds
    }
}

/// Returns the end of a row: numbers and name.
fn label(owner: &Owner) -> String {
    match owner {
        Owner::Thread { pid, tid, name } => format!("{pid:>8} {tid:>8}  {name}"),
        Owner::Process { pid, name } => format!("{pid:>8}  {name}"),
        Owner::User { uid } => format!("{uid:>8}  {}", user(*uid)),
        Owner::Cgroup(path) => format!(" {path}"),
    }
}

/// Returns the name of a user, or `-`.
fn user(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| "-".to_owned(), |user| printable(user.name.as_bytes()))
}

/// Returns the most frequent reason for no boost, with its share of the arrivals.
fn main_reason(counts: &Counts) -> String {
    let most = reasons(counts).into_iter().max_by_key(|(_, _, count)| *count);
    match most {
        Some((_, short, count)) if count > 0 => {
            format!("{short} {} %", (count.saturating_mul(100) / counts.calls.max(1)).min(100))
        }
        _ => "-".to_owned(),
    }
}

/// Returns the reasons for no boost, each with a short name, and how often each was met.
fn reasons(counts: &Counts) -> [(&'static str, &'static str, u64); 12] {
    [
        ("running", "running", counts.running),
        ("boosted", "boosted", counts.boosted),
        ("realtime", "realtime", counts.realtime),
        ("idle", "idle", counts.idle),
        ("behind", "behind", counts.behind),
        ("locked", "locked", counts.locked),
        ("budget of the thread", "its budget", counts.denied_thread),
        ("budget of the user", "user budget", counts.denied_user),
        ("budget of the CPU", "CPU budget", counts.denied_cpu),
        ("budget of the flag", "flag budget", counts.denied_flag),
        ("budget of the group", "cpu.max", counts.denied_group),
        ("memory", "memory", counts.denied_memory),
    ]
}

/// Returns an object with all rows; `unix_time` is the present time in seconds.
pub(super) fn json(interval: &Interval, caps: Option<&Caps>, unix_time: f64, by: By, sort: Sort) -> Value {
    let rows = sorted(interval, sort).into_iter().map(|(owner, row)| {
        let mut object = match owner {
            Owner::Thread { pid, tid, name } => {
                json!({ "pid": pid, "tid": tid, "name": name, "left_ns": ns(row.left) })
            }
            Owner::Process { pid, name } => json!({ "pid": pid, "name": name, "threads": row.threads.len() }),
            Owner::User { uid } => json!({ "uid": uid, "name": user(*uid), "threads": row.threads.len() }),
            Owner::Cgroup(path) => json!({ "cgroup": path, "threads": row.threads.len() }),
        };
        object["counts"] = as_json(&row.counts);
        object
    });
    let caps = caps.map(|caps| {
        json!({
            "slice_us": u64::try_from(caps.slice.as_micros()).unwrap_or(u64::MAX),
            "thread_percent": caps.thread_percent,
            "user_percent": caps.user_percent,
            "cpu_percent": caps.cpu_percent,
            "sleepers_only": caps.sleepers_only,
            "even_if_idle": caps.even_if_idle,
            "user_flags": caps.user_flags,
        })
    });
    json!({
        "unix_time": unix_time,
        "seconds": interval.elapsed().as_secs_f64(),
        "by": by.name(),
        "caps": caps,
        "flags": interval.totals.flags,
        "threads_known": interval.totals.threads,
        "accounts": interval.totals.accounts,
        "counts": as_json(&interval.counts()),
        "others": as_json(&interval.others()),
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn as_json(counts: &Counts) -> Value {
    let values = counts.by_name().map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Object(values.into_iter().collect::<Map<_, _>>())
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::interval::tests::{seen, start, thread};
    use super::*;

    /// Returns an interval of two seconds with 20 arrivals.
    fn interval(owners: [Owner; 2]) -> Interval {
        let start = start();
        let before = seen(10, start, owners.clone());
        let mut interval = Interval::begin(&before);
        interval.add(&before, &seen(30, start + Duration::from_secs(2), owners));
        interval
    }

    fn caps() -> Caps {
        let mut caps = Caps::default();
        (caps.slice, caps.thread_percent, caps.user_percent) = (Duration::from_micros(200), 10, 25);
        (caps.cpu_percent, caps.user_flags, caps.even_if_idle) = (50, 4_096, true);
        caps
    }

    fn words(line: Option<&str>) -> Vec<&str> {
        line.unwrap_or_default().split_whitespace().collect()
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let text = text(&interval([thread(7), thread(8)]), Some(&caps()), By::Thread, Sort::Arrivals, 20);
        let first = "caps: slice 200 us, thread 10 %, user 25 %, CPU 50 %, flags of a user 4096, even_if_idle\nflags 3, ";
        assert!(text.starts_with(first), "{text}");
        assert!(
            text.contains("arrivals 10/s, boosts 5/s (direct 5, worker 0), boosted 1.00 % of a CPU"),
            "{text}"
        );
        assert!(text.contains("no boost: budget of the user 5/s\n"), "{text}");
        let mut rows = text.lines().skip_while(|line| !line.contains("COMMAND")).skip(1);
        let row = ["8", "4", "4", "0.80", "user", "budget", "50", "%", "0", "5", "7", "handler"];
        assert_eq!(words(rows.next()), row);
        assert_eq!(words(rows.next()).last(), Some(&"handler"));
        assert_eq!(rows.next(), None, "no arrivals of others");
    }

    #[test]
    fn columns_are_below_their_names() {
        let group = || Owner::Cgroup("/system.slice/redis.service".into());
        for (by, owner, last) in [(By::Thread, thread(7), "COMMAND"), (By::Cgroup, group(), "CGROUP")] {
            let text = text(&interval([owner.clone(), owner]), None, by, Sort::Arrivals, 20);
            let mut lines = text.lines().skip_while(|line| !line.contains(last));
            let (head, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            let name = if by == By::Thread { "handler" } else { "/system" };
            assert_eq!(head.find(last), row.find(name), "{text}");
            assert_eq!(head.find("NO BOOST"), row.find("user budget"), "{text}");
        }
    }

    #[test]
    fn a_group_has_the_sum_of_its_threads() {
        let group = Owner::Cgroup("/a".into());
        let json = json(&interval([group.clone(), group]), None, 0.0, By::Cgroup, Sort::Arrivals);
        let row = &json["rows"][0];
        assert_eq!(
            (&json["by"], &row["cgroup"], &row["threads"]),
            (&json!("cgroup"), &json!("/a"), &json!(2))
        );
        assert_eq!((&row["counts"]["calls"], &json["rows"][1]), (&json!(20), &Value::Null));
    }

    #[test]
    fn rows_are_sorted_and_limited() {
        let interval = interval([thread(7), thread(8)]);
        let json = json(&interval, Some(&caps()), 1_700_000_000.5, By::Thread, Sort::Boosted);
        let tids = json["rows"].as_array().into_iter().flatten().map(|row| &row["tid"]);
        assert_eq!(tids.collect::<Vec<_>>(), [&json!(7), &json!(8)]);
        assert_eq!((&json["counts"]["calls"], &json["flags"]), (&json!(20), &json!(3)));
        assert_eq!((&json["unix_time"], &json["others"]["calls"]), (&json!(1_700_000_000.5), &json!(0)));
        assert_eq!((&json["caps"]["slice_us"], &json["caps"]["even_if_idle"]), (&json!(200), &json!(true)));
        assert_eq!(json["rows"][0]["counts"]["denied_user"], json!(8));
        let text = text(&interval, None, By::Thread, Sort::Denied, 1);
        assert!(text.ends_with("handler\nand 1 more rows (--rows)\n"), "{text}");
    }

    #[test]
    fn the_main_reason_has_its_share() {
        let mut counts = Counts::default();
        assert_eq!(main_reason(&counts), "-");
        (counts.calls, counts.idle, counts.running) = (200, 120, 10);
        assert_eq!(main_reason(&counts), "idle 60 %");
        (counts.denied_flag, counts.idle) = (200, 0);
        assert_eq!(main_reason(&counts).len(), "flag budget 100 %".len(), "the width of the column");
    }

    #[test]
    fn an_unknown_user_has_no_name() {
        assert_eq!((user(0), user(u32::MAX - 1)), ("root".to_owned(), "-".to_owned()));
    }
}
