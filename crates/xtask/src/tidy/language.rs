//! Plain English: idioms that a native reader has to parse twice, in comments, documentation and texts for users.

use super::Tree;
use super::source::{self, Source};

/// A phrase and what to write in its place. Upper and lower case are alike.
const PHRASES: &[(&str, &str)] = &[
    ("so many", "write a number, `n` or the parameter's name"),
    ("so much", "write a quantity and its unit"),
    ("so often", "write how often"),
    ("so long", "write a time, or `as long as`"),
    ("such a time", "write a time"),
    ("processor", "write CPU"),
    ("processors", "write CPUs"),
    ("beside", "write next to, concurrently with, or with"),
    ("besides", "write also, other than, or apart from"),
    ("in vain", "write without success, or unsuccessful"),
    ("to be had", "write available"),
    ("at once", "write immediately, or at the same time"),
    ("whoever", "name the actor"),
    ("whomever", "name the actor"),
];

/// Parts of a name that are idioms, and what to use in their place.
const NAME_PARTS: &[(&str, &str)] = &[
    ("who", "name the actor"),
    ("whoever", "name the actor"),
    ("so_many", "name the quantity"),
    ("so_long", "name the time"),
    ("so_often", "name the rate"),
    ("at_once", "use `immediately`, or `concurrently`"),
    ("in_vain", "use `empty`, or `unsuccessful`"),
    ("beside", "use `next_to`, or `with`"),
    ("besides", "use `other`"),
    ("told", "use `notified`, or `acked`"),
    ("processor", "use `cpu`"),
    ("processors", "use `cpus`"),
];

/// Keywords whose next word is a new name.
const DEFINES: &[&str] = &["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

/// After these words a clause with `who` describes a person.
const PEOPLE: &[&str] = &[
    "anyone",
    "author",
    "authors",
    "developer",
    "developers",
    "engineer",
    "engineers",
    "operator",
    "operators",
    "people",
    "person",
    "programmer",
    "programmers",
    "reader",
    "readers",
    "researcher",
    "researchers",
    "someone",
    "those",
    "user",
    "users",
];

/// Where a phrase is right: the beginning of the path, and the phrase.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The rule itself, and its tests.
    ("crates/xtask/src/tidy/language.rs", ""),
    // A word that `bench/peers/c/overlap.c` prints, and a value in JSON results.
    ("bench/src/rendezvous/mpi.rs", "beside"),
    // A key of the configuration.
    ("crates/node/src/config/shape.rs", "who"),
];

/// Comments, documentation and texts for users are free of the idioms above.
pub(super) fn plain(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree {
        for Finding { line, phrase, advice } in in_file(path, text) {
            let excepted = |(place, word): &(&str, &str)| {
                path.starts_with(place) && (word.is_empty() || *word == phrase)
            };
            if !EXCEPTIONS.iter().any(excepted) {
                findings.push(format!("{path}:{line}: `{phrase}`; {advice}"));
            }
        }
    }
    findings
}

/// An idiom in a file.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    phrase: String,
    advice: &'static str,
}

fn in_file(path: &str, text: &str) -> Vec<Finding> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "rs" => {
            let source = Source::read(text);
            let mut found = in_prose(&source.comments, Prose::Comments);
            found.extend(in_prose(&source.texts, Prose::Texts));
            found.extend(in_names(&source.code));
            found
        }
        "md" => in_prose(&without_code_blocks(text), Prose::Page),
        "toml" | "sh" | "yml" => in_prose(&after_marks(text, "#"), Prose::Comments),
        "c" | "h" => in_prose(&Source::read(text).comments, Prose::Comments),
        _ => Vec::new(),
    }
}

/// Idioms in the names that Rust code defines.
fn in_names(code: &str) -> Vec<Finding> {
    let words: Vec<_> = source::words(code).collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let [(_, keyword), (line, name)] = pair else { continue };
        if !DEFINES.contains(keyword) {
            continue;
        }
        let padded = format!("_{}_", snake_case(name));
        for (part, advice) in NAME_PARTS {
            if padded.contains(&format!("_{part}_")) {
                found.push(Finding { line: *line, phrase: (*name).to_owned(), advice });
            }
        }
    }
    found
}

/// Returns `a_name` of `AName`, and other names in lower case.
fn snake_case(name: &str) -> String {
    let is_camel = name.contains(|c: char| c.is_lowercase());
    let mut snake = String::new();
    for c in name.chars() {
        if is_camel && c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prose {
    Comments,
    /// The insides of literals.
    Texts,
    Page,
}

/// A word of a piece of prose.
struct Word {
    line: usize,
    text: String,
    begins_sentence: bool,
    /// The word begins a comment or documentation, or a paragraph.
    begins_block: bool,
}

fn in_prose(text: &str, prose: Prose) -> Vec<Finding> {
    let (words, questions) = words(text, prose);
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let mut find = |phrase: &str, advice| {
            found.push(Finding { line: word.line, phrase: phrase.into(), advice });
        };
        let next = words.get(at + 1).filter(|next| !next.begins_sentence);
        let pair = next.map(|next| format!("{} {}", word.text, next.text));
        for (phrase, advice) in PHRASES {
            if *phrase == word.text || pair.as_deref() == Some(*phrase) {
                find(phrase, advice);
            }
        }
        let before = at.checked_sub(1).filter(|_| !word.begins_sentence).map(|at| words[at].text.as_str());
        if word.text == "who" && !before.is_some_and(|before| PEOPLE.contains(&before)) && !questions[at] {
            find("who", "name the actor: the thread, the caller, the peer that ...");
        }
        if matches!(word.text.as_str(), "what" | "whatever") && word.begins_sentence && !questions[at] {
            find("what", "begin the sentence with a noun");
        }
        if prose == Prose::Comments && word.begins_block && pair.as_deref() == Some("the same") {
            find("the same", "a documentation comment makes sense alone; begin with a verb or a noun");
        }
        let negates = pair.as_deref().is_some_and(|pair| ["is no", "are no", "was no"].contains(&pair));
        if prose == Prose::Texts && negates {
            find("is no", "say what is wrong, the value, and what to do");
        }
    }
    found
}

/// The words of a piece of prose in lower case, without code in back quotes; and for each whether its sentence is a question.
fn words(text: &str, prose: Prose) -> (Vec<Word>, Vec<bool>) {
    let (mut words, mut questions) = (Vec::<Word>::new(), Vec::new());
    let (mut begins_sentence, mut begins_block, mut in_code) = (true, true, false);
    for (number, line) in text.lines().enumerate() {
        let marks = ['/', '!', '*', '#', '>', '|', '-', ' ', '\t'];
        let content = line.trim_start_matches(marks);
        if content.trim().is_empty() {
            (begins_sentence, begins_block, in_code) = (true, true, false);
            continue;
        }
        let starts_anew = prose == Prose::Page && content.len() != line.trim_start().len();
        begins_sentence |= starts_anew;
        for piece in content.split_inclusive([' ', '\t']) {
            let piece = piece.trim();
            let code = in_code || piece.contains('`');
            in_code ^= piece.matches('`').count() % 2 == 1;
            let bare = piece.trim_matches(|c: char| !c.is_alphanumeric());
            if !bare.is_empty() && !code && !bare.contains(['_', ':', '(', '/']) {
                let text = bare.to_lowercase();
                words.push(Word { line: number + 1, text, begins_sentence, begins_block });
                questions.push(false);
            }
            if !bare.is_empty() || code {
                (begins_sentence, begins_block) = (false, false);
            }
            let last = piece.trim_end_matches(['"', ')', '*', '`', '\'']).chars().last();
            if matches!(last, Some('.' | '?' | '!' | ':' | ';' | '|')) {
                begins_sentence = true;
                if last == Some('?') {
                    let begun = words.iter().rposition(|word| word.begins_sentence).unwrap_or(0);
                    questions[begun..].fill(true);
                }
            }
        }
        if prose == Prose::Texts {
            (begins_sentence, in_code) = (true, false);
        }
    }
    (words, questions)
}

/// The page with its code blocks blank.
fn without_code_blocks(page: &str) -> String {
    let mut inside = false;
    let lines = page.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        if inside || fence { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What comes after a mark on each line.
fn after_marks(text: &str, mark: &str) -> String {
    let lines = text.lines().map(|line| line.split_once(mark).map_or("", |(_, comment)| comment));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        in_file(path, text).into_iter().map(|finding| finding.phrase).collect()
    }

    #[test]
    fn names_are_free_of_idioms() {
        assert_eq!(found("a.rs", "fn who_waits_polls() { let told = 1; }"), ["who_waits_polls"]);
        assert_eq!(found("a.rs", "struct SoMany; const PROCESSORS: u8 = 1;"), ["SoMany", "PROCESSORS"]);
        assert_eq!(found("a.rs", "fn whole() {}\nmod at_most;\nstruct Cpu;"), Vec::<String>::new());
    }

    #[test]
    fn an_actor_has_a_name() {
        assert_eq!(found("a.rs", "// Who waits polls."), ["who"]);
        assert_eq!(found("a.rs", "// It is given to who asks,\n// or whoever comes."), ["who", "whoever"]);
        assert_eq!(found("a.md", "What arrives is checked. A user who asks gets it. Who is that?"), ["what"]);
        assert!(found("a.rs", "// The node reads what is there: `who` is a name.").is_empty());
        assert!(found("a.rs", "fn name() {} // an operator who asks").is_empty());
    }

    #[test]
    fn quantities_and_terms_are_the_fields_own() {
        assert_eq!(found("a.rs", "// Waits so\n// long."), ["so long"]);
        assert_eq!(found("a.toml", "cpus = 2 # processors"), ["processors"]);
        assert_eq!(found("a.rs", "let a = \"no processor is free\";"), ["processor"]);
        assert_eq!(found("a.c", "/* beside it */ int beside;"), ["beside"]);
        assert!(found("a.md", "```\nso many\n```\nIt is. So\n").is_empty());
    }

    #[test]
    fn documentation_stands_alone_and_errors_help() {
        assert_eq!(found("a.rs", "/// The same for a peer.\nfn f() {}\n/// It is the same."), ["the same"]);
        assert_eq!(found("a.rs", "#[error(\"{0} is no bool\")]"), ["is no"]);
        assert!(found("a.rs", "// There is no more.\nlet a = \"there is none\";").is_empty());
    }

    #[test]
    fn findings_name_file_line_and_advice() {
        let tree = tree(&[("a.md", "\nin vain"), ("b.txt", "in vain")]);
        assert_eq!(plain(&tree), ["a.md:2: `in vain`; write without success, or unsuccessful"]);
    }
}
