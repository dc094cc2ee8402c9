//! Where the files of an experiment are during its runs: pools on a real or a modelled disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use waiters::pinned_pages::PinnedPages;

use super::child::Supervised;
use super::disk::model::Model;
use super::experiment::{Disk, Experiment, Preset};
use super::pool::Pool;
use super::results::Ask;
use super::runner::Failure;
use ::lab::site::Gain;

/// How long mounting, or an answer of the disk, may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many small files there are beside cold ones.
const SMALL_FILES: u32 = 100;

/// The folder of the site in which the cold files are.
const COLD: &str = "cold";

/// How many files are read to find out what the disk gains.
const PROBED: usize = 64;

/// The pools of an experiment and where they are read from.
#[derive(Debug)]
pub struct Store {
    pools: BTreeMap<u64, Pool>,
    medium: Medium,
    /// Where a modelled disk is mounted.
    mountpoint: PathBuf,
    /// Small files beside the mounted ones, below one root.
    beside: Option<Site>,
}

/// A folder with small files and, in it, the modelled disk with others.
#[derive(Debug)]
struct Site {
    root: PathBuf,
    small: Pool,
    /// The small files stay in memory, whoever wants it back meanwhile: one that had to be read again
    /// would wait behind the cold ones.
    _held: Vec<PinnedPages>,
    cold_bytes: u64,
}

/// Where the files of a run are read from.
#[derive(Debug)]
enum Medium {
    /// The page cache.
    Memory,
    /// The disk that they are on.
    RealDisk,
    /// The modelled disk with these flags of `drover lab disk`.
    Model(Vec<String>),
}

impl Store {
    /// Makes the pools that `asks` need below `pools`, and finds out which disk to take; `folder` is
    /// where the modelled one is mounted. `None` if no files are asked for. What has to be known of
    /// the disk is added to `notes`.
    ///
    /// # Errors
    /// As [`Pool::make`]; when the real disk cannot be probed.
    pub fn prepare(
        experiment: &Experiment,
        preset: &Preset,
        asks: &[Ask],
        pools: &Path,
        folder: &Path,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Option<Store>> {
        let mut made = BTreeMap::new();
        let mut make = |bytes: u64| -> anyhow::Result<()> {
            let files = u64::from(preset.pool_mb.get()) * 1_000_000 / bytes;
            let files = u32::try_from(files.max(1)).context("the pool has too many files")?;
            made.insert(bytes, Pool::make(pools, files, bytes)?);
            Ok(())
        };
        let mut beside = None;
        for ask in asks {
            match *ask {
                Ask::FileBytes(bytes) => make(bytes)?,
                Ask::ColdReaders(_) if beside.is_none() => {
                    let beside_them =
                        experiment.workload.beside.context("[workload.beside] is missing")?;
                    let cold_bytes = beside_them.cold_bytes.get();
                    make(cold_bytes)?;
                    let root = folder.join("site");
                    let small = Pool::make(&root, SMALL_FILES, beside_them.small_bytes.get())?;
                    let held = small.hold()?;
                    beside = Some(Site { root, small, _held: held, cold_bytes });
                }
                _ => {}
            }
        }
        let Some(pool) = made.values().next() else { return Ok(None) };
        let medium = if preset.disk == Disk::Cached {
            Medium::Memory
        } else if preset.disk == Disk::Real && is_worth_while(pool, notes) {
            Medium::RealDisk
        } else {
            let model = model_of(experiment, preset);
            notes.push(format!("The files are on a modelled disk: {}.", model.in_words()));
            if beside.is_some() {
                // Each run sees to that, and should find it done: its time is counted.
                let _ = pool.make_warm();
            }
            Medium::Model(flags(&model))
        };
        let mountpoint =
            beside.as_ref().map_or(folder.join("disk"), |site: &Site| site.root.join(COLD));
        Ok(Some(Store { pools: made, medium, mountpoint, beside }))
    }

    /// Makes the files that `ask` is about cold or warm, behind `program lab disk` on `cpus` if they
    /// are on the modelled disk.
    pub(super) fn open<'a>(
        &self,
        ask: Ask,
        program: &Path,
        cpus: &[usize],
        interrupted: &'a AtomicBool,
    ) -> Result<Opened<'a>, Failure> {
        let failed = |error: anyhow::Error| Failure::Failed(format!("{error:#}"));
        let bytes = match (ask, &self.beside) {
            (Ask::FileBytes(bytes), _) => bytes,
            (_, Some(site)) => site.cold_bytes,
            _ => unreachable!("there is a store only where files are asked for"),
        };
        let pool = self.pools.get(&bytes).expect("a pool was made for every size");
        let write = |urls: &PathBuf, text: String| {
            fs::write(urls, text).map_err(|error| failed(error.into()))
        };
        let [urls, cold_urls] = self.lists();
        match &self.beside {
            Some(site) => {
                site.small.make_warm().map_err(failed)?;
                let in_its_folder =
                    |name: &str, urls: String| urls.replace('/', &format!("/{name}/"));
                let folder = site.small.folder().file_name().unwrap_or_default().to_string_lossy();
                write(&urls, in_its_folder(&folder, site.small.urls()))?;
                write(&cold_urls, in_its_folder(COLD, pool.urls()))?;
            }
            None => write(&urls, pool.urls())?,
        }
        let flags = match &self.medium {
            Medium::Memory => {
                pool.make_warm().map_err(failed)?;
                let root = pool.folder().to_path_buf();
                return Ok(Opened { root, urls, cold_urls, disk: None });
            }
            Medium::RealDisk => {
                pool.make_cold().map_err(failed)?;
                let root = pool.folder().to_path_buf();
                return Ok(Opened { root, urls, cold_urls, disk: None });
            }
            Medium::Model(flags) => flags,
        };
        fs::create_dir_all(&self.mountpoint).map_err(|error| failed(error.into()))?;
        let mut command = Command::new(program);
        command.args(["lab", "disk"]).args([pool.folder(), &self.mountpoint]).args(flags);
        if let Ask::ColdReaders(readers) = ask {
            // Those that are measured wait for the server, and not for the disk's simulation: nor for
            // what the kernel does when that has to read from the real disk. Where memory does not
            // suffice for all of it, it has to.
            mech::process::stand_back(&mut command);
            if readers > 0 && pool.make_warm().is_err() {
                tracing::debug!("the disk's own files are not all in memory");
            }
        }
        let mut disk = Supervised::start("modelled disk", command, cpus, interrupted)?;
        disk.expect_line("'mounted'", PATIENCE, |line| line.strip_prefix("mounted ").map(drop))?;
        let root = self.beside.as_ref().map_or(&self.mountpoint, |site| &site.root).clone();
        Ok(Opened { root, urls, cold_urls, disk: Some(disk) })
    }

    /// The files that list what is asked for: by the connections that are measured, and by the cold
    /// readers beside them.
    fn lists(&self) -> [PathBuf; 2] {
        let folder = self.beside.as_ref().map_or(&self.mountpoint, |site| &site.root);
        ["urls", "cold-urls"].map(|extension| folder.with_extension(extension))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // They are there only if a run began.
        let _ = fs::remove_dir(&self.mountpoint);
        for list in self.lists() {
            let _ = fs::remove_file(list);
        }
        if let Some(site) = &self.beside {
            let _ = fs::remove_dir_all(site.small.folder());
            let _ = fs::remove_dir(&site.root);
        }
    }
}

/// Files that can be served, cold or warm. Dropping it unmounts them.
pub(super) struct Opened<'a> {
    /// The folder that holds them.
    pub(super) root: PathBuf,
    /// A file with the paths on a server of those that are measured.
    pub(super) urls: PathBuf,
    /// A file with the paths of those that cold readers read.
    pub(super) cold_urls: PathBuf,
    disk: Option<Supervised<'a>>,
}

impl Opened<'_> {
    /// What the modelled disk did since this was asked last.
    pub(super) fn report(&mut self) -> Result<Option<Value>, Failure> {
        let Some(disk) = &mut self.disk else { return Ok(None) };
        disk.go_on()?;
        disk.expect_line("a report", PATIENCE, |line| serde_json::from_str(line).ok()).map(Some)
    }
}

/// Whether the real disk can show something.
fn is_worth_while(pool: &Pool, notes: &mut Vec<String>) -> bool {
    match Gain::probe(&pool.some_paths(PROBED)) {
        Ok(gain) => {
            notes.push(gain.in_words());
            gain.is_worth_while()
        }
        Err(error) => {
            notes.push(format!("The disk below the pools cannot be probed ({error})."));
            false
        }
    }
}

fn model_of(experiment: &Experiment, preset: &Preset) -> Model {
    let model = Model::default();
    let metadata = experiment.workload.metadata_ms.map(|ms| Duration::from_secs_f64(ms.0 / 1e3));
    Model { metadata: metadata.unwrap_or(model.metadata), ..model }.faster(preset.disk_speed.0)
}

fn flags(model: &Model) -> Vec<String> {
    let time = |time: Duration| format!("{}us", time.as_nanos() as f64 / 1e3);
    vec![
        format!("--spindles={}", model.spindles),
        format!("--seek={}", time(model.seek)),
        format!("--metadata={}", time(model.metadata)),
        format!("--bandwidth={:.0}", model.bandwidth),
        format!("--gain={}", model.gain),
        format!("--bound={}", model.bound),
    ]
}
