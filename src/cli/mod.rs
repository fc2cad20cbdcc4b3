//! Floor 9: words in, words out, exit codes.

/// Runs the command line and gives the exit code.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
