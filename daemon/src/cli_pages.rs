//! Shell completions and manual pages, which each program writes for its package.
//!
//! Only the program knows its whole command line, so `pronto`, `prontod` and `pronto-bench` (which includes this file by its path)
//! call [`serve`] first: `PROGRAM cli-pages FOLDER` writes both and exits. The argument is not part of the clap command line,
//! because only `cargo xtask package` uses it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate_to};

/// The argument that requests the files.
const REQUEST: &str = "cli-pages";

/// The folders, below `share`, in which each shell searches for completions.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];
/// The folder, below `share`, of manual pages of programs.
const PAGES: &str = "man/man1";

/// Writes the files if the command line requests them, and returns the exit code of the program. Returns `None` otherwise.
pub(crate) fn serve(program: &'static str, command: impl FnOnce() -> Command) -> Option<ExitCode> {
    let folder = requested(std::env::args_os())?;
    Some(match write(program, &command(), Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    })
}

/// Returns the folder if the arguments are exactly `PROGRAM cli-pages FOLDER`.
fn requested(arguments: impl Iterator<Item = OsString>) -> Option<OsString> {
    let [_, word, folder] = <[OsString; 3]>::try_from(arguments.collect::<Vec<_>>()).ok()?;
    (word == REQUEST).then_some(folder)
}

/// Writes completions and manual pages of `command` below `folder`, with the layout of `share` of an installed program. Both
/// leave out subcommands that the help hides.
///
/// # Errors
/// If a folder or a file cannot be written.
fn write(program: &'static str, command: &Command, folder: &Path) -> io::Result<()> {
    let visible = visible(program, command);
    for (shell, place) in COMPLETIONS {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        generate_to(shell, &mut visible.clone(), program, &place)?;
    }
    let pages = folder.join(PAGES);
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(visible, pages)
}

/// Returns the command without hidden subcommands, which completions would name.
fn visible(program: &'static str, command: &Command) -> Command {
    let kept = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let mut visible = Command::new(program).args(command.get_arguments().cloned()).subcommands(kept);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(after) = command.get_after_help() {
        visible = visible.after_help(after.clone());
    }
    visible.version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Arg;

    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn visible_subcommands_have_pages_and_hidden_ones_have_none() {
        let folder = Folder(std::env::temp_dir().join(format!("pronto-cli-pages-{}", std::process::id())));
        let command = Command::new("tool")
            .about("Does it")
            .arg(Arg::new("loud").long("loud"))
            .subcommand(Command::new("shown").about("Shows").arg(Arg::new("far").long("far")))
            .subcommand(Command::new("secret").hide(true));
        write("tool", &command, &folder.0).expect("the temporary folder is writable");
        let read = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap_or_default();
        for name in [
            "bash-completion/completions/tool.bash",
            "zsh/site-functions/_tool",
            "fish/vendor_completions.d/tool.fish",
        ] {
            let text = read(name);
            assert!(
                text.contains("shown") && text.contains("far") && !text.contains("secret"),
                "{name}: {text}"
            );
        }
        assert!(read("man/man1/tool.1").contains("Does it") && read("man/man1/tool-shown.1").contains("far"));
        let pages = fs::read_dir(folder.0.join(PAGES)).expect("`write` created it");
        assert_eq!(pages.count(), 2);
    }

    #[test]
    fn only_the_exact_arguments_request_pages() {
        let requested = |words: &[&str]| requested(words.iter().map(OsString::from));
        assert_eq!(requested(&["tool", "cli-pages", "/there"]), Some("/there".into()));
        for words in [&["tool"][..], &["tool", "shown", "/there"], &["tool", "cli-pages"]] {
            assert_eq!(requested(words), None);
        }
    }
}
