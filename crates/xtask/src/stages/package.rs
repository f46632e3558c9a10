//! Packs the programs as users get them, unpacks the archive, and uses what is in it; last, the demo that the README describes.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::package;
use crate::workspace::Workspace;

/// The budget is for packing and using the programs, which the stage `build` has built.
pub(super) const STAGE: Stage =
    Stage { name: "package", budget: minutes(1), quick: false, tools: package::TOOLS, plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    // Does nothing after the stage `build`. Alone, a slow build is not mistaken for a command that hangs while it packs.
    plan.command(CommandLine::cargo(package::build_arguments()));
    plan.command(CommandLine::cargo(package::library_arguments()));
    // Not with this program's own code: the command is what users run.
    plan.command(CommandLine::cargo(["xtask", "package"]));
    plan.check("the unpacked archive", package::check);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;

    #[test]
    fn the_archive_is_made_by_the_command_of_users_and_then_checked() {
        let plan = plan(&workspace(&[]), Effort::Bounded).unwrap();
        let steps: Vec<_> = plan.steps.iter().map(|step| step.work.to_string()).collect();
        assert_eq!(steps.len(), 4);
        assert!(steps[0].contains(" build --release --locked --features pronto-daemon/verbs"), "{steps:?}");
        assert!(steps[1].contains(" --package pronto-expedite-preload"), "{steps:?}");
        assert_eq!(steps[2..], ["cargo xtask package", "the unpacked archive"]);
    }
}
