//! The pipes, the tokens in them, and the record of which pipe each token is in.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

/// The size of a token in bytes. A token is its number.
const TOKEN: usize = size_of::<u32>();

/// How many tokens fit into a pipe of one page. A new pipe has one page if the unprivileged user's pipes
/// already hold /proc/sys/fs/pipe-user-pages-soft pages (pipe(7)).
pub(super) const MOST_IN_A_PIPE: u32 = 4096 / TOKEN as u32;

/// The value in [`Tokens::pipe_of`] of a token that is in no pipe.
const NO_PIPE: u32 = u32::MAX;

/// Pipes and tokens.
///
/// A pipe has either no token or `writes` tokens. The tokens move among `active + 1` pipes, of which one is
/// empty. The tokens that are read from a pipe are written to the empty pipe, and the pipe is then the empty
/// one. So no pipe ever gets more than `writes` tokens, in whatever order the pipes are read.
pub(super) struct Tokens {
    readers: Vec<OwnedFd>,
    writers: Vec<OwnedFd>,
    /// The pipes that have tokens at first, spread evenly over all pipes.
    active: Vec<u32>,
    /// The pipe that gets the next tokens. `None` if all pipes are active: the tokens of a pipe are then
    /// written back to this pipe.
    empty: Option<u32>,
    /// How many tokens an active pipe has.
    writes: u32,
    /// For each token, the pipe that it was last written to, or [`NO_PIPE`].
    pipe_of: Vec<u32>,
    /// How many tokens have been passed on.
    passed: u64,
}

impl Tokens {
    /// Makes the pipes. Reads from the pipes block if `blocking`; writes never block.
    pub(super) fn open(
        pipes: u32,
        active: u32,
        writes: u32,
        blocking: bool,
    ) -> anyhow::Result<Tokens> {
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for number in 0..pipes {
            let (reader, writer) =
                rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                    .with_context(|| format!("cannot make pipe {number} of {pipes}"))?;
            rustix::io::ioctl_fionbio(&reader, !blocking)?;
            readers.push(reader);
            writers.push(writer);
        }
        let used = if active < pipes { active + 1 } else { active };
        let spread = |number| (u64::from(number) * u64::from(pipes) / u64::from(used)) as u32;
        let mut chosen: Vec<u32> = (0..used).map(spread).collect();
        let empty = if active < pipes { chosen.pop() } else { None };
        let pipe_of = chosen.iter().flat_map(|pipe| vec![*pipe; writes as usize]).collect();
        Ok(Tokens { readers, writers, active: chosen, empty, writes, pipe_of, passed: 0 })
    }

    /// How many pipes there are.
    pub(super) fn pipes(&self) -> usize {
        self.readers.len()
    }

    /// The highest descriptor that tokens are read from, plus 1.
    pub(super) fn bound(&self) -> u64 {
        let numbers = self.readers.iter().map(|fd| fd.as_raw_fd().unsigned_abs());
        numbers.max().map_or(0, |highest| u64::from(highest) + 1)
    }

    /// The read end of a pipe.
    pub(super) fn reader(&self, pipe: usize) -> BorrowedFd<'_> {
        self.readers[pipe].as_fd()
    }

    /// The size of a buffer for all tokens of a pipe, plus one byte. If a read leaves this byte free, the pipe
    /// is empty.
    pub(super) fn room(&self) -> usize {
        TOKEN * self.writes as usize + 1
    }

    /// How many pipes have tokens at any time.
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    /// How many tokens have been passed on.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Writes each token into its first pipe, by one write(2) per token.
    pub(super) fn put_in(&self) -> anyhow::Result<()> {
        for (token, pipe) in self.pipe_of.iter().enumerate() {
            self.write(token as u32, *pipe)?;
        }
        Ok(())
    }

    /// Writes a token into a pipe.
    fn write(&self, token: u32, pipe: u32) -> anyhow::Result<()> {
        let written = rustix::io::write(&self.writers[pipe as usize], &token.to_ne_bytes());
        let written = written.with_context(|| format!("cannot write to pipe {pipe}"))?;
        anyhow::ensure!(written == TOKEN, "{written} bytes of a token fit into pipe {pipe}");
        Ok(())
    }

    /// Reads a pipe's tokens into `buffer`, which has [`Tokens::room`] bytes, and passes the tokens on.
    /// Returns `false` if the pipe was empty.
    pub(super) fn read_and_pass(&mut self, pipe: usize, buffer: &mut [u8]) -> anyhow::Result<bool> {
        match rustix::io::read(&self.readers[pipe], &mut *buffer) {
            Ok(length) => self.pass(pipe, &buffer[..length]).map(|()| true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot read from pipe {pipe}")),
        }
    }

    /// Writes the tokens that were read from `pipe` to the empty pipe, by one write(2) per token.
    pub(super) fn pass(&mut self, pipe: usize, bytes: &[u8]) -> anyhow::Result<()> {
        if bytes.len() != self.room() - 1 {
            bail!("pipe {pipe} had {} bytes in place of {}", bytes.len(), self.room() - 1);
        }
        let pipe = pipe as u32;
        let next = match &mut self.empty {
            Some(empty) => std::mem::replace(empty, pipe),
            None => pipe,
        };
        for token in numbers(bytes) {
            self.take(token, pipe, next)?;
            self.write(token, next)?;
        }
        self.passed += u64::from(self.writes);
        Ok(())
    }

    /// Records that the tokens in `bytes` were read from `pipe` and are in no pipe now.
    pub(super) fn set_aside(&mut self, pipe: usize, bytes: &[u8]) -> anyhow::Result<()> {
        for token in numbers(bytes) {
            self.take(token, pipe as u32, NO_PIPE)?;
        }
        Ok(())
    }

    /// Records that a token was read from `pipe`, and that it goes to `next`.
    ///
    /// # Errors
    /// The token is unknown, or was not written to `pipe`.
    fn take(&mut self, token: u32, pipe: u32, next: u32) -> anyhow::Result<()> {
        let recorded = self.pipe_of.get_mut(token as usize);
        let recorded =
            recorded.with_context(|| format!("pipe {pipe} had an unknown token {token}"))?;
        if *recorded == NO_PIPE {
            bail!("token {token} came twice, the second time out of pipe {pipe}");
        }
        if *recorded != pipe {
            bail!("token {token} came out of pipe {pipe}, and was written to pipe {recorded}");
        }
        *recorded = next;
        Ok(())
    }

    /// Empties all pipes, and checks that each token was either set aside or in exactly the recorded pipe.
    ///
    /// # Errors
    /// A token is lost, came twice, or was in another pipe.
    pub(super) fn count(mut self) -> anyhow::Result<()> {
        let mut buffer = vec![0; self.room() * 2];
        for pipe in 0..self.pipes() {
            rustix::io::ioctl_fionbio(&self.readers[pipe], true)?;
            loop {
                match rustix::io::read(&self.readers[pipe], &mut buffer[..]) {
                    Ok(length) => self.set_aside(pipe, &buffer[..length])?,
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match self.pipe_of.iter().position(|pipe| *pipe != NO_PIPE) {
            Some(token) => {
                bail!("token {token} was written to pipe {} and is lost", self.pipe_of[token])
            }
            None => Ok(()),
        }
    }
}

/// The numbers of the tokens in `bytes`.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(TOKEN).map(|token| token.try_into().map_or(u32::MAX, u32::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(pipes: u32, active: u32, writes: u32) -> Tokens {
        let tokens = Tokens::open(pipes, active, writes, false).unwrap();
        tokens.put_in().unwrap();
        tokens
    }

    fn pass(tokens: &mut Tokens, pipe: usize) -> bool {
        let mut buffer = vec![0; tokens.room()];
        tokens.read_and_pass(pipe, &mut buffer).unwrap()
    }

    #[test]
    fn tokens_go_to_the_pipe_that_is_empty() {
        let mut tokens = tokens(9, 2, 3);
        assert_eq!((&tokens.active[..], tokens.empty), (&[0, 3][..], Some(6)));
        assert!(!pass(&mut tokens, 6));
        assert!(pass(&mut tokens, 3));
        assert!(pass(&mut tokens, 6) && !pass(&mut tokens, 6));
        assert_eq!((tokens.passed(), tokens.empty), (6, Some(6)));
        tokens.count().unwrap();
    }

    #[test]
    fn where_all_pipes_have_tokens_each_gets_its_own_back() {
        let mut tokens = tokens(2, 2, 1);
        assert!(pass(&mut tokens, 0) && pass(&mut tokens, 0) && pass(&mut tokens, 1));
        tokens.count().unwrap();
    }

    #[test]
    fn a_token_that_is_lost_is_missed() {
        let lost = tokens(4, 2, 1);
        rustix::io::read(&lost.readers[0], &mut [0; 4]).unwrap();
        let error = lost.count().unwrap_err().to_string();
        assert!(error.contains("token 0 was written to pipe 0 and is lost"), "{error}");
    }

    #[test]
    fn a_token_that_comes_twice_is_noticed() {
        let mut twice = tokens(4, 2, 1);
        twice.write(0, 3).unwrap();
        let mut buffer = vec![0; twice.room()];
        let error = twice.read_and_pass(3, &mut buffer).unwrap_err().to_string();
        assert!(error.contains("token 0 came out of pipe 3"), "{error}");
        let twice = tokens(4, 2, 1);
        twice.write(0, 3).unwrap();
        let error = twice.count().unwrap_err().to_string();
        assert!(error.contains("token 0 came twice"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_token_are_noticed() {
        let other = tokens(4, 2, 1);
        rustix::io::write(&other.writers[2], b"no").unwrap();
        assert!(other.count().is_err());
    }
}
