//! Copies kernel modules and their dependencies from Debian's package of all modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cpio::Tree;
use super::progress::output;

/// Sections that are removed from modules, because the time for loading depends on the size under emulation. The signature is
/// removed as well, which only taints the kernel.
const STRIPPED: &[&str] = &["--strip-debug", "--remove-section=.BTF", "--remove-section=.BTF.base"];

/// Files next to the modules that modprobe reads.
const INDEXES: &[&str] = &["modules.builtin", "modules.builtin.modinfo", "modules.order"];

/// Adds the modules `names` and their dependencies to the tree, and returns the number of modules. `root` contains the unpacked
/// package, `scratch` is a folder for intermediate files.
///
/// # Errors
/// The kernel has no such module.
pub(super) fn add(
    root: &Path,
    release: &str,
    names: &[String],
    scratch: &Path,
    tree: &mut Tree,
) -> Result<usize> {
    let source = root.join("usr/lib/modules").join(release);
    let stage = scratch.join("modules");
    let folder = stage.join("lib/modules").join(release);
    std::fs::create_dir_all(&folder)?;
    let builtin = std::fs::read_to_string(source.join("modules.builtin"))
        .with_context(|| format!("{} contains no modules", source.display()))?;
    for index in INDEXES {
        if source.join(index).exists() {
            std::fs::copy(source.join(index), folder.join(index))?;
        }
    }
    let builtin: BTreeSet<_> = builtin.lines().map(|line| name_of(Path::new(line))).collect();
    let mut files = BTreeMap::new();
    walk(&source, &mut |file| {
        files.insert(name_of(file), file.to_owned());
    })?;

    let mut wanted: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
    let mut placed = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if placed.contains_key(&name) || builtin.contains(&name) {
            continue;
        }
        let file = files.get(&name).with_context(|| format!("the kernel has no module {name}"))?;
        let inside = file.strip_prefix(&source).expect("the file is below it").with_extension("");
        let to = if inside.extension().is_some() {
            folder.join(inside)
        } else {
            folder.join(inside).with_extension("ko")
        };
        unpack(file, &to)?;
        let bytes = std::fs::read(&to)?;
        wanted.extend(depends(&bytes));
        placed.insert(name, to);
    }
    output(Command::new("depmod").arg("-b").arg(&stage).arg(release))?;
    walk_all(&folder, &mut |file| {
        let inside = file.strip_prefix(&stage).expect("the file is below it");
        tree.copy(file, &format!("usr/{}", inside.display()))
    })?;
    Ok(placed.len())
}

fn unpack(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to.parent().context("a module has a parent folder")?)?;
    if from.extension().is_some_and(|extension| extension == "xz") {
        let unpacked = Command::new("xz").arg("-dc").arg(from).stdout(std::fs::File::create(to)?).status()?;
        anyhow::ensure!(unpacked.success(), "xz could not unpack {}", from.display());
    } else {
        std::fs::copy(from, to)?;
    }
    output(Command::new("objcopy").args(STRIPPED).arg(to))?;
    Ok(())
}

/// Returns the module's name, as the kernel writes it.
fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().replace('-', "_")
}

/// Returns the dependencies that a module declares: `depends=a,b` among the strings of its .modinfo.
fn depends(module: &[u8]) -> Vec<String> {
    module
        .split(|byte| *byte == 0)
        .find_map(|text| text.strip_prefix(b"depends="))
        .map(|list| String::from_utf8_lossy(list).into_owned())
        .unwrap_or_default()
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Visits every module in a folder and the folders below it.
fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) -> Result<()> {
    walk_all(folder, &mut |file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if [".ko", ".ko.xz"].iter().any(|ending| name.ends_with(ending)) {
            visit(file);
        }
        Ok(())
    })
}

fn walk_all(folder: &Path, visit: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.symlink_metadata()?.is_dir() {
            walk_all(&path, visit)?;
        } else if path.is_file() {
            visit(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_declares_its_dependencies() {
        assert_eq!(
            depends(b"\0license=GPL\0depends=ib-core,udp_tunnel\0name=x\0"),
            ["ib_core", "udp_tunnel"]
        );
        assert!(depends(b"license=GPL\0depends=\0").is_empty());
        assert!(depends(b"").is_empty());
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(name_of(Path::new("kernel/net/sched/sch_netem.ko.xz")), "sch_netem");
        assert_eq!(name_of(Path::new("kernel/crypto/crc32c-intel.ko")), "crc32c_intel");
    }
}
