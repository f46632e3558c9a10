//! `anatomy`: the cost of each step of a call, and the part of a call that the steps do not explain.

use core::time::Duration;

use crate::pair::{Pairs, shm_link, tcp_link};
use pronto::WaitPolicy;
use pronto_core::fabric::{ConnectionLimits, QueuePair};

use crate::anatomy::{
    Ask, CALL, Dispatch, OFF_PATH, Outside, PATH, Parts, REST, Raw, STEPS, Stages, Step, steps, watched,
};
use crate::claim::Claim;
use crate::clock;
use crate::echo::{Ask32, Ask224, AskMany, Provider, SIZES, Server, Size, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::floor;
use crate::params::{Axis, Choice as _, Params};
use crate::placement::{CpuPair, alone};
use crate::plot::{self, BarSeries, Figure, Panel, Spread};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};

/// Rounds of the parts, of the floor and of whole calls alternate. The server of the calls is a separate process, stopped while
/// anything else is measured.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "anatomy",
    question: "Which steps of a call take its time?",
    takes: [25, 6],
    paper: Some("comm-layer"),
    figure: Some("Fig. 3, carried through"),
    about: "cost of each step of a call, and the part that the steps do not explain",
    axes: &[
        Axis::PROVIDER,
        Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES),
        Axis::new("step", "Only these steps are shown", STEPS),
    ],
    cpus: Cpus::Two,
    // 6 subjects take 20 s, or 4 s in a quick run.
    rounds: [Rounds::new(10, 100), Rounds::new(4, 40)],
    draws: true,
    claims: &["A1", "A2"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let sizes: Vec<_> = SIZES
        .iter()
        .filter(|size| SIZE_NAMES.contains(&size.name) && params.keeps("size", size.name))
        .collect();
    let providers = Provider::kept(params);
    run.begin(providers.len() * sizes.len());
    let mut found = Vec::new();
    for provider in providers {
        for size in &sizes {
            let server = Server::spawn(provider, Wait(WaitPolicy::Spin), run.cpus.server)?;
            let bench = Bench { provider, size, cpus: run.cpus, budget: run.budget, server: &server };
            found.push(alone(run.cpus.caller, || bench.run(run))?);
        }
    }
    let clocks = found.iter().map(|subject| subject.clock_ns).fold(f64::NAN, f64::max);
    let mut report = Report {
        params: run
            .fields()
            .with("parts", "one thread, 8 links with one message each, or 32 in a row; median of batches")
            .with("call", "two processes, pinned, both polling, inline handler")
            .with("clock_ns", decimals(clocks, 1)),
        claims: claims(&found),
        figures: figure(&found).into_iter().collect(),
        rows: found.iter().flat_map(|subject| subject.rows(params)).collect(),
        ..Report::default()
    };
    report.note(
        "a step measured alone has its data in its own cache, and overlaps with the next: the cost of further cache lines \
         from the other core is not explained, and work that the CPU overlaps in a real call is counted twice",
    );
    Ok(report)
}

/// One transport and size, with the server of the whole calls.
struct Bench<'a> {
    provider: Provider,
    size: &'static Size,
    cpus: CpuPair,
    budget: Duration,
    server: &'a Server,
}

/// Results of one subject.
struct Subject {
    provider: Provider,
    size: &'static str,
    steps: Vec<Step>,
    call: Sample,
    floor: Sample,
    clock_ns: f64,
}

impl Bench<'_> {
    fn run(&self, run: &mut Run<'_>) -> anyhow::Result<Subject> {
        match self.provider {
            Provider::Shm => self.over(shm_link, run),
            Provider::Tcp => self.over(tcp_link, run),
        }
    }

    fn over<Q: QueuePair + 'static>(&self, link: Link<Q>, run: &mut Run<'_>) -> anyhow::Result<Subject> {
        match self.size.name {
            "32" => self.of::<Q, Ask32>(link, run),
            "224" => self.of::<Q, Ask224>(link, run),
            _ => self.of::<Q, AskMany>(link, run),
        }
    }

    fn of<Q: QueuePair + 'static, M: Ask>(
        &self,
        link: Link<Q>,
        run: &mut Run<'_>,
    ) -> anyhow::Result<Subject> {
        let wait = Wait(WaitPolicy::Spin);
        let (_client, peer) = self.server.meet(wait)?;
        let stopped = self.server.child.stop()?;
        let stages = Stages::<Q, M>::new(self.size.bytes, link)?;
        let apart = Stages::<_, M>::new(self.size.bytes, watched(link))?;
        let mut raw = Raw::new(M::CLASS, self.size.bytes, link)?;
        let dispatch = Dispatch::new()?;
        drop(stopped);
        let (mut parts, mut call, mut floor) = (Parts::new(), Recorder::new(), Recorder::new());
        for _ in 0..run.rounds {
            run.progress.step(&format!("{} {}", self.provider.name(), self.size.name));
            let stopped = self.server.child.stop()?;
            let started = clock::now();
            while started.elapsed() < self.budget {
                stages.round(&mut parts)?;
                apart.apart(&mut parts)?;
                raw.round(&mut parts)?;
                dispatch.round(&mut parts)?;
            }
            self.floor(&mut floor)?;
            drop(stopped);
            self.size.measure(&peer, self.budget, &mut call)?;
        }
        let (call, floor) = (call.sample(), floor.sample());
        let outside = Outside { way: self.way(&floor, &parts), call: call.batch_ns };
        Ok(Subject {
            provider: self.provider,
            size: self.size.name,
            steps: steps(&parts, outside, stages.path()),
            call,
            floor,
            clock_ns: parts.clock_ns(),
        })
    }

    fn floor(&self, into: &mut Recorder) -> anyhow::Result<()> {
        match self.provider {
            Provider::Shm => floor::cache_line(self.cpus, self.budget, into),
            Provider::Tcp => floor::tcp_spinning(self.cpus, HEADER + self.size.bytes, self.budget, into),
        }
    }

    /// Half of the floor. Over TCP it includes the two system calls that the provider's steps also include.
    fn way(&self, floor: &Sample, parts: &Parts) -> f64 {
        let half = approximate(floor.p50_ns) / 2.0;
        match self.provider {
            Provider::Shm => half,
            Provider::Tcp => half - parts.provider_ns(),
        }
    }
}

type Link<Q> = fn([ConnectionLimits; 2]) -> anyhow::Result<(Pairs<Q>, Pairs<Q>)>;

impl Subject {
    fn ns(&self, name: &str) -> f64 {
        self.steps.iter().find(|step| step.name == name).map_or(f64::NAN, |step| step.ns)
    }

    fn rows(&self, params: &Params) -> impl Iterator<Item = Fields> {
        self.steps.iter().filter(|step| params.keeps("step", step.name)).map(|step| {
            Fields::default()
                .with("provider", self.provider.name())
                .with("size", self.size.parse::<u64>().unwrap_or_default())
                .with("step", step.name)
                .with("path", step.path.name())
                .with("step_ns", decimals(step.ns, 1))
                .with("share", decimals(step.ns / self.call.batch_ns, 3))
                .with("call_p50_ns", self.call.p50_ns)
                .with("call_floor_ns", self.floor.p50_ns)
                .with("aa", self.call.aa.map(|aa| decimals(aa, 3)))
                .with("at", step.at)
                .with("how", step.how)
        })
    }
}

fn claims(found: &[Subject]) -> Vec<Claim> {
    [(Provider::Shm, "A1"), (Provider::Tcp, "A2")]
        .into_iter()
        .filter_map(|(provider, id)| {
            let subject = found.iter().find(|s| s.provider == provider && s.size == "32")?;
            let share = (subject.ns(REST) / subject.ns(CALL)).abs();
            let detail = "32 B, both polling; the steps are those on the critical path";
            Some(Claim::at_most(id, detail, EXPLAINED, share, 2))
        })
        .collect()
}

/// Returns two panels per transport, the steps on the critical path of a call and the others, with a bar for each size.
fn figure(found: &[Subject]) -> Option<Figure> {
    let panel = |(provider, title, shown): (Provider, &str, Vec<&'static str>)| {
        let of_provider = found.iter().filter(|subject| subject.provider == provider);
        let series = of_provider.map(|subject| {
            let bar = |step: &&'static str| Some(Spread::exact(subject.ns(step).max(0.0)));
            BarSeries::new(format!("{} B", subject.size), shown.iter().map(bar))
        });
        let title = format!("{}: {title}", provider.name());
        let groups = shown.iter().map(|step| (*step).to_owned()).collect();
        Panel::bars(&title, "step", plot::Axis::linear("time", "ns"), groups, series)
    };
    let path: Vec<&'static str> = PATH.iter().copied().chain([REST]).collect();
    let panels = Provider::ALL.into_iter().flat_map(|provider| {
        [
            (provider, "on the critical path", path.clone()),
            (provider, "concurrent with the call", OFF_PATH.to_vec()),
        ]
    });
    let title = "Cost of each step of a call (comm-layer paper, Fig. 3, carried through)";
    Figure::of("anatomy", title, panels.map(panel))
}

/// The bar, a share. Chosen by us; no source.
const EXPLAINED: f64 = 0.25;

/// Names of the measured lengths.
const SIZE_NAMES: [&str; 3] = ["32", "224", "4096"];

/// Length of the header in front of every payload, bytes.
const HEADER: usize = 24;

#[cfg(test)]
mod tests {
    use pronto::Message as _;

    use super::*;
    use crate::anatomy::{CallPath, Path};

    #[test]
    fn parts_are_measured_on_both_transports() {
        for provider in Provider::ALL {
            let mut parts = Parts::new();
            let rounds = |parts: &mut Parts| -> anyhow::Result<()> {
                match provider {
                    Provider::Shm => {
                        Stages::<_, Ask224>::new(224, shm_link)?.round(parts)?;
                        Stages::<_, Ask224>::new(224, watched(shm_link))?.apart(parts)?;
                        Raw::new(Ask224::CLASS, 224, shm_link)?.round(parts)
                    }
                    Provider::Tcp => {
                        Stages::<_, Ask32>::new(32, tcp_link)?.round(parts)?;
                        Stages::<_, Ask32>::new(32, watched(tcp_link))?.apart(parts)?;
                        Stages::<_, Ask224>::new(224, watched(tcp_link))?.apart(parts)?;
                        Raw::new(Ask32::CLASS, 32, tcp_link)?.round(parts)
                    }
                }
            };
            rounds(&mut parts).expect("each message arrives");
            Dispatch::new().and_then(|dispatch| dispatch.round(&mut parts)).expect("a node starts");
            assert!(parts.provider_ns() > 0.0);
        }
    }

    #[test]
    fn short_requests_take_the_fast_path_and_others_are_started() {
        let shm = |size| match size {
            32 => Stages::<_, Ask32>::new(32, shm_link).map(|stages| stages.path()),
            224 => Stages::<_, Ask224>::new(224, shm_link).map(|stages| stages.path()),
            _ => Stages::<_, AskMany>::new(size, shm_link).map(|stages| stages.path()),
        };
        let ways = [32, 224, 4096].map(|size| shm(size).expect("a link over shared memory"));
        assert_eq!(ways, [CallPath::Fast, CallPath::Fast, CallPath::Started]);
        let small = Stages::<_, Ask32>::new(32, tcp_link).map(|stages| stages.path());
        let short = Stages::<_, Ask224>::new(224, tcp_link).map(|stages| stages.path());
        let ways = [small, short].map(|way| way.expect("a link over TCP"));
        assert_eq!(ways, [CallPath::Fast, CallPath::Started], "a socket copies inline messages");
    }

    #[test]
    fn the_unexplained_part_is_a_claim_in_both_directions() {
        let subject = |rest: f64| Subject {
            provider: Provider::Shm,
            size: "32",
            steps: vec![
                Step { name: CALL, ns: 200.0, path: Path::Whole, at: "", how: "" },
                Step { name: REST, ns: rest, path: Path::Whole, at: "", how: "" },
            ],
            call: Sample::default(),
            floor: Sample::default(),
            clock_ns: 0.0,
        };
        let holds = |rest| claims(&[subject(rest)]).first().map(|claim| claim.holds());
        assert_eq!([holds(20.0), holds(90.0), holds(-90.0)], [Some(true), Some(false), Some(false)]);
        assert!(claims(&[]).is_empty());
    }
}
