//! Weights of control groups: `cpu.weight` (version 2) and `cpu.shares` (version 1).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pronto_sched_policy::policy::weight::Weight;

use super::{ActuateError, One, first_error};
use crate::group::gone_or;
use crate::journal::{Changes, ControlGroupBefore, Entry, Journal};
use crate::process::Identity;

/// The files, each with the largest weight that the kernel accepts there.
const FILES: [(&str, u64); 2] = [("cpu.weight", 10_000), ("cpu.shares", 262_144)];

#[derive(Debug, Default)]
pub(super) struct ControlGroups {
    groups: BTreeMap<PathBuf, Group>,
}

#[derive(Debug)]
struct Group {
    before: ControlGroupBefore,
    original: u64,
    most: u64,
    /// The weight of each process. The group has the largest one.
    weights: BTreeMap<Identity, Weight>,
    given: Weight,
}

impl ControlGroups {
    pub(super) fn set(
        &mut self,
        process: Identity,
        weight: Weight,
        folder: &Path,
        journal: &mut Journal,
    ) -> Result<bool, ActuateError> {
        if !self.groups.contains_key(folder) {
            if weight == Weight::ORDINARY {
                return Ok(false);
            }
            let group = Group::read(folder)?;
            if journal.of_others().groups.contains_key(&group.before.file) {
                return Err(ActuateError::Taken);
            }
            journal.write(&Entry::ControlGroup(group.before.clone()))?;
            self.groups.insert(folder.to_owned(), group);
        }
        let Some(group) = self.groups.get_mut(folder) else { return Ok(false) };
        group.weights.insert(process, weight);
        group.give()
    }

    /// Forgets processes that do not exist any more, and groups without any: such a group may be made again, with another weight. Goes on
    /// after a refusal, and returns the first.
    pub(super) fn retain(
        &mut self,
        processes: &BTreeMap<Identity, u32>,
        journal: &mut Journal,
    ) -> Result<(), ActuateError> {
        let mut result = Ok(());
        self.groups.retain(|_, group| {
            group.weights.retain(|process, _| processes.contains_key(process));
            let given = group.give();
            let is_restored = given.is_ok() && group.weights.is_empty();
            result = first_error(core::mem::replace(&mut result, Ok(())), given.map(drop));
            !is_restored
        });
        let groups: Vec<_> = self.groups.values().map(|group| group.before.clone()).collect();
        first_error(result, journal.compact(&BTreeMap::new(), &groups).map_err(Into::into))
    }

    pub(super) fn take(&mut self) -> Changes {
        let groups = core::mem::take(&mut self.groups).into_values().map(|group| group.before);
        Changes { groups: groups.map(|before| (before.file.clone(), before)).collect(), ..Changes::default() }
    }
}

impl Group {
    fn read(folder: &Path) -> Result<Self, ActuateError> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for (name, most) in FILES {
            let file = folder.join(name);
            let read = fs::read_to_string(&file).and_then(|text| {
                let original = text.trim().parse().map_err(io::Error::other)?;
                // Its own value, to learn now whether it may be written.
                fs::write(&file, text.trim())?;
                Ok((text.trim().to_owned(), original))
            });
            match read {
                Ok((text, original)) => {
                    let before = ControlGroupBefore { file, text };
                    let given = Weight::ORDINARY;
                    return Ok(Self { before, original, most, weights: BTreeMap::new(), given });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed = error,
            }
        }
        Err(ActuateError::ControlGroup(folder.to_owned(), failed))
    }

    /// Gives the group the largest weight of its processes. Returns whether that was a change.
    fn give(&mut self) -> Result<bool, ActuateError> {
        let weight = self.weights.values().max().copied().unwrap_or(Weight::ORDINARY);
        if weight == self.given {
            return Ok(false);
        }
        let value = self.original.saturating_mul(weight.as_hundredths().into())
            / u64::from(Weight::ORDINARY.as_hundredths());
        match fs::write(&self.before.file, value.min(self.most).to_string()) {
            Ok(()) => {}
            // The group was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ActuateError::ControlGroup(self.before.file.clone(), error)),
        }
        self.given = weight;
        Ok(true)
    }
}

/// Restores the weight of a control group, unless somebody else has set another one.
pub(super) fn restore(before: &ControlGroupBefore) -> One {
    let now = match gone_or(fs::read_to_string(&before.file)) {
        Ok(Some(now)) => now,
        Ok(None) => return One::Gone,
        Err(_) => return One::Refused,
    };
    let (Ok(now), Ok(original)) = (now.trim().parse::<u64>(), before.text.parse::<u64>()) else {
        return One::Left;
    };
    let most = original.saturating_mul(Weight::LIMIT.as_hundredths().into())
        / u64::from(Weight::ORDINARY.as_hundredths());
    if !(original..=most).contains(&now) {
        return One::Left;
    }
    match fs::write(&before.file, &before.text) {
        Ok(()) => One::Restored,
        Err(_) => One::Refused,
    }
}
