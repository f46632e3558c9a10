//! Headers of `kernel/scx` in a program of user space.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A compiled program.
pub(crate) struct Compiled(PathBuf);

impl Compiled {
    /// Compiles a program that includes such headers. Rust links with the same compiler.
    pub(crate) fn new(name: &str, source: &str) -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scx-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
        fs::write(&file, source).unwrap();
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/scx");
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(headers);
        assert!(compile.arg("-o").arg(&program).arg(&file).status().unwrap().success());
        Self(program)
    }

    /// Returns the output of the program with these arguments and this input.
    pub(crate) fn output<const N: usize>(&self, arguments: [u64; N], input: &str) -> String {
        let mut program = Command::new(&self.0)
            .args(arguments.map(|argument| argument.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        program.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap()
    }
}
