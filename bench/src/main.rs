//! `pronto-bench`: runs one experiment and prints its table, or its one JSON object.

#[path = "../../daemon/src/cli_pages.rs"]
mod cli_pages;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = cli_pages::serve("pronto-bench", pronto_bench::cli::command) {
        return code;
    }
    match pronto_bench::cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pronto-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
