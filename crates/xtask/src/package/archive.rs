//! A reproducible compressed archive of a folder, and its checksum.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The files that were created.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) file: PathBuf,
    /// A file with a line for `sha256sum --check`.
    pub(super) checksum: PathBuf,
}

/// Packs `folder` into `FOLDER.tar.gz` in the same parent folder. Names are sorted, the owner is root, and all times are `time`
/// (seconds since 1970), so equal contents give equal archives.
///
/// # Errors
/// tar, gzip or sha256sum is missing or fails.
pub(super) fn pack(folder: &Path, time: u64) -> Result<Archive> {
    let place = folder.parent().context("the folder has a parent")?;
    let name = folder.file_name().and_then(|name| name.to_str()).context("the folder has a name")?;
    let file = format!("{name}.tar.gz");
    let tar = Command::new("tar")
        .current_dir(place)
        .args([
            "--sort=name",
            "--owner=root:0",
            "--group=root:0",
            "--mode=u+rw,go+r,go-w,a+X",
            "--format=ustar",
        ])
        .arg(format!("--mtime=@{time}"))
        .args(["--use-compress-program=gzip -n -9", "-cf", &file, name])
        .stdin(Stdio::null())
        .status()
        .context("cannot start tar")?;
    ensure!(tar.success(), "tar cannot pack {}", folder.display());
    let sum =
        Command::new("sha256sum").current_dir(place).arg(&file).output().context("cannot start sha256sum")?;
    ensure!(sum.status.success(), "sha256sum cannot read {file}");
    let checksum = place.join(format!("{file}.sha256"));
    std::fs::write(&checksum, sum.stdout).with_context(|| format!("cannot write {}", checksum.display()))?;
    Ok(Archive { file: place.join(file), checksum })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::stage;
    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A substitute for a program, which writes its manual page.
    const PROGRAM: &str = "#!/bin/sh\n[ \"$1\" = cli-pages ] && mkdir -p \"$2/man/man1\" && echo page > \"$2/man/man1/${0##*/}.1\"\n";

    fn stdout(command: &mut Command) -> String {
        let output = command.output().expect("the program exists on every system");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("the output is text")
    }

    fn packed(place: &Path, program: &Path) -> Archive {
        let folder = place.join("pronto-1");
        let _ = fs::remove_dir_all(&folder);
        stage::programs(&[program.to_owned()], &folder).expect("the program writes its page");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        stage::documents(&root, "whose work this is", &folder).expect("the documents exist");
        pack(&folder, 1_000_000_000).expect("tar exists on every system")
    }

    #[test]
    fn an_archive_has_all_parts_and_a_checksum() {
        let place = Folder(std::env::temp_dir().join(format!("pronto-package-{}", std::process::id())));
        fs::create_dir_all(&place.0).expect("the temporary folder is writable");
        let program = place.0.join("prontod");
        fs::write(&program, PROGRAM).expect("the temporary folder is writable");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700))
            .expect("the file belongs to this test");

        let Archive { file, checksum } = packed(&place.0, &program);
        let list = stdout(Command::new("tar").arg("-tvzf").arg(&file));
        for (mode, name) in [
            ("-rwxr-xr-x", "bin/prontod"),
            ("-rw-r--r--", "share/man/man1/prontod.1"),
            ("-rw-r--r--", "README.md"),
            ("-rw-r--r--", "LICENSE-MIT"),
            ("-rw-r--r--", "LICENSE-APACHE"),
            ("-rw-r--r--", "THIRD-PARTY.txt"),
            ("-rw-r--r--", "docs/operations.md"),
            ("-rw-r--r--", "docs/decisions/0001"),
        ] {
            let line = list.lines().find(|line| line.contains(&format!(" pronto-1/{name}")));
            assert!(
                line.is_some_and(|line| line.starts_with(mode) && line.contains("root/root")),
                "{name}:\n{list}"
            );
        }
        let check = |checksum: &Path| {
            let mut command = Command::new("sha256sum");
            command.current_dir(&place.0).arg("--check").arg("--quiet").arg(checksum);
            command.output().expect("the program exists on every system").status.success()
        };
        assert!(check(&checksum));

        let first = fs::read(&file).expect("the archive exists");
        packed(&place.0, &program);
        assert_eq!(fs::read(&file).expect("the archive exists"), first, "equal contents give equal archives");
        fs::write(&file, b"else").expect("the temporary folder is writable");
        assert!(!check(&checksum), "the checksum detects the change");
    }
}
