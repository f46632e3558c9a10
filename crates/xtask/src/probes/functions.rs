//! The functions of a source file, and the copy of the file with a probe at the beginning of each.
//!
//! The search relies on the formatting of rustfmt, which the stage `lint` checks.

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// The type of its `impl` block and its name, such as `Session::wait`, or only its name.
    pub(super) name: String,
    /// Number of its line, from one.
    pub(super) line: usize,
    /// Offset of its first byte behind the opening brace.
    body: usize,
    /// Offset of the keyword `const` in its signature.
    constant: Option<usize>,
}

/// Returns the functions of a file in their order, without those of its tests and of implementations of `Debug`.
pub(super) fn functions(source: &str) -> Vec<Function> {
    let end =
        ["\n#[cfg(test)]\nmod tests", "\n#[cfg(all(test"].iter().filter_map(|tests| source.find(tests)).min();
    let source = &source[..end.unwrap_or(source.len())];
    let (mut found, mut offset, mut block) = (Vec::new(), 0, None);
    for (line, text) in (1..).zip(source.split_inclusive('\n')) {
        if text.starts_with("impl") {
            block = Some(&source[offset..offset + source[offset..].find('{').unwrap_or(0)]);
        } else if text.starts_with('}') {
            block = None;
        }
        let is_debug = block.is_some_and(|block| block.contains("Debug for "));
        if let Some(signature) = signature(text)
            && !is_debug
            && let Some(body) = body(&source[offset..])
        {
            let name = match block.and_then(type_of) {
                Some(of) => format!("{of}::{}", signature.name),
                None => signature.name.to_owned(),
            };
            let constant = signature.constant.map(|at| offset + at);
            found.push(Function { name, line, body: offset + body, constant });
        }
        offset += text.len();
    }
    found
}

/// Returns the source with a probe in each of its `functions`, which have the numbers from `first`. Constant functions lose their
/// `const`, because a probe is not constant. Line numbers stay.
pub(super) fn with_probes(source: &str, functions: &[Function], first: usize) -> String {
    let (mut text, mut from) = (String::new(), 0);
    for (number, function) in (first..).zip(functions) {
        if let Some(constant) = function.constant {
            text += &source[from..constant];
            from = constant + "const ".len();
        }
        text += &source[from..function.body];
        text += &format!(" crate::probe::at({number});");
        from = function.body;
    }
    text + &source[from..]
}

/// The name of a function, and the offset of its keyword `const`, in the line of its keyword `fn`.
struct Signature<'a> {
    name: &'a str,
    constant: Option<usize>,
}

fn signature(line: &str) -> Option<Signature<'_>> {
    let text = line.trim_start();
    let (before, name) =
        if let Some(name) = text.strip_prefix("fn ") { ("", name) } else { text.split_once(" fn ")? };
    let is_modifier =
        |word: &str| word.starts_with("pub") || ["const", "unsafe", "async", "super)"].contains(&word);
    if !before.split_whitespace().all(is_modifier) {
        return None;
    }
    let constant = before.split_whitespace().any(|word| word == "const");
    let constant = constant.then(|| line.find("const ").expect("the word was found"));
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    Some(Signature { name, constant })
}

/// Returns the offset behind the opening brace of the body of the function that begins the text, or `None` if it has no body.
fn body(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Returns the name of the type in the header of an `impl` block.
fn type_of(header: &str) -> Option<&str> {
    let header = header.split("\nwhere").next()?.strip_prefix("impl")?;
    let after_generics = match header.strip_prefix('<') {
        Some(generics) => &generics[closing(generics)? + 1..],
        None => header,
    };
    let of = after_generics.rsplit(" for ").next()?.trim();
    of.split(|c: char| !c.is_alphanumeric() && c != '_').find(|word| !word.is_empty())
}

/// Returns the offset of the angle bracket that closes the first one before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
//! A file with fn in its text.
pub trait Sleeper {
    fn arm(&mut self) -> bool;
}

pub(super) fn free<T>(array: [u8; 4], run: impl FnOnce(&T) -> bool) -> bool {
    run(array)
}

impl<'a, Q: Queue<Item = fn(u8) -> u8>, X> Sleeper for Held<'a, Q, X>
where
    Q: Clone,
{
    pub const fn new(
        x: u8,
    ) -> Self {
        Self { x }
    }

    #[inline]
    fn none(&self) {}
}

impl core::fmt::Debug for Held {
    fn fmt(&self) {}
}

#[cfg(test)]
mod tests {
    fn tested() {}
}
";

    #[test]
    fn functions_with_bodies_are_found_with_their_types() {
        let found = functions(SOURCE);
        let names: Vec<_> = found.iter().map(|function| (function.name.as_str(), function.line)).collect();
        assert_eq!(names, [("free", 6), ("Held::new", 14), ("Held::none", 21)]);
    }

    #[test]
    fn each_function_begins_with_its_probe() {
        let probed = with_probes(SOURCE, &functions(SOURCE), 7);
        for part in [
            "-> bool { crate::probe::at(7);\n    run(array)",
            "    pub fn new(\n        x: u8,\n    ) -> Self { crate::probe::at(8);\n",
            "fn none(&self) { crate::probe::at(9);}\n",
            "    fn fmt(&self) {}",
            "    fn tested() {}",
        ] {
            assert!(probed.contains(part), "{part} in {probed}");
        }
        assert_eq!(probed.lines().count(), SOURCE.lines().count());
    }
}
