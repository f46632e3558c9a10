//! A call of 64 bytes over soft-RoCE compared with the standard ping-pong tools, and with TCP on the same pair of virtual links.
//!
//! All contenders take turns in rounds. A round is a number of round trips, and counts by its mean. The comparison uses the tenth
//! percentile over the rounds, for our calls and for the tools, because emulation has no quiet time, but its faster rounds agree.
//! `ibv_rc_pingpong` runs twice per round; the difference of its two series shows the resolution of the comparison.

use super::nodes::{Device, Two};
use super::tools::Tool;
use crate::claim::{Claim, Verdict};
use crate::clock;
use crate::echo::{Server, Wait, call_64};
use crate::experiment::Run;
use crate::home::Home;
use crate::params::{Choice as _, choices};
use crate::placement::{CpuPair, alone, pin};
use crate::report::{Fields, Report, decimals};
use pronto::{Node, Peer, Rdma, WaitPolicy};

/// Payload of a call, and length of a tool's message, bytes.
const BYTES: usize = 64;
/// Number of round trips in a round.
const CALLS: u32 = 300;
/// Number of warm-up calls in a round, because the server was stopped.
const WARM_UP: u32 = 20;
const ROUNDS: usize = 30;
const QUICK_ROUNDS: usize = 6;
/// Largest difference of two series of one tool, as a share of the smaller, with which the tool's row is meaningful.
const SPREAD: f64 = 0.15;

/// Waiting policies of both sides.
const WAITS: [Wait; 2] = [Wait(WaitPolicy::Spin), Wait(WaitPolicy::Block)];

choices! {
    /// A contender.
    enum Contender {
        Verbs = "verbs",
        Pingpong = "ibv_rc_pingpong",
        Tcp = "tcp",
        /// A second series of the tool, as its control.
        PingpongAgain = "ibv_rc_pingpong, again",
        SendLat = "ib_send_lat",
    }
}

/// Means of the rounds of one contender with one waiting policy, in microseconds.
#[derive(Clone, Debug)]
struct Series {
    wait: Wait,
    contender: Contender,
    means_us: Vec<f64>,
}

impl Series {
    /// Returns the mean that `part` of the rounds do not exceed.
    fn quantile(&self, part: f64) -> f64 {
        quantile(self.means_us.clone(), part)
    }

    /// Returns the A/A: the compared percentile of the even rounds, divided by that of the odd ones; NaN with less than two.
    fn a_to_a(&self) -> f64 {
        let half = |first| quantile(self.means_us.iter().copied().skip(first).step_by(2).collect(), 0.1);
        half(0) / half(1)
    }
}

fn quantile(mut sorted: Vec<f64>, part: f64) -> f64 {
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "some dozens of rounds"
    )]
    let index = (part * sorted.len() as f64) as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Measures the selected rows. Runs only in the lab.
pub(crate) fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let rounds = if run.params.quick { QUICK_ROUNDS } else { ROUNDS };
    let waits = run.params.kept("wait", WAITS, |wait| wait.name());
    run.progress.begin((waits.len() * rounds) as u64);
    let nodes = Two::make()?;
    // The thread that starts a child must outlive it, and namespaces and CPUs are properties of a thread.
    let series = alone(run.cpus.caller, || measure(&nodes, &waits, rounds, run))?;
    Ok(report(&series, rounds, nodes.device()))
}

/// One of our transports, with its server and the node that calls.
struct Ours {
    contender: Contender,
    wait: Wait,
    server: Server,
    _client: Node,
    peer: Peer,
}

impl Ours {
    fn meet(nodes: &Two, cpus: CpuPair, contender: Contender, wait: Wait) -> anyhow::Result<Self> {
        let rdma = if contender == Contender::Verbs { Rdma::Require } else { Rdma::Off };
        let [there, here] = &nodes.0;
        there.enter()?;
        let home = Home { listen: format!("tcp:{}:0", there.address), rdma };
        let server = Server::spawn_at(&home, wait, cpus.server)?;
        here.enter()?;
        pin(cpus.caller)?;
        let (client, peer) = server.meet(wait)?;
        Ok(Self { contender, wait, server, _client: client, peer })
    }

    /// Measures a round. Returns its mean in microseconds.
    fn round(&self) -> anyhow::Result<f64> {
        for _ in 0..WARM_UP {
            call_64(&self.peer)?;
        }
        let before = clock::now();
        for _ in 0..CALLS {
            call_64(&self.peer)?;
        }
        Ok((clock::now() - before).as_secs_f64() * 1e6 / f64::from(CALLS))
    }
}

fn measure(nodes: &Two, waits: &[Wait], rounds: usize, run: &mut Run<'_>) -> anyhow::Result<Vec<Series>> {
    let cpus = run.cpus;
    let mut stopped = Vec::new();
    for &wait in waits {
        for contender in [Contender::Verbs, Contender::Tcp] {
            stopped.push(Ours::meet(nodes, cpus, contender, wait)?);
        }
    }
    let mut guards: Vec<_> =
        stopped.iter().map(|ours| ours.server.child.stop().map(Some)).collect::<Result<_, _>>()?;
    let mut series: Vec<_> = waits
        .iter()
        .flat_map(|&wait| {
            let series = move |&contender| Series { wait, contender, means_us: Vec::new() };
            Contender::ALL.iter().map(series)
        })
        .collect();
    for round in 0..rounds {
        for &wait in waits {
            run.progress.step(&format!("round {} of {rounds}, {}", round + 1, wait.name()));
            let first = round % Contender::ALL.len();
            for contender in
                (0..Contender::ALL.len()).map(|step| Contender::ALL[(first + step) % Contender::ALL.len()])
            {
                let ours = stopped.iter().position(|ours| ours.contender == contender && ours.wait == wait);
                let mean = if let Some(index) = ours {
                    // The server continues, is measured, and stops again.
                    drop(guards[index].take());
                    let mean = stopped[index].round()?;
                    guards[index] = Some(stopped[index].server.child.stop()?);
                    mean
                } else {
                    let tool = if contender == Contender::SendLat { Tool::SendLat } else { Tool::Pingpong };
                    tool.round_trip_us(nodes, cpus, BYTES, CALLS, wait.0 == WaitPolicy::Block)?
                };
                let of = |one: &&mut Series| one.wait == wait && one.contender == contender;
                series.iter_mut().find(of).expect("one for each").means_us.push(mean);
            }
        }
    }
    Ok(series)
}

fn report(series: &[Series], rounds: usize, device: Device) -> Report {
    let row = |one: &Series| {
        let own = one.quantile(0.1);
        let ratio = p10(series, one.wait, Contender::Pingpong).map(|floor| decimals(own / floor, 3));
        Fields::default()
            .with("provider", one.contender.name())
            .with("wait", one.wait.name())
            .with("size", BYTES)
            .with("p10_us", decimals(own, 1))
            .with("aa", decimals(one.a_to_a(), 2))
            .with("p50_us", decimals(one.quantile(0.5), 1))
            .with("p90_us", decimals(one.quantile(0.9), 1))
            .with("ratio", ratio)
    };
    let mut report = Report {
        params: Fields::default()
            .with("bytes", BYTES)
            .with("rounds", rounds)
            .with("calls", CALLS)
            .with("statistic", "p10 over rounds of the mean of a round")
            .with("server", "separate process, pinned, in the other node; stopped while others are measured")
            .with("handler", "inline, returns the payload"),
        rows: series.iter().map(row).collect(),
        claims: WAITS.iter().flat_map(|&wait| claims(series, wait, device)).collect(),
        ..Report::default()
    };
    report.note("`ratio` is relative to ibv_rc_pingpong with the same waiting policy");
    if device == Device::Emulated {
        report.note(
            "everything is emulated: the device, its network and the CPUs. Times mean little, ratios of one run more",
        );
    }
    for wait in WAITS {
        if let Some(spread) = spread(series, wait).filter(|&spread| spread > SPREAD) {
            report.note(format!(
                "{}: two series of ibv_rc_pingpong differ by {:.0} %, more than {:.0} %: its row is meaningless in this run",
                wait.name(),
                spread * 100.0,
                SPREAD * 100.0,
            ));
        }
    }
    report
}

/// Returns the compared percentile of a contender.
fn p10(series: &[Series], wait: Wait, contender: Contender) -> Option<f64> {
    series.iter().find(|one| one.wait == wait && one.contender == contender).map(|one| one.quantile(0.1))
}

/// Returns the difference of the two series of the tool, as a share of the smaller.
fn spread(series: &[Series], wait: Wait) -> Option<f64> {
    let one = p10(series, wait, Contender::Pingpong)?;
    let other = p10(series, wait, Contender::PingpongAgain)?;
    Some((one - other).abs() / one.min(other))
}

fn claims(series: &[Series], wait: Wait, device: Device) -> Vec<Claim> {
    let value = |contender| p10(series, wait, contender);
    let (Some(ours), Some(tool), Some(tcp)) =
        (value(Contender::Verbs), value(Contender::Pingpong), value(Contender::Tcp))
    else {
        return Vec::new();
    };
    let (id, bound) = if wait.0 == WaitPolicy::Spin { ("RV1", 1.15) } else { ("RV2", 1.2) };
    let mut claims = vec![Claim::at_most(id, format!("{BYTES} B"), bound, ours / tool, 3)];
    if wait.0 == WaitPolicy::Spin {
        claims.push(ip_over_the_link(tcp / ours, device));
    }
    claims
}

/// Evaluates a call by IP as a multiple of one by verbs. The paper's figures, tens of microseconds and a few, differ by about ten.
fn ip_over_the_link(times: f64, device: Device) -> Claim {
    let (detail, verdict) = match device {
        Device::Hardware => ("both sides polling", Verdict::graded(times >= TEN_TIMES, times > 1.0)),
        Device::Emulated => (
            "soft-RoCE itself runs on the kernel's IP, so this run says nothing about hardware: it needs two RDMA ports",
            Verdict::NotResolvable,
        ),
    };
    Claim::new("K3", detail, decimals(times, 2), verdict).bar(TEN_TIMES)
}

/// Ratio of the paper's orders of magnitude, of which it publishes no figures.
const TEN_TIMES: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn series(contender: Contender, mean: f64) -> Series {
        let means_us = (0..20).map(|round| mean + f64::from(round)).collect();
        Series { wait: WAITS[0], contender, means_us }
    }

    #[test]
    fn a_series_counts_by_its_faster_rounds() {
        let one = series(Contender::Verbs, 100.0);
        assert_eq!([0.1, 0.5, 0.9].map(|part| one.quantile(part)), [102.0, 110.0, 118.0]);
        assert!((one.a_to_a() - 102.0 / 103.0).abs() < 1e-9, "{}", one.a_to_a());
    }

    #[test]
    fn a_tool_that_differs_from_itself_is_noted() {
        let all = [
            series(Contender::Verbs, 108.0),
            series(Contender::Pingpong, 98.0),
            series(Contender::PingpongAgain, 148.0),
            series(Contender::Tcp, 98.0),
        ];
        let report = report(&all, 20, Device::Hardware);
        let verdicts: Vec<_> = report.claims.iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(verdicts, [("RV1", true), ("K3", false)]);
        assert_eq!(report.claims[0].measured, serde_json::json!(1.1));
        assert_eq!(spread(&all, WAITS[0]), Some(0.5));
        assert_eq!(spread(&all, WAITS[1]), None);
        let slow: Vec<_> = all
            .into_iter()
            .map(|one| match one.contender {
                Contender::Verbs => series(Contender::Verbs, 128.0),
                _ => one,
            })
            .collect();
        assert!(!claims(&slow, WAITS[0], Device::Emulated)[0].holds(), "RV1");
        let sleeping: Vec<_> = slow.iter().map(|one| Series { wait: WAITS[1], ..one.clone() }).collect();
        let verdicts = claims(&sleeping, WAITS[1], Device::Emulated)
            .iter()
            .map(|claim| (claim.id, claim.holds()))
            .collect::<Vec<_>>();
        assert_eq!(verdicts, [("RV2", false)]);
    }

    #[test]
    fn only_hardware_judges_ip_over_the_link() {
        let verdict = |times, device| ip_over_the_link(times, device).verdict;
        assert_eq!(
            [12.0, 3.0, 0.9].map(|times| verdict(times, Device::Hardware)),
            [Verdict::Holds, Verdict::InPart, Verdict::DoesNotHold]
        );
        assert_eq!(verdict(12.0, Device::Emulated), Verdict::NotResolvable);
    }
}
