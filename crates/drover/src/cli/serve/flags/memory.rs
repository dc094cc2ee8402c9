//! Flags of `drover serve` about memory, and what the server uses by them: shares of one budget, and explicit sizes.

use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::bail;
use drover_mech::fileio::ReadMemory;
use drover_server::{MemoryBudget, MemoryUse};
use drover_sys::process::MemoryLimits;
use drover_usage::{UsageError, size};

use super::request::LIMITS;

/// The group of flags for caches in `drover serve --help`.
pub(in crate::cli::serve) const CACHE: &str = "Cache";

/// How much memory a server uses for what.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct MemoryFlags {
    /// Memory per worker for cached files: a size, 'off', or 'auto'
    ///
    /// 'auto' is a quarter of --memory for all workers together, and at most 64M for each.
    #[arg(help_heading = CACHE)]
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = cache)]
    cache: CacheFlag,

    /// Memory that the whole server may use: a size, or 'auto'
    ///
    /// Caches and buffers get shares of it unless they have a flag of their own. 'auto' is the least of the machine's memory,
    /// the limits of the cgroup and of those above it, and what RLIMIT_AS (ulimit -v) leaves.
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = memory)]
    memory: MemoryFlag,

    /// Memory of a process for the bytes that it reads from files, for all its connections
    ///
    /// At least 256K [default: an eighth of --memory for all processes together, and at most 256M for each]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    read_memory: Option<usize>,
}

/// The memory of a worker's cache, in bytes; `None`: its share.
#[derive(Clone, Copy, Debug)]
struct CacheFlag(Option<usize>);

/// The memory of a server, in bytes; `None`: as the limits allow.
#[derive(Clone, Copy, Debug)]
struct MemoryFlag(Option<usize>);

fn cache(text: &str) -> Result<CacheFlag, String> {
    match text {
        "auto" => Ok(CacheFlag(None)),
        size => size::parse_or_off(size)
            .map(|bytes| CacheFlag(Some(bytes)))
            .map_err(|reason| format!("{reason}, or auto")),
    }
}

fn memory(text: &str) -> Result<MemoryFlag, String> {
    match text {
        "auto" => Ok(MemoryFlag(None)),
        size => size::parse(size)
            .map(|bytes| MemoryFlag(Some(bytes)))
            .map_err(|reason| format!("{reason}, or auto")),
    }
}

/// The memory of a server: its limits, its budget, and what is used of it.
#[derive(Clone, Debug)]
pub(in crate::cli::serve) struct ServerMemory {
    /// What the kernel allows.
    pub(in crate::cli::serve) limits: MemoryLimits,
    pub(in crate::cli::serve) budget: MemoryBudget,
    /// The memory of each worker's cache, in bytes; 0: nothing is cached.
    pub(in crate::cli::serve) cache: usize,
    /// The memory of each process for reads, in bytes.
    pub(in crate::cli::serve) reads: u64,
    pub(in crate::cli::serve) workers: u64,
    pub(in crate::cli::serve) processes: u64,
    flags: MemoryFlags,
}

impl MemoryFlags {
    /// What `workers` in `processes` use.
    pub(in crate::cli::serve) fn of_server(
        &self,
        workers: NonZeroUsize,
        processes: NonZeroUsize,
    ) -> ServerMemory {
        self.within(MemoryLimits::of_this_process(), workers, processes)
    }

    fn within(
        &self,
        limits: MemoryLimits,
        workers: NonZeroUsize,
        processes: NonZeroUsize,
    ) -> ServerMemory {
        let all = self.memory.0.map(|bytes| bytes as u64);
        let all = all.or_else(|| limits.least(processes.get() as u64));
        let budget = MemoryBudget::new(all, workers, processes);
        let of = |share| usize::try_from(budget.of(share)).unwrap_or(usize::MAX);
        ServerMemory {
            limits,
            budget,
            cache: self.cache.0.unwrap_or_else(|| of(MemoryUse::Cache)),
            reads: self.read_memory.unwrap_or_else(|| of(MemoryUse::Reads)) as u64,
            workers: workers.get() as u64,
            processes: processes.get() as u64,
            flags: self.clone(),
        }
    }
}

impl ServerMemory {
    /// The memory that reads share.
    ///
    /// # Errors
    /// The user has asked for too little.
    pub(in crate::cli::serve) fn read_memory(&self) -> anyhow::Result<Arc<ReadMemory>> {
        if self.flags.read_memory.is_some() && self.reads < ReadMemory::LEAST {
            let least = ReadMemory::LEAST / 1024;
            bail!(UsageError::new(format!(
                "--read-memory {}: two reads need more; use {least}K or more",
                self.reads
            )));
        }
        Ok(ReadMemory::of(self.reads))
    }

    /// Whether nobody has said how much memory the cache has, or the reads have.
    pub(in crate::cli::serve) fn is_share(&self, of: MemoryUse) -> bool {
        match of {
            MemoryUse::Cache => self.flags.cache.0.is_none(),
            MemoryUse::Reads => self.flags.read_memory.is_none(),
            _ => true,
        }
    }

    /// Whether the user has said how much memory there is.
    pub(in crate::cli::serve) fn is_given(&self) -> bool {
        self.flags.memory.0.is_some()
    }

    /// The budget for the command line of a worker process, which may not ask for limits any more.
    pub(in crate::cli::serve) fn word(&self) -> String {
        self.budget.all().map_or_else(|| "auto".to_owned(), |all| all.max(1).to_string())
    }

    /// What flags allow beyond the limits, and the remedy, in a sentence.
    pub(in crate::cli::serve) fn excess(&self) -> Option<String> {
        let limit = self.limits.least(self.processes)?;
        if let Some(asked) = self.flags.memory.0.filter(|asked| *asked as u64 > limit) {
            return Some(format!(
                "--memory {}: this server may use only {}; leave the flag out, or raise the limit",
                amount(asked as u64),
                amount(limit),
            ));
        }
        let caches =
            self.flags.cache.0.map_or(0, |_| (self.cache as u64).saturating_mul(self.workers));
        let reads = self.flags.read_memory.map_or(0, |_| self.reads.saturating_mul(self.processes));
        let asked = caches.saturating_add(reads);
        (asked > limit).then(|| {
            let flag = if caches >= reads { "--cache" } else { "--read-memory" };
            format!(
                "{flag}: with the other flags it allows {} for all workers, but this server may use only {}; leave {flag} out \
                 to get a share of that",
                amount(asked),
                amount(limit),
            )
        })
    }
}

/// An amount of memory, for people.
pub(in crate::cli::serve) fn amount(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        0x10_0000.. => format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.0} KiB", bytes as f64 / f64::from(1 << 10)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(flags: &[&str], cgroup: u64) -> ServerMemory {
        let command = <MemoryFlags as clap::Args>::augment_args(clap::Command::new("serve"));
        let matches = command.get_matches_from([&["serve"], flags].concat());
        let flags = <MemoryFlags as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        let limits = MemoryLimits { cgroup: Some(cgroup), ..MemoryLimits::default() };
        flags.within(limits, NonZeroUsize::new(2).unwrap(), NonZeroUsize::MIN)
    }

    #[test]
    fn amounts_have_the_unit_that_people_would_take() {
        assert_eq!([1 << 13, 64 << 20, 3 << 29].map(amount), ["8 KiB", "64 MiB", "1.5 GiB"]);
    }

    #[test]
    fn what_nobody_has_set_is_a_share_and_what_somebody_has_set_is_kept() {
        let sizes = |flags: &[&str]| {
            let memory = memory(flags, 100 * MIB);
            (memory.cache as u64, memory.reads)
        };
        assert_eq!(sizes(&[]), (25 * MIB / 2, 25 * MIB / 2));
        assert_eq!(sizes(&["--memory", "64M"]), (8 * MIB, 8 * MIB));
        assert_eq!(sizes(&["--cache", "off"]), (0, 25 * MIB / 2));
        assert_eq!(sizes(&["--cache", "64M", "--read-memory", "1M"]), (64 * MIB, MIB));
    }

    #[test]
    fn what_is_too_much_is_told_with_the_remedy() {
        let excess = |flags: &[&str]| memory(flags, 100 * MIB).excess().unwrap_or_default();
        assert_eq!(excess(&[]), "");
        assert_eq!(excess(&["--cache", "40M", "--memory", "100M"]), "");
        let told = excess(&["--cache", "64M"]);
        assert!(told.starts_with("--cache: ") && told.contains("128 MiB"), "{told}");
        assert!(told.contains("only 100 MiB; leave --cache out"), "{told}");
        let told = excess(&["--cache", "1M", "--read-memory", "101M"]);
        assert!(told.starts_with("--read-memory: "), "{told}");
        let told = excess(&["--memory", "1G"]);
        assert!(told.starts_with("--memory 1.0 GiB: this server may use only 100 MiB"), "{told}");
    }
}
