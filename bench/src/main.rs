//! `pronto-bench`: runs one experiment and prints its table, or its one JSON object.

use std::process::ExitCode;

fn main() -> ExitCode {
    match pronto_bench::cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pronto-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
