//! `bulk`: long messages over Pronto, other projects' libraries, bare memory and bare sockets, in turns.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::bulk::line_up::{self, Participant, WITHOUT};
use crate::bulk::round::Rounds;
use crate::bulk::{Cell, Read, SIZES, Window};
use crate::claim::Claim;
use crate::experiment::{Cpus, Experiment, Rounds as Length, Run};
use crate::params::{Axis, Choice as _, Params, names};
use crate::peers::build;
use crate::report::{Fields, Report, decimals};
use crate::traffic::speed::Speed;

/// Every round of a participant is a fresh pair of processes, which send all cells; rounds of all participants take turns.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "bulk",
    question: "How fast do long messages move into a posted buffer, compared with other libraries?",
    takes: [450, 110],
    about: "long messages into posted buffers and in place, every byte read, over Pronto, UCX, Open MPI, libfabric and iceoryx2",
    axes: &[
        Axis::new(
            "peer",
            "Only these projects",
            &["raw", "pronto", "ucx", "openmpi", "libfabric", "iceoryx2"],
        ),
        Axis::PROVIDER,
        Axis::new(
            "setting",
            "Only so set",
            &["default", "best", "posix", "cma", "copied", "reference", "heap", "no-engine"],
        ),
        Axis::new("read", "Only with this memory of the receiver", Read::NAMES),
        Axis::new("size", "Only these lengths, bytes", &SIZE_NAMES),
        Axis::new("window", "Only one at a time, or only pipelined", Window::NAMES),
    ],
    examples: &[
        ("--peer pronto,openmpi --provider shm --read posted", "compares two projects over shared memory"),
        ("--quick --size 65536,1048576", "measures the shorter messages only"),
    ],
    cpus: Cpus::Two,
    // 29 participants send eight cells each: seven minutes and a half, or 110 s in a quick run.
    rounds: [Length::new(6, 100), Length::new(2, 20)],
    claims: &["V13", "V14", "V15", "V16", "V17", "V18", "V19", "V20"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let params = run.params;
    let cells = cells(params);
    let mut rows = rows(params);
    let programs: BTreeSet<_> =
        rows.iter().filter_map(|row| Some((row.one.program()?, row.one.peer))).collect();
    let built = build::all(&programs, &mut report);
    rows.retain(|row| row.one.program().is_none_or(|program| built.contains_key(&program)));
    notes_of_missing_forms(params, &rows, &cells, &mut report);
    run.begin(rows.len());
    let cpus = run.cpus;
    run.in_turns(
        &mut rows,
        |row| row.one.title(),
        |row, budget| {
            let cells: Vec<_> = cells.iter().map(|(cell, _)| *cell).filter(|cell| row.sends(*cell)).collect();
            if row.failed.is_none()
                && let Err(error) = row.one.round(&built, cpus, &cells, budget, &mut row.rounds)
            {
                // A failure of ours ends the run; a failure of others is only reported.
                anyhow::ensure!(row.one.program().is_some(), "{}: {error:#}", row.one.title());
                row.failed = Some(format!("{error:#}"));
            }
            Ok(())
        },
    )?;
    for Row { one, failed, .. } in &rows {
        if let Some(why) = failed {
            report.note(format!("skipped: {}: a round failed: {why}", one.title()));
        }
    }
    rows.retain(|row| row.failed.is_none());
    let selected = |row: &&Row| row.is_selected;
    report.params = run
        .fields()
        .with("processes", "a fresh sender and a fresh receiver for each round, each pinned; raw: threads")
        .with("wait", "spin")
        .with("messages_per_slot_before", 2);
    report.claims = claims(&rows);
    let rows_of = |(cell, window): &(Cell, Window)| {
        let measured = rows.iter().filter(selected).filter(|row| row.sends(*cell));
        measured.map(|row| row.fields(*cell, *window, &rows)).collect::<Vec<_>>()
    };
    report.rows = cells.iter().flat_map(rows_of).collect();
    Ok(report)
}

/// Returns the selected cells with their windows, by length.
fn cells(params: &Params) -> Vec<(Cell, Window)> {
    let windows = Window::kept(params, "window");
    let sizes = params.kept("size", SIZES, |size| size.name);
    let of = |bytes| windows.iter().map(move |window| (Cell::new(bytes, *window), *window));
    sizes.into_iter().flat_map(|size| of(size.bytes)).collect()
}

/// Returns the selected participants, and the floors that they are compared with.
fn rows(params: &Params) -> Vec<Row> {
    let keeps = |one: &Participant| {
        params.keeps("peer", one.peer)
            && params.keeps("provider", one.provider)
            && params.keeps("setting", one.setting)
            && params.keeps("read", one.read.name())
    };
    let is_needed = |one: &Participant| {
        let compared = |other: &Participant| (other.provider, other.read) == (one.provider, one.read);
        keeps(one) || one.peer == "raw" && line_up::ALL.iter().any(|other| keeps(other) && compared(other))
    };
    let row = |one| Row { one, is_selected: keeps(one), rounds: Rounds::default(), failed: None };
    line_up::ALL.iter().filter(|one| is_needed(one)).map(row).collect()
}

/// Notes the selected forms that a project does not have, and the lengths that a participant cannot send.
fn notes_of_missing_forms(params: &Params, rows: &[Row], cells: &[(Cell, Window)], report: &mut Report) {
    for (peer, read, why) in WITHOUT {
        if params.keeps("peer", peer) && params.keeps("read", read.name()) {
            report.note(format!("skipped: {peer}, {}: {why}", read.name()));
        }
    }
    for row in rows.iter().filter(|row| row.is_selected) {
        let lengths: BTreeSet<_> =
            cells.iter().filter(|(cell, _)| !row.sends(*cell)).map(|(cell, _)| cell.bytes).collect();
        if let Some((_, why)) = row.one.longest().filter(|_| !lengths.is_empty()) {
            let lengths: Vec<_> = lengths.iter().map(usize::to_string).collect();
            report.note(format!("skipped: {}, {} B: {why}", row.one.title(), lengths.join(", ")));
        }
    }
}

/// A participant of this run.
struct Row {
    one: &'static Participant,
    /// Whether the user wants its rows; false for a floor that only others are compared with.
    is_selected: bool,
    rounds: Rounds,
    /// Reason for the end of its rounds, if one failed.
    failed: Option<String>,
}

impl Row {
    fn sends(&self, cell: Cell) -> bool {
        self.one.longest().is_none_or(|(longest, _)| cell.bytes <= longest)
    }

    fn is(&self, peer: &str, provider: &str, read: Read) -> bool {
        (self.one.peer, self.one.provider, self.one.read) == (peer, provider, read)
    }

    fn speed(&self, cell: Cell) -> Option<&Speed> {
        self.rounds.cells.get(&cell)
    }

    /// Returns the bytes per second; `None` if the cell was not measured.
    fn rate(&self, cell: Cell) -> Option<f64> {
        self.speed(cell).map(Speed::per_second).filter(|rate| *rate > 0.0)
    }

    fn fields(&self, cell: Cell, window: Window, all: &[Self]) -> Fields {
        let (provider, read) = (self.one.provider, self.one.read);
        let rate = self.rate(cell).unwrap_or(f64::NAN);
        let floor = all.iter().find(|row| row.is("raw", provider, read));
        let to = |other: Option<f64>| other.map_or(Value::Null, |other| decimals(rate / other, 2));
        let gbytes = |rate: Option<f64>| rate.map_or(Value::Null, |rate| decimals(rate / 1e9, 3));
        let pronto = Rows(all).ours(provider, read, "reference");
        Fields::default()
            .with("peer", self.one.peer)
            .with("provider", provider)
            .with("setting", self.one.setting)
            .with("read", read.name())
            .with("size", cell.bytes)
            .with("window", window.name())
            .with("under_way", cell.open)
            .with("under_way_mib", decimals(cell.footprint() as f64 / f64::from(1 << 20), 3))
            .with("version", self.rounds.version.clone())
            .with("gbytes_per_s", gbytes(Some(rate)))
            .with("aa", self.speed(cell).map_or(Value::Null, |speed| decimals(speed.a_to_a(), 2)))
            .with("floor", floor.map(|floor| floor.one.how))
            .with("floor_gbytes_per_s", gbytes(floor.and_then(|floor| floor.rate(cell))))
            .with("ratio", to(floor.and_then(|floor| floor.rate(cell))))
            .with("to_pronto", to(pronto.and_then(|pronto| pronto.rate(cell))))
            .with("sum_gbytes_per_s", decimals(self.rounds.reading.per_second() / 1e9, 1))
            .with("how", self.one.how)
    }
}

/// All rows, looked up by peer.
#[derive(Clone, Copy)]
struct Rows<'a>(&'a [Row]);

impl<'a> Rows<'a> {
    fn ours(self, provider: &str, read: Read, setting: &str) -> Option<&'a Row> {
        self.0.iter().find(|row| row.is("pronto", provider, read) && row.one.setting == setting)
    }

    /// Returns the fastest row into posted buffers of Pronto, or of another library, with its rate.
    fn best(self, provider: &str, cell: Cell, is_wanted: fn(&str) -> bool) -> Option<(&'a Row, f64)> {
        let all = self.0.iter().filter(|row| {
            (row.one.provider, row.one.read) == (provider, Read::Posted) && is_wanted(row.one.peer)
        });
        let rates = all.filter_map(|row| Some((row, row.rate(cell)?)));
        rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    fn floor(self, provider: &str, cell: Cell) -> Option<f64> {
        self.0.iter().find(|row| row.is("raw", provider, Read::Posted))?.rate(cell)
    }
}

/// Evaluates the bars of messages into posted buffers, pipelined. Pronto and each library count with their fastest setting.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let all = Rows(rows);
    let judge = |provider: &str, bytes, [to_peer, to_floor]: [(&'static str, f64); 2]| {
        let cell = Cell::new(bytes, Window::Pipelined);
        let Some((best, ours)) = all.best(provider, cell, |peer| peer == "pronto") else {
            return [None, None];
        };
        let copied = all.ours(provider, Read::Posted, "copied").and_then(|row| row.rate(cell));
        let claim = |(id, bar): (&'static str, f64), name: String, other: f64| {
            let copied = copied.map(|copied| format!("; copied: {:.2}", copied / other)).unwrap_or_default();
            let detail = format!("{} to {name}{copied}", best.one.setting);
            Claim::at_least(id, detail, bar, ours / other, 2)
        };
        let peer = all
            .best(provider, cell, |peer| !["raw", "pronto"].contains(&peer))
            .map(|(row, other)| claim(to_peer, format!("{} ({})", row.one.peer, row.one.setting), other));
        let name = if provider == "shm" { "one core" } else { "the stream" };
        [peer, all.floor(provider, cell).map(|floor| claim(to_floor, name.to_owned(), floor))]
    };
    let judged = [
        judge("shm", MIB, [("V13", PEER_SHM), ("V15", CORE)]),
        judge("shm", 16 * MIB, [("V14", PEER_SHM), ("V16", CORE)]),
        judge("tcp", MIB, [("V17", PEER_TCP), ("V19", STREAM)]),
        judge("tcp", 16 * MIB, [("V18", PEER_TCP), ("V20", STREAM)]),
    ];
    judged.into_iter().flatten().flatten().collect()
}

const SIZE_NAMES: [&str; SIZES.len()] = names!(SIZES);

/// The bars: to the fastest other project, to a copy and a read by one core, and to a bare stream.
const PEER_SHM: f64 = 1.0;
const PEER_TCP: f64 = 0.95;
const CORE: f64 = 0.85;
const STREAM: f64 = 0.9;

const MIB: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// Returns a row whose cells all have this many bytes per second.
    fn row(name: [&str; 3], rate: u64) -> Row {
        let is =
            |one: &&Participant| [one.peer, one.provider, one.setting] == name && one.read == Read::Posted;
        let one = line_up::ALL.iter().find(is).unwrap();
        let mut rounds = Rounds::default();
        for (cell, _) in cells(&Params::new()) {
            rounds.cells.entry(cell).or_default().round(rate, Duration::from_secs(1));
        }
        Row { one, is_selected: true, rounds, failed: None }
    }

    fn verdicts(rows: &[Row]) -> Vec<(&'static str, bool)> {
        claims(rows).iter().map(|claim| (claim.id, claim.holds())).collect()
    }

    #[test]
    fn each_bar_can_be_missed() {
        let rows = |ours: [u64; 2], peers: [u64; 2], floors: [u64; 2]| {
            [
                row(["raw", "shm", "best"], floors[0]),
                row(["raw", "tcp", "best"], floors[1]),
                row(["pronto", "shm", "reference"], ours[0]),
                row(["pronto", "tcp", "reference"], ours[1]),
                row(["ucx", "shm", "cma"], peers[0]),
                row(["openmpi", "shm", "best"], peers[0] / 2),
                row(["libfabric", "tcp", "best"], peers[1]),
            ]
        };
        let is = |holds: [bool; 4]| {
            let [peer_shm, core, peer_tcp, stream] = holds;
            let ids = ["V13", "V15", "V14", "V16", "V17", "V19", "V18", "V20"];
            let holds = [peer_shm, core, peer_shm, core, peer_tcp, stream, peer_tcp, stream];
            ids.into_iter().zip(holds).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&rows([100, 100], [100, 105], [117, 111])), is([true; 4]));
        assert_eq!(verdicts(&rows([100, 100], [101, 106], [118, 112])), is([false; 4]));
        assert_eq!(verdicts(&rows([100, 100], [101, 105], [117, 112])), is([false, true, true, false]));
        assert_eq!(verdicts(&rows([100, 100], [100, 106], [118, 111])), is([true, false, false, true]));
    }

    #[test]
    fn the_fastest_setting_of_each_counts() {
        let rows = [
            row(["pronto", "shm", "copied"], 60),
            row(["pronto", "shm", "reference"], 80),
            row(["pronto", "shm", "no-engine"], 90),
            row(["ucx", "shm", "posix"], 30),
            row(["ucx", "shm", "cma"], 100),
            row(["libfabric", "shm", "default"], 80),
        ];
        let found = claims(&rows);
        assert_eq!(verdicts(&rows), [("V13", false), ("V14", false)], "without a floor");
        assert_eq!(found[0].detail, "no-engine to ucx (cma); copied: 0.60");
        assert_eq!(found[0].measured, serde_json::json!(0.9));
        let fields = rows[4].fields(Cell::new(MIB, Window::One), Window::One, &rows);
        assert_eq!(fields.value("to_pronto"), Some(&serde_json::json!(1.25)));
        assert_eq!(fields.value("ratio"), Some(&Value::Null));
    }

    #[test]
    fn there_are_no_claims_about_what_was_not_measured() {
        assert!(claims(&[row(["ucx", "shm", "cma"], 30), row(["raw", "shm", "best"], 30)]).is_empty());
    }

    #[test]
    fn floors_are_measured_with_every_selection() {
        let mut params = Params::new();
        params.choose("peer", vec!["pronto".into()]);
        params.choose("read", vec!["posted".into()]);
        let rows = rows(&params);
        let floors: Vec<_> = rows.iter().filter(|row| !row.is_selected).map(|row| row.one.title()).collect();
        assert_eq!(floors, ["raw shm best posted", "raw tcp best posted"]);
        assert_eq!(rows.len(), 10);
    }

    #[test]
    fn forms_that_do_not_exist_are_noted() {
        let params = Params::new();
        let mut report = Report::default();
        notes_of_missing_forms(&params, &rows(&params), &cells(&params), &mut report);
        let says = |text: &str| report.notes.iter().any(|note| note.contains(text));
        assert!(WITHOUT.iter().all(|(peer, read, _)| says(&format!("{peer}, {}", read.name()))));
        assert!(says("pronto shm copied in-place, 16777216, 67108864 B"), "{:?}", report.notes);
        assert_eq!(report.notes.len(), WITHOUT.len() + 2);
    }
}
