//! The failed tests of a command, from the output of `cargo test`, so that the end of a long run names them.

/// Number of output lines that are kept for each failed test.
const KEPT_LINES: usize = 30;

/// A failed test and the last lines of its output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedTest {
    pub(crate) name: String,
    pub(crate) output: Vec<String>,
}

/// Finds failed tests in output that arrives line by line.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    found: Vec<FailedTest>,
    /// Whether the lines belong to the last failed test.
    is_inside: bool,
}

impl Collector {
    /// Takes the next line of the output. A test program prints `---- NAME stdout ----` and the output for each failed test, and then
    /// the list of their names after `failures:`.
    pub(crate) fn add(&mut self, line: &str) {
        let begun = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = begun {
            self.found.push(FailedTest { name: name.to_owned(), output: Vec::new() });
            self.is_inside = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.is_inside = false;
        } else if let Some(test) = self.found.last_mut().filter(|_| self.is_inside && !line.is_empty()) {
            if test.output.len() == KEPT_LINES {
                test.output.remove(0);
            }
            test.output.push(line.to_owned());
        }
    }

    /// Returns the failed tests, in the order of the output.
    pub(crate) fn found(self) -> Vec<FailedTest> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(output: &str) -> Vec<FailedTest> {
        let mut collector = Collector::default();
        output.lines().for_each(|line| collector.add(line));
        collector.found()
    }

    #[test]
    fn failed_tests_are_found_with_their_output() {
        let output = "\
running 3 tests
test good ... ok
test a::first ... FAILED
test b::second ... FAILED

failures:

---- a::first stdout ----

thread 'a::first' panicked at a.rs:7:
left is not right

---- b::second stdout ----
no reply

failures:
    a::first
    b::second

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
   Running tests/other.rs";
        let test = |name: &str, output: &[&str]| FailedTest {
            name: name.to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        };
        let first = test("a::first", &["thread 'a::first' panicked at a.rs:7:", "left is not right"]);
        assert_eq!(found(output), [first, test("b::second", &["no reply"])]);
        assert_eq!(found("test good ... ok"), []);
    }

    #[test]
    fn of_a_long_output_the_end_is_kept() {
        let lines: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let found = found(&format!("---- talkative stdout ----\n{lines}failures:\n    talkative\n"));
        assert_eq!(found[0].output.len(), KEPT_LINES);
        assert_eq!(found[0].output[KEPT_LINES - 1], "line 99");
    }
}
