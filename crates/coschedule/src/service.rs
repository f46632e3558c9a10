//! A coscheduler with its periods, and its status in a file for `pronto coschedule top`.

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::actuator::{ActuateError, Restored};
use crate::coscheduler::{Coscheduler, StartError};
use crate::process::Stat;
use crate::settings::Settings;
use crate::status::{Service as ServiceStatus, Status};

/// Runs a coscheduler.
#[derive(Debug)]
pub struct Service {
    coscheduler: Coscheduler,
    status: StatusFile,
    next_tick: Instant,
    next_status: Instant,
}

/// The file with the status of this process. It is removed when this is dropped.
#[derive(Debug)]
struct StatusFile(PathBuf);

/// Time between two writes of the status.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

impl Service {
    /// Begins; see [`Coscheduler::begin`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn begin(settings: Settings) -> Result<(Self, Restored), StartError> {
        let (coscheduler, restored) = Coscheduler::begin(settings)?;
        remove_stale(coscheduler.state());
        let status = StatusFile(coscheduler.state().join(format!("{PREFIX}{}{SUFFIX}", std::process::id())));
        let begun = now();
        Ok((Self { coscheduler, status, next_tick: begun, next_status: begun }, restored))
    }

    /// Does the work of a period that has begun, if one has. Returns new problems.
    pub fn work(&mut self) -> Vec<String> {
        let begun = now();
        if begun < self.next_tick {
            return Vec::new();
        }
        let mut problems = self.coscheduler.tick();
        // A late period does not make the next ones follow without a pause.
        self.next_tick = (self.next_tick + self.coscheduler.period()).max(begun);
        if begun >= self.next_status {
            self.next_status = begun + STATUS_PERIOD;
            let status = ServiceStatus::of(self.coscheduler.status());
            problems.extend(
                status.and_then(|status| self.status.write(&status)).err().map(|error| error.to_string()),
            );
        }
        problems
    }

    /// Returns the time until the next period.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.next_tick.saturating_duration_since(now())
    }

    /// Returns the coscheduler.
    pub const fn coscheduler(&mut self) -> &mut Coscheduler {
        &mut self.coscheduler
    }

    /// Restores everything; see [`Coscheduler::end`]. Returns the last status, too.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn end(self) -> Result<(Status, Restored), ActuateError> {
        let status = self.coscheduler.status();
        Ok((status, self.coscheduler.end()?))
    }
}

const PREFIX: &str = "coschedule-";
const SUFFIX: &str = ".json";

impl StatusFile {
    /// Replaces the file, so that no reader sees a part of it.
    fn write(&self, status: &ServiceStatus) -> std::io::Result<()> {
        let next = self.0.with_extension("next");
        fs::write(&next, serde_json::to_vec(status)?)?;
        fs::rename(&next, &self.0)
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // It may not have been written.
        let _absent = fs::remove_file(&self.0);
    }
}

/// Returns the status of all coschedulers that run with this folder.
#[must_use]
pub fn running(state: &Path) -> Vec<ServiceStatus> {
    let mut running: Vec<_> = found(state).into_iter().filter_map(|(_, status)| status).collect();
    running.retain(|status| status.process.exists());
    running.sort_by_key(|status| status.process);
    running
}

/// Returns the files with a status, and their contents if they are complete.
fn found(state: &Path) -> Vec<(PathBuf, Option<ServiceStatus>)> {
    let Ok(entries) = fs::read_dir(state) else { return Vec::new() };
    let is_status = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
    let files = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_status));
    let with_status = |path: PathBuf| {
        let status = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        (path, status)
    };
    files.map(|entry| with_status(entry.path())).collect()
}

/// Removes the status of processes that were killed.
pub fn remove_stale(state: &Path) {
    for (path, status) in found(state) {
        if status.is_none_or(|status| !status.process.exists()) {
            // Another process may do so, too.
            let _removed = fs::remove_file(path);
        }
    }
}

/// Returns the folder of the state of this user: `/run/pronto-coschedule` for root, else `pronto-coschedule` in the folder that
/// `XDG_RUNTIME_DIR` names, or `/tmp/pronto-coschedule-UID` without it.
#[must_use]
pub fn default_state() -> PathBuf {
    const NAME: &str = "pronto-coschedule";
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return Path::new("/run").join(NAME);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join(NAME));
    runtime.unwrap_or_else(|| std::env::temp_dir().join(format!("{NAME}-{uid}")))
}

impl ServiceStatus {
    fn of(coscheduler: Status) -> std::io::Result<Self> {
        Ok(Self { process: Stat::of(std::process::id())?.identity, coscheduler })
    }
}

#[expect(clippy::disallowed_methods, reason = "the periods of the coscheduler are real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::{ActuatorKind, Choice};
    use crate::settings::{Past, Policy};

    #[test]
    fn the_status_of_running_coschedulers_is_found() {
        let state = std::env::temp_dir().join(format!("pronto-service-{}", std::process::id()));
        let settings = Settings {
            policy: Policy::Predictive,
            period: Duration::from_millis(1),
            past: Past::Auto,
            most: Settings::MOST,
            sensor: Default::default(),
            actuator: Choice::Only(ActuatorKind::Slice),
            groups: Vec::new(),
            state: state.clone(),
        };
        let mut service = match Service::begin(settings) {
            Ok((service, _)) => service,
            Err(StartError::Actuator(ActuateError::NoSlices)) => {
                return pronto_skip::because("this kernel has no time slices of single threads");
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(service.work(), Vec::<String>::new());
        let found = running(&state);
        assert_eq!((found.len(), found[0].process.id), (1, std::process::id()));
        assert_eq!(found[0].coscheduler.policy, Policy::Predictive);
        // One that was killed: another process has its number.
        let mut dead = found[0].clone();
        dead.process.started += 1;
        fs::write(state.join("coschedule-0.json"), serde_json::to_vec(&dead).unwrap()).unwrap();
        fs::write(state.join("coschedule-1.json"), "{").unwrap();
        assert_eq!(running(&state), found);
        remove_stale(&state);
        assert!(!state.join("coschedule-0.json").exists() && !state.join("coschedule-1.json").exists());
        assert_eq!(running(&state), found);
        let (status, restored) = service.end().unwrap();
        assert_eq!((status.ticks, restored), (1, Restored::default()));
        assert_eq!(running(&state), []);
        fs::remove_dir_all(state).unwrap();
    }
}
