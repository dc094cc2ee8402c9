//! The stdout of every command. Its reader may leave before the end.

use std::io::{self, ErrorKind, Write};

/// Locked stdout that hides one error: a pipe without a reader, as behind `
/// head`. Bytes for such a pipe are dropped and the command goes on, so that the exit status tells of the command's
/// work and not of its output. Any other error ends the command, and its message names stdout.
///
/// Commands write to stdout through this type only. A broken pipe that reaches [`main`](super::main) is therefore a
/// failure of something else: of a socket, or of a file.
pub(super) struct Stdout {
    out: io::StdoutLock<'static>,
    has_reader: bool,
}

/// Stdout for one command.
pub(super) fn stdout() -> Stdout {
    Stdout { out: io::stdout().lock(), has_reader: true }
}

impl Stdout {
    /// The result of one write, or `instead` if the pipe has no reader.
    fn or<T>(&mut self, result: io::Result<T>, instead: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.has_reader = false;
                Ok(instead)
            }
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                Err(io::Error::new(error.kind(), format!("cannot write to stdout: {error}")))
            }
            other => other,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.has_reader {
            return Ok(bytes.len());
        }
        let written = self.out.write(bytes);
        self.or(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.has_reader {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.or(flushed, ())
    }
}
