//! `wakeup`: the time that a blocked receiver waits for the CPU, by its scheduling class, its competition, and the activity of
//! the sender.

use core::time::Duration;

use nix::errno::Errno;
use pronto_expedite::schedule::{CALLER, Class, schedule};

use crate::experiment::{Experiment, Rounds, Run};
use crate::params::{Axis, Choice as _, Params};
use crate::report::{Fields, Report, decimals};
use crate::sample::Recorder;
use crate::wakeup::{Scene, Sender, play};

/// Receivers by name.
const RECEIVERS: [(&str, Class); 3] =
    [("normal", Class::Normal), ("slice", Class::Slice(SHORT)), ("fifo", Class::Fifo(1))];

/// Competitors of the receiver, by the length of their time slice.
const HOGS: [(&str, Option<Class>); 4] = [
    ("none", None),
    ("short", Some(Class::Slice(SHORT))),
    ("stock", Some(Class::Normal)),
    ("long", Some(Class::Slice(LONG))),
];

/// The shortest time slice that the kernel gives.
const SHORT: Duration = Duration::from_micros(100);
/// A multiple of the stock kernel's slice, which is 1.4 ms on two CPUs.
const LONG: Duration = Duration::from_millis(20);

/// Smallest delay that counts as noticeable.
const LATE: Duration = Duration::from_millis(1);

/// One wake-up at a time. The rows take turns, so that a noisy second affects all of them alike.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "wakeup",
    question: "How long does a blocked receiver wait for the CPU?",
    takes: [30, 10],
    about: "time that a blocked receiver waits for the CPU, by its scheduling, its competition and the sender's activity",
    axes: &[
        Axis::new("receiver", "Only receivers with this scheduling", &["normal", "slice", "fifo"]),
        Axis::new("sender", "Only senders that do this between messages", Sender::NAMES),
        Axis::new(
            "hog",
            "Only this competition for the receiver: none, or a thread with this time slice",
            &["none", "short", "stock", "long"],
        ),
    ],
    rounds: [Rounds::new(5, 0); 2],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let (receiver_cpu, sender_cpu) = (run.cpus.caller, run.cpus.server);
    if run.placement.pair().is_none() {
        report.note("sender and receiver share one CPU: this process may use only one");
    }
    let mut rows = Vec::new();
    for (names, receiver, sender, hog) in cast(run.params) {
        if let Some(errno) = refused(receiver) {
            report.note(format!("skipped: receiver {}: the kernel refuses it ({errno})", names[0]));
            continue;
        }
        rows.push((names, Scene { sender_cpu, receiver_cpu, receiver, sender, hog }, Recorder::new()));
    }
    let messages = if run.params.quick { QUICK_MESSAGES } else { MESSAGES };
    run.begin(rows.len());
    run.in_turns(
        &mut rows,
        |(names, ..)| names.join(", "),
        |(_, scene, delays), _| delays.as_round(|delays| play(scene, messages, delays)),
    )?;
    report.params = Fields::default()
        .with("cpus", run.placement.numbers())
        .with("messages_per_round", messages)
        .with("rounds", run.rounds)
        .with("short_slice_ns", SHORT.subsec_nanos())
        .with("long_slice_ns", LONG.subsec_nanos());
    report.rows = rows.iter().map(|(names, _, delays)| row(*names, delays)).collect();
    Ok(report)
}

/// Returns the selected scenes. Without competition the receiver's class makes no difference, so there is only one.
fn cast(params: &Params) -> Vec<([&'static str; 3], Class, Sender, Option<Class>)> {
    let receivers = params.kept("receiver", RECEIVERS, |receiver| receiver.0);
    let senders = Sender::kept(params, "sender");
    let mut scenes = Vec::new();
    for (hog_name, hog) in params.kept("hog", HOGS, |hog| hog.0) {
        for (receiver_name, receiver) in &receivers {
            for sender in &senders {
                if hog.is_some() || *receiver == Class::Normal {
                    scenes.push(([*receiver_name, sender.name(), hog_name], *receiver, *sender, hog));
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

fn row([receiver, sender, hog]: [&'static str; 3], delays: &Recorder) -> Fields {
    let sample = delays.sample();
    Fields::default()
        .with("receiver", receiver)
        .with("sender", sender)
        .with("hog", hog)
        .with("min_ns", sample.min_ns)
        .with("p50_ns", sample.p50_ns)
        .with("p90_ns", delays.quantile_ns(0.9))
        .with("p99_ns", sample.p99_ns)
        .with("max_ns", delays.max_ns())
        .with_aa(&sample)
        .with("above_1_ms", decimals(delays.share_above(LATE), 3))
}

/// 20 rows of 500 messages, one in 2.5 ms, take 25 s.
const MESSAGES: u32 = 100;
/// 20 rows of 150 messages take 8 s.
const QUICK_MESSAGES: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    #[test]
    fn there_is_a_row_for_each_selected_scene() {
        assert_eq!(cast(&Params::new()).len(), 2 + 3 * 2 * 3);
        let mut params = Params::new();
        params.choose("hog", vec!["none".into(), "stock".into()]);
        params.choose("sender", vec!["busy".into()]);
        let names: Vec<_> = cast(&params).into_iter().map(|(names, ..)| names).collect();
        assert_eq!(names.len(), 4);
        assert_eq!(names[0], ["normal", "busy", "none"]);
    }

    #[test]
    fn refused_receivers_are_skipped() {
        let mut params = Params::new();
        params.quick = true;
        params.choose("hog", vec!["stock".into()]);
        params.choose("sender", vec!["idle".into()]);
        params.choose("receiver", vec!["fifo".into()]);
        let report = EXPERIMENT.measure(&params, &mut Progress::on_stderr("wakeup")).unwrap();
        let possible = refused(Class::Fifo(1)).is_none();
        assert_eq!(report.rows.len(), usize::from(possible));
    }
}
