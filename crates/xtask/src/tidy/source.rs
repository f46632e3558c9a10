//! Separates code from comments and literals in a Rust file, so that a rule about code does not match prose.

/// Views of a Rust file. Each has the lines and columns of the file, and blanks instead of the other parts.
#[derive(Debug)]
pub(super) struct Source {
    /// All text except comments and the insides of literals.
    pub(super) code: String,
    /// Comments only.
    pub(super) comments: String,
    /// The insides of literals that contain a space.
    pub(super) texts: String,
}

impl Source {
    pub(super) fn read(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut source = Self { code: String::new(), comments: String::new(), texts: String::new() };
        let mut at = 0;
        while at < characters.len() {
            let (piece, end) = piece(&characters, at);
            let is_text = piece == Piece::Literal && characters[at..end].contains(&' ');
            for &character in &characters[at..end] {
                let blank = if character == '\n' { '\n' } else { ' ' };
                source.code.push(if piece == Piece::Code { character } else { blank });
                source.comments.push(if piece == Piece::Comment { character } else { blank });
                source.texts.push(if is_text { character } else { blank });
            }
            at = end;
        }
        source
    }

    /// Returns the insides of all attributes, `#[...]` and `#![...]`, each with its line number.
    pub(super) fn attributes(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        let mut line = 1;
        let bytes = self.code.as_bytes();
        for (at, &byte) in bytes.iter().enumerate() {
            line += usize::from(byte == b'\n');
            if byte != b'#' {
                continue;
            }
            let rest = self.code[at + 1..].trim_start();
            let rest = rest.strip_prefix('!').unwrap_or(rest).trim_start();
            if let Some(inside) = rest.strip_prefix('[') {
                found.push((line, bracketed(inside)));
            }
        }
        found
    }
}

/// Returns the words (identifiers and keywords) of a piece of code, each with its line number, counted from 1.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(line, text)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        text.split(move |c: char| !is_part(c))
            .filter(|word| !word.is_empty())
            .map(move |word| (line + 1, word))
    })
}

/// Returns the text before the bracket that closes an open one.
fn bracketed(inside: &str) -> &str {
    let mut depth = 1;
    for (at, character) in inside.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &inside[..at];
        }
    }
    inside
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Code,
    Comment,
    Literal,
}

/// Returns the kind of the piece that begins at `at`, and its end.
fn piece(text: &[char], at: usize) -> (Piece, usize) {
    let rest = &text[at..];
    match rest {
        ['/', '/', ..] => (Piece::Comment, at + until(rest, |r| r[0] == '\n')),
        ['/', '*', ..] => (Piece::Comment, at + block_comment(rest)),
        ['"', ..] => (Piece::Literal, at + 1 + quoted(&rest[1..], '"')),
        ['\'', '\\', ..] => (Piece::Literal, at + 1 + quoted(&rest[1..], '\'')),
        ['\'', _, '\'', ..] => (Piece::Literal, at + 3),
        ['r', next, ..] if matches!(next, '"' | '#') && starts_word(text, at) => match raw_string(rest) {
            Some(length) => (Piece::Literal, at + length),
            None => (Piece::Code, at + 1),
        },
        ['b' | 'c', 'r', ..] if starts_word(text, at) => match raw_string(&rest[1..]) {
            Some(length) => (Piece::Literal, at + 1 + length),
            None => (Piece::Code, at + 1),
        },
        _ => (Piece::Code, at + 1),
    }
}

/// Returns whether a word begins at `at` (the `r` of `for"` does not begin a raw string).
fn starts_word(text: &[char], at: usize) -> bool {
    at == 0 || !(text[at - 1].is_alphanumeric() || text[at - 1] == '_') || matches!(text[at - 1], 'b' | 'c')
}

/// Returns the number of characters before `end` holds.
fn until(text: &[char], end: impl Fn(&[char]) -> bool) -> usize {
    (0..text.len()).find(|&at| end(&text[at..])).unwrap_or(text.len())
}

/// Returns the length of a block comment, which may be nested.
fn block_comment(text: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of the inside of a quoted literal, with the closing quote.
fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != quote {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// Returns the length of a raw string that begins with `r`, or `None` for a raw identifier.
fn raw_string(text: &[char]) -> Option<usize> {
    let hashes = text[1..].iter().take_while(|c| **c == '#').count();
    if text.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let inside = &text[2 + hashes..];
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest[1..].len() >= hashes && rest[1..=hashes].iter().all(|c| *c == '#')
    };
    Some((2 + hashes + until(inside, closes) + 1 + hashes).min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::read(text).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(code("a // unsafe\nb"), "a b");
        assert_eq!(code("a /* x /* unsafe */ y */ b"), "a b");
        assert_eq!(code(r#"a("unsafe \" still", b)"#), "a( , b)");
        assert_eq!(code(r##"a(r#"un"safe"#, b)"##), "a( , b)");
        assert_eq!(code(r#"a(br"\", b'"', '\'', '"') b"#), "a( , b , , ) b");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("let r#type = 1;"), "let r#type = 1;");
        assert_eq!(code("for\"x\" y"), "for y");
    }

    #[test]
    fn unclosed_pieces_end_with_the_file() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'\\", "// abc"] {
            assert_eq!(Source::read(text).code.chars().count(), text.chars().count(), "{text}");
        }
    }

    #[test]
    fn comments_keep_their_lines() {
        let source = Source::read("a\n// b\nc // d\n");
        assert_eq!(words(&source.comments).collect::<Vec<_>>(), [(2, "b"), (3, "d")]);
        assert_eq!(words(&source.code).collect::<Vec<_>>(), [(1, "a"), (3, "c")]);
    }

    #[test]
    fn attributes_are_found_with_their_lines() {
        let source = Source::read("#![a(b[0])]\n\n# [c]\nfn f() { x[1] }\n// #[d]\n");
        assert_eq!(source.attributes(), [(1, "a(b[0])"), (3, "c")]);
    }
}
