//! The files that the kernel module includes name their licence, as the kernel requires of each of its sources.

use std::fs;
use std::path::Path;

#[test]
fn each_file_of_the_policy_names_its_licence() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let licence = concat!("// SPDX-License-Identifier: ", env!("CARGO_PKG_LICENSE"), "\n");
        assert!(text.starts_with(licence), "{}", path.display());
        count += 1;
    }
    assert!(count > 5, "only {count} files");
}
