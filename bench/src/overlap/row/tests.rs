//! Tests of the verdicts of a row, with made-up runs.

use super::*;

/// Seconds as nanoseconds.
fn ns(seconds: f64) -> u64 {
    u64::try_from(core::time::Duration::from_secs_f64(seconds).as_nanos()).unwrap()
}

/// Returns a row with equal runs: ping-pong alone and with computation, and a computation that takes 1 s alone.
pub(crate) fn row(wait: WaitPolicy, nice: i32, case: Case, ping: [f64; 2], burn: f64) -> Row {
    let ran = |wall: f64, cpu: f64, other: f64| Ran {
        late_ns: 0,
        wall_ns: ns(wall),
        cpu_ns: ns(cpu),
        other_ns: ns(other),
    };
    let run = Run {
        burn_alone: [ran(1.0, 1.0, 0.0); 2],
        ping_alone: ran(ping[0], ping[0], 0.0),
        burn: [ran(burn, 1.0, (burn - 1.0).max(0.0)); 2],
        ping: ran(ping[1], ping[0], 0.0),
        skew_ns: 1_000,
    };
    let (provider, buffers, wait) = (Provider::Shm, Buffers::Prefaulted, Wait(wait));
    Row { provider, wait, nice, case, messages: 1, buffers, runs: vec![run; 5], units: Vec::new() }
}

/// Returns units of a row's first run, with some noise of the share `noise`.
pub(crate) fn units(row: &Row, noise: f64) -> Vec<Unit> {
    let Run { burn_alone, burn, .. } = row.runs[0];
    let unit = |number: u32| {
        let mut unit = Unit { alone: burn_alone, together: burn };
        for ran in &mut unit.together {
            let more = ns(f64::from(number % 5) / 4.0 * noise);
            (ran.wall_ns, ran.cpu_ns) = (ran.wall_ns + more, ran.cpu_ns + more);
        }
        unit
    };
    (0..20).map(unit).collect()
}

#[test]
fn lost_work_differs_from_explained_delay() {
    let mut kept = row(WaitPolicy::Block, 0, MANY, [0.2, 0.3], 1.2);
    kept.units = units(&kept, 0.001);
    assert!((kept.burn_delay() - 0.2).abs() < 1e-9 && kept.unexplained().mean < 0.001);
    assert_eq!(kept.next_door(), Some(NextDoor::Kept));
    let change = |change: fn(&mut Unit)| {
        let mut row = kept.clone();
        row.units.iter_mut().for_each(change);
        row.next_door()
    };
    let less = change(|unit| unit.together[1].cpu_ns = ns(1.02));
    assert_eq!(less, Some(NextDoor::Lost), "less work in a second");
    let more = change(|unit| unit.together[0].other_ns = ns(0.15));
    assert_eq!(more, Some(NextDoor::Lost), "unexplained time");
    let noisy = Row { units: units(&kept, 0.02), ..kept.clone() };
    assert_eq!(noisy.next_door(), Some(NextDoor::NotResolvable));
    assert!(kept.is_settled() && !noisy.is_settled());
    kept.units.truncate(FEWEST - 1);
    assert!(!kept.is_settled());
}

#[test]
fn only_long_quiet_rows_of_equal_priority_are_judged() {
    let judged = |wait, nice, case| row(wait, nice, case, [0.2, 0.3], 1.2).is_judged();
    assert!(judged(WaitPolicy::Block, 0, MANY) && judged(WaitPolicy::Adaptive, 0, FEW));
    assert!(!judged(WaitPolicy::Spin, 0, MANY) && !judged(WaitPolicy::Block, 19, MANY));
    assert!(!judged(WaitPolicy::Block, 0, CASES[0]));
}

#[test]
fn programs_that_do_not_start_together_void_a_run() {
    let mut equal = row(WaitPolicy::Block, 0, MANY, [0.2, 0.3], 1.2);
    let late = Run { skew_ns: ns(0.6), ..equal.runs[0] };
    assert!(equal.add(equal.runs[0]).is_ok());
    let error = equal.add(late).unwrap_err().to_string();
    assert!(error.contains("0.600 s apart"), "{error}");
    assert_eq!(equal.runs.len(), 6);
    let mut raised = row(WaitPolicy::Block, -20, MANY, [0.2, 0.3], 1.2);
    assert!(raised.add(late).is_ok(), "it waits for the computation");
}

#[test]
fn rows_have_the_reports_numbers() {
    let fields = row(WaitPolicy::Spin, 0, MANY, [0.2, 0.3], 1.2).fields();
    let value = |column| fields.value(column).and_then(serde_json::Value::as_f64);
    assert_eq!((value("paper_dping_s"), value("paper_burn_s")), (Some(83.6), Some(90.5)));
    assert_eq!(MANY.published(WaitPolicy::Adaptive, 0), None, "the report has no such wait");
}
