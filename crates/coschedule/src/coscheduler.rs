//! The coscheduler: reads queues, predicts, decides and gives the kernel weights, once per period.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use pronto_expedite::scx::{Prediction, PredictionTerms};
use pronto_sched_policy::policy::auto::{Auto, Change, Interval};
use pronto_sched_policy::policy::coschedule::Policy as Rule;
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::occupancy::Measure;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_policy::policy::weight::Weight;

use crate::actuator::{self, ActuateError, Actuator, ActuatorKind, Restored};
use crate::group::{Member, Members};
use crate::journal::{self, Journal, JournalError};
use crate::own::OwnMessages;
use crate::process::{Identity, Waiting};
use crate::reports::Reports;
use crate::sensor::{Choice as SensorChoice, SenseError, Sensor};
use crate::settings::{Past, Policy, Settings};
use crate::socket::Connection;
use crate::status::{ProcessStatus, Status};

/// Reason why coscheduling cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Queues cannot be read.
    #[error(transparent)]
    Sensor(#[from] SenseError),
    /// The kernel cannot be given weights.
    #[error(transparent)]
    Actuator(#[from] ActuateError),
    /// The policy needs other nodes, which the kernel does not know.
    #[error(
        "the sensor scx decides in the kernel, without other nodes: choose the policy pred or dyn, or another sensor"
    )]
    CarriedInKernel,
    /// P follows waits, which are not measured in the kernel.
    #[error(
        "the sensor scx decides in the kernel, without the waits of processes: choose a number for P (past), or another sensor"
    )]
    AutoInKernel,
    /// A group has messages within this process, which the kernel does not see.
    #[error(
        "the sensor scx reads sockets, and not the messages of a node of this program: choose another sensor"
    )]
    OwnInKernel,
    /// The kernel takes no samples in this period.
    #[error("a period of {} ms: with the sensor scx it is from 1 ms to 10 s", .0.as_millis())]
    Period(Duration),
}

/// Checks settings without a change of the machine. Returns the means.
///
/// # Errors
/// As [`Coscheduler::begin`].
pub fn check(settings: &Settings) -> Result<(Sensor, Actuator), StartError> {
    let actuator = Actuator::new(settings.actuator)?;
    let uses_groups = actuator.kind() == ActuatorKind::ControlGroup;
    let is_group = |members: &Members| matches!(members, Members::ControlGroup(_));
    if uses_groups && !settings.groups.iter().all(|group| is_group(&group.members)) {
        return Err(ActuateError::NeedsControlGroup.into());
    }
    if settings.sensor == SensorChoice::Scheduler {
        if actuator.kind() != ActuatorKind::Scheduler {
            return Err(ActuateError::NotInKernel.into());
        }
        if settings.policy == Policy::Carried {
            return Err(StartError::CarriedInKernel);
        }
        if settings.past == Past::Auto {
            return Err(StartError::AutoInKernel);
        }
        if settings.groups.iter().any(|group| group.members == Members::Own) {
            return Err(StartError::OwnInKernel);
        }
        if !PredictionTerms::PERIODS.contains(&settings.period) {
            return Err(StartError::Period(settings.period));
        }
    }
    journal::check_folder(&settings.state)?;
    Ok((Sensor::new(&settings.sensor)?, actuator))
}

/// Coschedules the processes of some groups. Dropping it restores their values.
#[derive(Debug)]
pub struct Coscheduler {
    settings: Settings,
    sensor: Sensor,
    actuator: Actuator,
    journal: Journal,
    processes: BTreeMap<u32, Process>,
    reports: Reports,
    /// The messages of this process in the present period.
    own: OwnMessages,
    own_pid: u32,
    /// Processes whose sockets the last scan could not read.
    failed: BTreeSet<u32>,
    /// The last sample failed.
    samples_fail: bool,
    /// Problems that the last scan found, so that each is reported once.
    reported: BTreeSet<String>,
    /// Everything was restored.
    has_ended: bool,
    last_scan: Option<Instant>,
    /// CPU time of the last scan. A wait for the loader of the BPF scheduler is not in it.
    scan_took: Duration,
    totals: Totals,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Periods; those of the kernel if it takes the samples.
    pub ticks: u64,
    /// Samples of a process.
    pub samples: u64,
    /// Of these, samples with a receive queue, and with a send queue, that was not empty.
    pub with_received: u64,
    /// See [`Self::with_received`].
    pub with_sent: u64,
    /// Changes of the weight of a process.
    pub changes: u64,
    /// Time for which this thread worked, and for which samples took a CPU in the kernel.
    pub worked: Duration,
    /// The longest work of a period.
    pub longest: Duration,
}

/// State of a process.
#[derive(Debug)]
struct Process {
    member: Member,
    group: usize,
    frequency: Frequency,
    /// Frequency that the other ends have reported, averaged.
    carried: Frequency,
    weight: Weight,
    auto: Auto,
    waiting: Option<Waiting>,
    interval: Interval,
    /// The last report of the scheduler that predicts for it, if one does.
    predicted: Option<Prediction>,
    changes: u64,
    /// The kernel refused the last change. It is attempted again after each scan, and reported once.
    is_refused: bool,
    /// There was a scan since the last refusal.
    may_try: bool,
}

/// Shortest time between two searches for processes and sockets.
const SCAN_PERIOD: Duration = Duration::from_millis(100);

/// Share of a CPU for these searches: after one that takes more CPU time, the next one comes later.
const SCAN_SHARE: u32 = 50;

impl Coscheduler {
    /// Begins: restores what an earlier coscheduler with the same journal left behind. Returns the result of that, too.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn begin(settings: Settings) -> Result<(Self, Restored), StartError> {
        let (sensor, actuator) = check(&settings)?;
        journal::make_folder(&settings.state)?;
        let restored = actuator::restore_abandoned(&settings.state)?;
        let (mut journal, changes) = Journal::open(&journal::own(&settings.state))?;
        // Of an earlier process with the number of this one.
        let restored = restored.plus(actuator::restore(changes, &mut journal)?);
        let begun = Self {
            settings,
            sensor,
            actuator,
            journal,
            processes: BTreeMap::new(),
            reports: Reports::default(),
            own: OwnMessages::default(),
            own_pid: std::process::id(),
            failed: BTreeSet::new(),
            samples_fail: false,
            reported: BTreeSet::new(),
            has_ended: false,
            last_scan: None,
            scan_took: Duration::ZERO,
            totals: Totals::default(),
        };
        Ok((begun, restored))
    }

    /// Does the work of one period. Returns problems that occurred for the first time; coscheduling goes on with the other processes.
    pub fn tick(&mut self) -> Vec<String> {
        let begun = now();
        let mut problems = Vec::new();
        if self.last_scan.is_none_or(|last| begun.duration_since(last) >= self.scan_period()) {
            let cpu_time = own_cpu_time();
            let found: BTreeSet<_> = self.scan().into_iter().collect();
            problems.extend(found.difference(&self.reported).cloned());
            self.reported = found;
            self.last_scan = Some(begun);
            self.scan_took = own_cpu_time().saturating_sub(cpu_time);
        }
        let sampled = self.sensor.sample();
        let failed_before = core::mem::replace(&mut self.samples_fail, sampled.is_err());
        if let (Err(error), false) = (sampled, failed_before) {
            problems.push(error.to_string());
        }
        self.reports.age();
        let mut periods = None;
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            periods = periods.max(Some(self.decide(pid, &mut problems)));
        }
        self.own = OwnMessages::default();
        let without_processes = u64::from(self.terms_in_kernel().is_none());
        self.totals.ticks += periods.unwrap_or(without_processes);
        let worked = begun.elapsed();
        self.totals.worked += worked;
        self.totals.longest = self.totals.longest.max(worked);
        problems
    }

    fn scan_period(&self) -> Duration {
        SCAN_PERIOD.max(self.scan_took * SCAN_SHARE)
    }

    /// Finds the processes of the groups and their sockets. A process of several groups belongs to the first.
    /// Returns all problems, also those of the last scan.
    fn scan(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut found: BTreeMap<u32, (usize, Member)> = BTreeMap::new();
        for (number, group) in self.settings.groups.iter().enumerate() {
            match group.members.find() {
                Ok(members) => members.into_iter().for_each(|(pid, member)| {
                    found.entry(pid).or_insert((number, member));
                }),
                // Without all groups, processes would seem to have left theirs.
                Err(error) => {
                    return vec![format!(
                        "the processes cannot be listed now, so all keep their weights: {error}"
                    )];
                }
            }
        }
        let others = journal::changes_in(&journal::others(&self.settings.state)).threads;
        let mut taken = BTreeSet::new();
        found.retain(|pid, (_, member)| {
            // A child of such a process has inherited changed values.
            let is_taken = others.contains_key(&member.identity) || taken.contains(&member.parent);
            if is_taken {
                taken.insert(*pid);
                let name = &member.command;
                problems
                    .push(format!("process {pid} ({name}) is left out: another coscheduler has changed it"));
            }
            !is_taken
        });
        self.processes.retain(|pid, process| {
            found.get(pid).is_some_and(|(_, member)| member.identity == process.member.identity)
        });
        let identities: BTreeMap<Identity, u32> =
            found.values().map(|(_, member)| (member.identity, member.parent)).collect();
        if let Err(error) = self.actuator.adopt(&identities, &mut self.journal) {
            problems.push(error.to_string());
        }
        let pids = found.keys().copied().collect();
        for (pid, (group, member)) in found {
            // The name changes when a process executes another program.
            let command = member.command.clone();
            let inherited = self.actuator.weight(member.identity);
            let process = self.processes.entry(pid).or_insert_with(|| Process {
                weight: inherited.unwrap_or(Weight::ORDINARY),
                ..Process::new(group, member)
            });
            process.member.command = command;
            process.may_try = true;
            // A weight may have been refused when it was given again.
            if let (Some(given), false) =
                (inherited, process.is_refused || self.settings.sensor == SensorChoice::Scheduler)
            {
                process.weight = given;
            }
        }
        // A process that executes another program is not accessible for a moment, so only lasting failures are reported.
        let failed = self.sensor.scan(&pids);
        let lasting = failed.iter().filter(|(pid, _)| self.failed.contains(pid));
        problems.extend(lasting.map(|(_, error)| error.to_string()));
        self.failed = failed.into_keys().collect();
        if self.settings.past == Past::Auto {
            self.processes.values_mut().for_each(Process::measure);
        }
        problems
    }

    /// Predicts for a process, and gives it its weight; or lets the kernel do so. Returns the number of samples since the last call.
    fn decide(&mut self, pid: u32, problems: &mut Vec<String>) -> u64 {
        if let Some(terms) = self.terms_in_kernel() {
            return self.follow(pid, terms, problems);
        }
        self.decide_here(pid, problems);
        1
    }

    fn decide_here(&mut self, pid: u32, problems: &mut Vec<String>) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let queues = self.sensor.queues(pid);
        self.totals.samples += 1;
        self.totals.with_received += u64::from(queues.iter().any(|queue| queue.received.bytes > 0));
        self.totals.with_sent += u64::from(queues.iter().any(|queue| queue.sent.bytes > 0));
        let past = match self.settings.past {
            Past::Fixed(past) => past,
            Past::Auto => process.auto.past(),
        };
        let rule = match self.settings.policy {
            Policy::Off | Policy::Static => Rule::Linux,
            Policy::Dynamic => Rule::Dynamic,
            Policy::Predictive | Policy::Carried => Rule::Predictive,
        };
        let own = if pid == self.own_pid { self.own } else { OwnMessages::default() };
        let counted = match rule {
            Rule::Predictive => own.local.into(),
            _ => 0,
        };
        let current = rule.current(Measure::BytesAndMessages, &queues).plus(Level::packets(counted));
        process.frequency = process.frequency.advanced(current, past);
        if self.settings.policy == Policy::Carried {
            let reports = &self.reports;
            let reported = self.sensor.connections(pid).map(|connection| reports.level(connection));
            let in_headers = Level::packets(own.of_peers.into());
            process.carried = process.carried.advanced(reported.fold(in_headers, Level::max), past);
        }
        let most = self.settings.most;
        let weight = match self.settings.policy {
            Policy::Off => Weight::ORDINARY,
            Policy::Static => most,
            _ => {
                let level = process.frequency.level().plus(process.carried.level());
                process.weight.next(level, most, self.actuator.kind().steps())
            }
        };
        let is_settled = if process.is_refused { !process.may_try } else { weight == process.weight };
        if is_settled {
            return;
        }
        let folder = match self.settings.groups.get(process.group).map(|group| &group.members) {
            Some(Members::ControlGroup(folder)) => Some(folder.as_path()),
            _ => None,
        };
        match self.actuator.set(process.member.identity, weight, folder, &mut self.journal) {
            Ok(is_changed) => {
                process.weight = weight;
                process.is_refused = false;
                process.changes += u64::from(is_changed);
                self.totals.changes += u64::from(is_changed);
            }
            Err(error) => {
                process.may_try = false;
                if !core::mem::replace(&mut process.is_refused, true) {
                    let name = &process.member.command;
                    problems.push(format!("process {pid} ({name}) keeps its weight: {error}"));
                }
            }
        }
    }

    /// Returns the terms by which the kernel predicts; `None` if this process does, or no policy does.
    fn terms_in_kernel(&self) -> Option<PredictionTerms> {
        let counts_sent = match self.settings.policy {
            Policy::Dynamic => false,
            Policy::Predictive => true,
            Policy::Off | Policy::Static | Policy::Carried => return None,
        };
        let Settings { most, period, .. } = self.settings;
        match self.settings.past {
            Past::Fixed(past) if self.settings.sensor == SensorChoice::Scheduler => {
                Some(PredictionTerms { past, most, counts_sent, period })
            }
            _ => None,
        }
    }

    /// Lets the kernel predict for a process, or reads what it has predicted. Returns the number of samples since the last call.
    fn follow(&mut self, pid: u32, terms: PredictionTerms, problems: &mut Vec<String>) -> u64 {
        let Some(process) = self.processes.get_mut(&pid) else { return 0 };
        let identity = process.member.identity;
        let Some(before) = process.predicted else {
            // It is asked for again after each refusal, which is reported once.
            let asked = self.actuator.predict(identity, terms);
            process.predicted = asked.is_ok().then(Prediction::default);
            let was_refused = core::mem::replace(&mut process.is_refused, asked.is_err());
            if let (Err(error), false) = (asked, was_refused) {
                let name = &process.member.command;
                problems.push(format!(
                    "the weight of process {pid} ({name}) does not follow its queues: {error}"
                ));
            }
            return 0;
        };
        process.predicted = self.actuator.prediction(identity);
        let Some(found) = process.predicted else { return 0 };
        // After another request, all numbers begin anew.
        let before = if found.begun == before.begun { before } else { Prediction::default() };
        let since = |value: fn(&Prediction) -> u64| value(&found).saturating_sub(value(&before));
        let [samples, changes] = [since(|found| found.samples), since(|found| found.changes)];
        self.totals.samples += samples;
        self.totals.with_received += since(|found| found.with_received);
        self.totals.with_sent += since(|found| found.with_sent);
        self.totals.changes += changes;
        self.totals.worked += found.worked.saturating_sub(before.worked);
        self.totals.longest = self.totals.longest.max(found.longest);
        process.changes += changes;
        process.weight = Weight::hundredths(found.weight);
        samples
    }

    /// Receives reports of a peer: the frequencies of processes there, by connection as seen from here. Reports are forgotten if they are
    /// not repeated, and bounded: a peer can raise a process of a group no further than its own queues can.
    pub fn receive(&mut self, peer: u16, reports: impl IntoIterator<Item = (Connection, Level)>) {
        self.reports.receive(peer, reports);
    }

    /// Receives the messages of this process, which belongs to a group of [`Members::Own`]. The largest numbers count in the next period, as
    /// queues of sockets do: the weight is bounded, whatever peers write into their headers.
    pub fn receive_own(&mut self, messages: OwnMessages) {
        let OwnMessages { local, of_peers } = self.own;
        self.own =
            OwnMessages { local: local.max(messages.local), of_peers: of_peers.max(messages.of_peers) };
    }

    /// Returns the frequency of this process in whole messages, for the headers of its node; without what peers have reported, so that two
    /// processes do not raise each other for ever. Zero unless the policy is [`Policy::Carried`].
    #[must_use]
    pub fn own_messages(&self) -> u32 {
        let own = self.processes.get(&self.own_pid).filter(|_| self.settings.policy == Policy::Carried);
        own.map_or(0, |process| u32::try_from(process.frequency.level().whole()).unwrap_or(u32::MAX))
    }

    /// Returns the connections of processes that communicate, with their frequencies, for the nodes at the other ends; in the form for
    /// [`Self::receive`] there. None unless the policy is [`Policy::Carried`].
    #[must_use]
    pub fn reports(&self) -> Vec<(Connection, Level)> {
        if self.settings.policy != Policy::Carried {
            return Vec::new();
        }
        let communicates = |process: &&Process| process.frequency.level() > QUIET;
        let of_process = |process: &Process| {
            let level = process.frequency.level();
            let connections = self.sensor.connections(process.member.identity.id);
            connections.map(move |connection| (connection.reversed(), level)).collect::<Vec<_>>()
        };
        self.processes.values().filter(communicates).flat_map(of_process).collect()
    }

    /// Returns the state, for human-readable output.
    #[must_use]
    pub fn status(&self) -> Status {
        let is_without_loader = self.actuator.is_without_loader();
        let processes = self.processes.values().map(|process| ProcessStatus {
            pid: process.member.identity.id,
            command: process.member.command.clone(),
            group: self
                .settings
                .groups
                .get(process.group)
                .map_or_else(String::new, |group| group.name.clone()),
            frequency: packets(process.level()),
            carried: packets(process.carried.level()),
            weight: if is_without_loader { Weight::ORDINARY } else { process.weight }.as_hundredths(),
            past: match self.settings.past {
                Past::Fixed(past) => past.as_millionths(),
                Past::Auto => process.auto.settled().as_millionths(),
            },
            changes: process.changes,
            is_refused: process.is_refused,
        });
        let in_kernel: u64 =
            self.processes.values().filter_map(|process| process.predicted).map(|found| found.sockets).sum();
        Status {
            policy: self.settings.policy,
            sensor: self.settings.sensor.name().to_owned(),
            actuator: self.actuator.kind().to_string(),
            period_us: u64::try_from(self.settings.period.as_micros()).unwrap_or(u64::MAX),
            sockets: self.sensor.len() + usize::try_from(in_kernel).unwrap_or(usize::MAX),
            ticks: self.totals.ticks,
            samples: self.totals.samples,
            with_received: self.totals.with_received,
            with_sent: self.totals.with_sent,
            changes: self.totals.changes,
            worked_us: u64::try_from(self.totals.worked.as_micros()).unwrap_or(u64::MAX),
            longest_us: u64::try_from(self.totals.longest.as_micros()).unwrap_or(u64::MAX),
            is_without_loader,
            processes: processes.collect(),
        }
    }

    /// Returns the kind of the actuator.
    #[must_use]
    pub const fn actuator(&self) -> ActuatorKind {
        self.actuator.kind()
    }

    /// Restores the values that all processes and control groups had before.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn end(mut self) -> Result<Restored, ActuateError> {
        self.restore()
    }

    /// Returns the folder of the state.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.settings.state
    }

    /// Returns the time between two calls of [`Self::tick`]: that between two samples, or that between two searches for processes if the
    /// kernel takes the samples.
    #[must_use]
    pub fn period(&self) -> Duration {
        match self.terms_in_kernel() {
            Some(_) => SCAN_PERIOD,
            None => self.settings.period,
        }
    }

    fn restore(&mut self) -> Result<Restored, ActuateError> {
        // Threads and processes that were made since the last scan have inherited changed values.
        let _reported_before = self.scan();
        let restored = self.actuator.restore(&mut self.journal)?;
        self.has_ended = true;
        // An empty journal that stays is harmless.
        let _removed = self.journal.remove();
        Ok(restored)
    }
}

impl Drop for Coscheduler {
    fn drop(&mut self) {
        if !self.has_ended {
            // The journal still has what fails here.
            let _result = self.restore();
        }
    }
}

/// The frequency below which a process is not reported to other nodes: a sixteenth of a packet.
const QUIET: Level = Level::bytes(256);

/// Returns a level in packets.
#[expect(clippy::cast_precision_loss, reason = "for human-readable output")]
fn packets(level: Level) -> f64 {
    level.as_fixed() as f64 / Level::PACKET.as_fixed() as f64
}

impl Process {
    fn new(group: usize, member: Member) -> Self {
        Self {
            member,
            group,
            frequency: Frequency::NEW,
            carried: Frequency::NEW,
            weight: Weight::ORDINARY,
            auto: Auto::NEW,
            waiting: None,
            interval: Interval::default(),
            predicted: None,
            changes: 0,
            is_refused: false,
            may_try: true,
        }
    }

    /// Returns its frequency.
    fn level(&self) -> Level {
        self.predicted.map_or_else(|| self.frequency.level(), |predicted| predicted.frequency)
    }

    /// Adapts P to the waits of the process: how long it was ready after each sleep before it ran.
    fn measure(&mut self) {
        let Ok(waiting) = self.member.identity.waiting() else { return };
        if let Some(before) = self.waiting.replace(waiting) {
            let sleeps = waiting.sleeps.saturating_sub(before.sleeps);
            self.interval.messages += sleeps;
            self.interval.waits += sleeps;
            self.interval.waited =
                self.interval.waited.after(Nanos(waiting.ready_ns.saturating_sub(before.ready_ns)));
        }
        let (auto, change) = self.auto.handle(&self.interval);
        self.auto = auto;
        if change != Change::TooFew {
            self.interval = Interval::default();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the periods of the coscheduler are real time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of the calling thread.
fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests;
