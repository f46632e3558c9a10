//! Huge pages: reserved ones, and those that the kernel collects by itself.

use super::finding::Finding;
use super::machine::Machine;

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    vec![transparent(machine), reserved(machine)]
}

fn transparent(machine: &Machine) -> Finding {
    const SUBJECT: &str = "huge pages";
    const FOLDER: &str = "sys/kernel/mm/transparent_hugepage";
    match machine.chosen(&format!("{FOLDER}/enabled")).as_deref() {
        Some("always") => Finding::note(
            SUBJECT,
            "the kernel collects all memory into huge pages, and a thread that touches it meanwhile waits",
            "prontod disables this for itself; a program that embeds a node should do so, too (prctl PR_SET_THP_DISABLE), \
             or: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(mode) => Finding::ok(SUBJECT, format!("transparent huge pages: {mode}")),
        None => Finding::ok(SUBJECT, "this kernel has no transparent huge pages"),
    }
}

fn reserved(machine: &Machine) -> Finding {
    const SUBJECT: &str = "huge pages";
    let info = machine.text("proc/meminfo").unwrap_or_default();
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    match (value("HugePages_Total:"), value("HugePages_Free:")) {
        (Some(0) | None, _) => Finding::ok(SUBJECT, "none reserved, and Pronto needs none"),
        (Some(total), free) => Finding::ok(
            SUBJECT,
            format!("{total} reserved, {} of them free; Pronto uses none", free.unwrap_or(0)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn huge_pages_for_all_memory_are_noted() {
        let enabled = |mode: &str| {
            let files = [("sys/kernel/mm/transparent_hugepage/enabled", mode)];
            transparent(&Machine::recorded("thp", &files)).level
        };
        assert_eq!(enabled("[always] madvise never"), Level::Note);
        assert_eq!(enabled("always [madvise] never"), Level::Ok);
    }

    #[test]
    fn reserved_pages_are_counted() {
        let files = [("proc/meminfo", "MemTotal: 1 kB\nHugePages_Total:      16\nHugePages_Free:        9")];
        assert!(reserved(&Machine::recorded("reserved", &files)).text.starts_with("16 reserved, 9 of"));
    }
}
