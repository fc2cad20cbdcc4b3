//! Floor 9: words in, words out, exit codes.

/// Runs the command line and gives the exit code.
pub fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match (args.next(), args.next()) {
        (Some(command), Some(dir)) if command == crate::harness::SHIM_COMMAND => crate::harness::shim(dir.as_ref()),
        _ => std::process::ExitCode::SUCCESS,
    }
}
