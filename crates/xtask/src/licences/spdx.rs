//! SPDX licence expressions: whether the allowed licences satisfy one.
//!
//! Grammar: SPDX specification 2.3, annex D. Old crates use `/` for `OR`.

use anyhow::{Result, bail};

/// Returns whether `expression` holds if exactly the terms that `allowed` accepts hold. A term is a licence identifier, with its
/// exception if there is one (`Apache-2.0 WITH LLVM-exception`).
///
/// # Errors
/// The expression is malformed.
pub(super) fn satisfied(expression: &str, allowed: impl Fn(&str) -> bool) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let holds = any(&mut tokens, &allowed)?;
    match tokens.next() {
        None => Ok(holds),
        Some(token) => bail!("unexpected `{token}`"),
    }
}

type Tokens<'a> = core::iter::Peekable<core::str::SplitWhitespace<'a>>;

fn any(tokens: &mut Tokens<'_>, allowed: &impl Fn(&str) -> bool) -> Result<bool> {
    let mut holds = all(tokens, allowed)?;
    while tokens.next_if_eq(&"OR").is_some() {
        holds |= all(tokens, allowed)?;
    }
    Ok(holds)
}

fn all(tokens: &mut Tokens<'_>, allowed: &impl Fn(&str) -> bool) -> Result<bool> {
    let mut holds = term(tokens, allowed)?;
    while tokens.next_if_eq(&"AND").is_some() {
        holds &= term(tokens, allowed)?;
    }
    Ok(holds)
}

fn term(tokens: &mut Tokens<'_>, allowed: &impl Fn(&str) -> bool) -> Result<bool> {
    match tokens.next() {
        Some("(") => {
            let holds = any(tokens, allowed)?;
            if tokens.next() != Some(")") {
                bail!("a parenthesis is not closed");
            }
            Ok(holds)
        }
        None | Some("AND" | "OR" | "WITH" | ")") => bail!("a licence is missing"),
        Some(licence) if tokens.next_if_eq(&"WITH").is_some() => match tokens.next() {
            Some(exception) => Ok(allowed(&format!("{licence} WITH {exception}"))),
            None => bail!("an exception is missing"),
        },
        Some(licence) => Ok(allowed(licence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(expression: &str) -> bool {
        satisfied(expression, |term| ["MIT", "Apache-2.0", "X WITH Y"].contains(&term)).unwrap()
    }

    #[test]
    fn or_needs_one_term_and_needs_all() {
        assert!(holds("MIT"));
        assert!(holds("GPL-3.0 OR MIT"));
        assert!(holds("GPL-3.0/MIT"));
        assert!(!holds("GPL-3.0 AND MIT"));
        assert!(holds("(MIT OR GPL-3.0) AND Apache-2.0"));
        assert!(!holds("(MIT OR Apache-2.0) AND GPL-3.0"));
        assert!(holds("GPL-3.0 AND BSD OR MIT"));
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        assert!(holds("X WITH Y"));
        assert!(!holds("X"));
        assert!(!holds("MIT WITH Z"));
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH", "AND MIT"] {
            assert!(satisfied(expression, |_| true).is_err(), "{expression}");
        }
    }
}
