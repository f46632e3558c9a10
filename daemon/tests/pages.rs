//! The manual pages and completions that both programs write for the package.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Collects the files below a folder, by their paths from `below`.
fn files(folder: &Path, below: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            files(&path, below, found);
        } else {
            let name = path.strip_prefix(below).expect("the file is below it").display().to_string();
            assert!(fs::metadata(&path).is_ok_and(|file| file.len() > 0), "{name} is empty");
            found.insert(name);
        }
    }
}

#[test]
fn both_programs_write_pages_for_their_visible_commands() {
    let folder = std::env::temp_dir().join(format!("pronto-pages-{}", std::process::id()));
    for program in [env!("CARGO_BIN_EXE_pronto"), env!("CARGO_BIN_EXE_prontod")] {
        let status = Command::new(program).arg("cli-pages").arg(&folder).status();
        assert!(status.expect("a program that cargo built").success());
    }
    let mut found = BTreeSet::new();
    files(&folder, &folder, &mut found);
    let page = fs::read_to_string(folder.join("man/man1/prontod.1")).unwrap_or_default();
    fs::remove_dir_all(&folder).expect("the folder belongs to this test");
    let pages = [
        "pronto",
        "pronto-coschedule",
        "pronto-coschedule-restore",
        "pronto-coschedule-run",
        "pronto-coschedule-top",
        "pronto-demo",
        "pronto-doctor",
        "pronto-expedite",
        "pronto-expedite-flag",
        "pronto-expedite-run",
        "pronto-expedite-scx",
        "pronto-expedite-top",
        "pronto-expedite-wakeups",
        "pronto-ping",
        "pronto-status",
        "pronto-trust",
        "pronto-trust-init",
        "pronto-trust-issue",
        "pronto-trust-key",
        "pronto-trust-revoke",
        "pronto-trust-show",
        "pronto-waiting",
        "prontod",
    ];
    let mut expected: BTreeSet<_> = pages.iter().map(|page| format!("man/man1/{page}.1")).collect();
    for program in ["pronto", "prontod"] {
        expected.insert(format!("bash-completion/completions/{program}.bash"));
        expected.insert(format!("zsh/site-functions/_{program}"));
        expected.insert(format!("fish/vendor_completions.d/{program}.fish"));
    }
    assert_eq!(found, expected);
    assert!(page.contains("drain") && page.contains("configuration"), "{page}");
}
