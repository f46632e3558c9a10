//! `wakeup`: the time that a blocked receiver waits for the CPU, by its scheduling class, its competition, and the activity of
//! the sender.

use core::time::Duration;

use nix::errno::Errno;
use pronto_expedite::schedule::{CALLER, Class, schedule};

use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::report::{Fields, Report, decimals};
use crate::sample::{a_to_a, approximate};
use crate::wakeup::{Delays, Scene, Sender, play};

/// The experiment. The rows take turns, so a noisy second affects all of them alike.
#[derive(Debug)]
pub(crate) struct Wakeup;

/// Receivers by name.
const RECEIVERS: [(&str, Class); 3] =
    [("normal", Class::Normal), ("slice", Class::Slice(SHORT)), ("fifo", Class::Fifo(1))];

const SENDERS: [(&str, Sender); 2] = [("idle", Sender::Idle), ("busy", Sender::Busy)];

/// Competitors of the receiver, by the length of their time slice.
const HOGS: [(&str, Option<Class>); 4] = [
    ("none", None),
    ("short", Some(Class::Slice(SHORT))),
    ("stock", Some(Class::Normal)),
    ("long", Some(Class::Slice(LONG))),
];

/// The shortest time slice that the kernel gives.
const SHORT: Duration = Duration::from_micros(100);
/// Many times the stock kernel's own, which is 1.4 ms on two CPUs.
const LONG: Duration = Duration::from_millis(20);

/// Smallest delay that counts as noticeable.
const LATE: Duration = Duration::from_millis(1);

impl Experiment for Wakeup {
    fn name(&self) -> &'static str {
        "wakeup"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "time that a blocked receiver waits for the CPU, by its scheduling, its competition and the sender's activity"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis {
                column: "receiver",
                help: "Only receivers with this scheduling",
                values: &["normal", "slice", "fifo"],
            },
            Axis {
                column: "sender",
                help: "Only senders that do this between messages",
                values: &["idle", "busy"],
            },
            Axis {
                column: "hog",
                help: "Only this competition for the receiver: none, or a thread with this time slice",
                values: &["none", "short", "stock", "long"],
            },
        ]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let receiver_cpu = placement.caller();
        let sender_cpu = placement.pair().map_or(receiver_cpu, |pair| pair.server);
        if placement.pair().is_none() {
            report.note("sender and receiver share one CPU: this process may use only one");
        }
        let mut rows = Vec::new();
        for (names, receiver, sender, hog) in cast(params) {
            if let Some(errno) = refused(receiver) {
                report.note(format!("skipped: receiver {}: the kernel refuses it ({errno})", names[0]));
                continue;
            }
            rows.push((names, Scene { sender_cpu, receiver_cpu, receiver, sender, hog }, Vec::new()));
        }
        let messages = if params.quick { QUICK_MESSAGES } else { MESSAGES };
        progress.begin(u64::from(ROUNDS) * rows.len() as u64);
        for _ in 0..ROUNDS {
            for (names, scene, rounds) in &mut rows {
                progress.step(&names.join(", "));
                let mut round = Delays::default();
                play(scene, messages, &mut round)?;
                rounds.push(round);
            }
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("messages_per_round", messages)
            .with("rounds", ROUNDS)
            .with("short_slice_ns", SHORT.subsec_nanos())
            .with("long_slice_ns", LONG.subsec_nanos());
        report.rows = rows.iter().map(|(names, _, rounds)| row(*names, rounds)).collect();
        Ok(report)
    }
}

/// Returns the selected scenes. Without competition the receiver's class makes no difference, so there is only one.
fn cast(params: &Params) -> Vec<([&'static str; 3], Class, Sender, Option<Class>)> {
    let mut scenes = Vec::new();
    for (hog_name, hog) in HOGS {
        for (receiver_name, receiver) in RECEIVERS {
            for (sender_name, sender) in SENDERS {
                let names = [receiver_name, sender_name, hog_name];
                let asked = ["receiver", "sender", "hog"]
                    .iter()
                    .zip(names)
                    .all(|(axis, name)| params.keeps(axis, name));
                if asked && (hog.is_some() || receiver == Class::Normal) {
                    scenes.push((names, receiver, sender, hog));
                }
            }
        }
    }
    scenes
}

/// Returns the error if the kernel refuses `class` to a thread of this process.
fn refused(class: Class) -> Option<Errno> {
    std::thread::spawn(move || schedule(CALLER, class)).join().expect("system calls do not panic").err()
}

fn row([receiver, sender, hog]: [&'static str; 3], rounds: &[Delays]) -> Fields {
    let mut delays = Delays::default();
    rounds.iter().for_each(|round| delays.add(round));
    let medians: Vec<f64> = rounds.iter().map(|round| approximate(round.quantile_ns(0.5))).collect();
    Fields::default()
        .with("receiver", receiver)
        .with("sender", sender)
        .with("hog", hog)
        .with("min_ns", delays.min_ns())
        .with("p50_ns", delays.quantile_ns(0.5))
        .with("p90_ns", delays.quantile_ns(0.9))
        .with("p99_ns", delays.quantile_ns(0.99))
        .with("max_ns", delays.max_ns())
        .with("aa", decimals(a_to_a(&medians), 2))
        .with("above_1_ms", decimals(delays.share_above(LATE), 3))
}

/// 20 rows of 500 messages, one in 2.5 ms, take 25 s.
const MESSAGES: u32 = 100;
/// 20 rows of 150 messages take 8 s.
const QUICK_MESSAGES: u32 = 30;
const ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_scene_that_was_asked_for() {
        assert_eq!(cast(&Params::new()).len(), 2 + 3 * 2 * 3);
        let mut params = Params::new();
        params.choose("hog", vec!["none".into(), "stock".into()]);
        params.choose("sender", vec!["busy".into()]);
        let names: Vec<_> = cast(&params).into_iter().map(|(names, ..)| names).collect();
        assert_eq!(names.len(), 4);
        assert_eq!(names[0], ["normal", "busy", "none"]);
    }

    #[test]
    fn what_the_kernel_refuses_is_left_out_and_said() {
        let mut params = Params::new();
        params.quick = true;
        params.choose("hog", vec!["stock".into()]);
        params.choose("sender", vec!["idle".into()]);
        params.choose("receiver", vec!["fifo".into()]);
        let report = Wakeup.run(&params, &mut Progress::on_stderr("wakeup")).unwrap();
        let possible = refused(Class::Fifo(1)).is_none();
        assert_eq!(report.rows.len(), usize::from(possible));
    }
}
