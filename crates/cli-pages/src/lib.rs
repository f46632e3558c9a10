//! Shell completions and manual pages of a program, written by the program itself when the packager asks for them.
//!
//! Only the program knows its whole command line, so each of ours asks [`serve`] first: `PROGRAM cli-pages FOLDER` writes both and ends.
//! The words are no part of the command line that clap knows: nobody but `cargo xtask package` says them.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate_to};

/// The word that asks for them.
pub const ASKED: &str = "cli-pages";

/// Where a shell looks for completions, below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];
/// The same of manual pages of programs.
const PAGES: &str = "man/man1";

/// What a program ends with that was asked for its pages; none if it was started for anything else.
pub fn serve(program: &'static str, command: impl FnOnce() -> Command) -> Option<ExitCode> {
    let folder = asked(std::env::args_os())?;
    Some(match write(program, &command(), Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    })
}

/// The folder, of a program that was started with exactly the word and that.
fn asked(arguments: impl Iterator<Item = OsString>) -> Option<OsString> {
    let [_, word, folder] = <[OsString; 3]>::try_from(arguments.collect::<Vec<_>>()).ok()?;
    (word == ASKED).then_some(folder)
}

/// Writes completions and manual pages of `command` below `folder`, as they lie below `share` of an installed program. What is
/// hidden from help has neither.
///
/// # Errors
/// If a folder or a file cannot be written.
pub fn write(program: &'static str, command: &Command, folder: &Path) -> io::Result<()> {
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

/// The command without hidden subcommands, which completions would name.
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
    fn what_is_shown_has_pages_and_what_is_hidden_has_none() {
        let folder = Folder(std::env::temp_dir().join(format!("pronto-cli-pages-{}", std::process::id())));
        let command = Command::new("tool")
            .about("Does it")
            .arg(Arg::new("loud").long("loud"))
            .subcommand(Command::new("shown").about("Shows").arg(Arg::new("far").long("far")))
            .subcommand(Command::new("secret").hide(true));
        write("tool", &command, &folder.0).expect("a temporary folder can be written to");
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
        let pages = fs::read_dir(folder.0.join(PAGES)).expect("it was made");
        assert_eq!(pages.count(), 2);
    }

    #[test]
    fn only_its_own_words_ask_for_pages() {
        let asked = |words: &[&str]| asked(words.iter().map(OsString::from));
        assert_eq!(asked(&["tool", "cli-pages", "/there"]), Some("/there".into()));
        for words in [&["tool"][..], &["tool", "shown", "/there"], &["tool", "cli-pages"]] {
            assert_eq!(asked(words), None);
        }
    }
}
