//! The pools of a cell below one root.
//!
//! With one pool, the root is the pool's folder, or the modelled disk above it. With several pools, the root has a
//! folder for each. Files of one size are shared by all experiments of a session and of later sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use drover_waiters::pinned_pages::PinnedPages;
use serde_json::Value;

use super::pool::{PoolFiles, Shape};
use super::probe::Gain;
use crate::failure::Failure;
use crate::process::{Child, Launch, Turn};
use crate::spec::pool::{PoolDisk, PoolSpec};
use crate::spec::setting::SizeSetting;
use crate::subject::Scene;

/// How long mounting the modelled disk, or an answer of its process, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// How many files are read to find what a disk gains from many reads at once.
const PROBED: usize = 64;

/// The file size of a pool that sets none, in bytes: a small file.
const BYTES: u64 = 4096;

/// The total size of a pool that sets none, in bytes.
const TOTAL: u64 = 16 << 20;

/// The folder of the files of all sessions.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    probed: BTreeMap<PathBuf, Gain>,
    /// The folders with files that this session has read into the page cache.
    warmed: BTreeSet<PathBuf>,
    /// Remarks on the disk, each once.
    pub notes: Vec<String>,
}

/// The files of a run, below one root, cold or warm. Dropping the value unmounts the modelled disks.
#[derive(Debug)]
pub struct RunSite {
    /// The folder to be served.
    pub root: PathBuf,
    /// For each pool a file with the paths of its files on the server, a line each.
    pub urls: BTreeMap<String, PathBuf>,
    /// Whether any file is read from a disk, so that a request before the window would spoil the run.
    pub is_cold: bool,
    /// A folder on the device below the pools.
    pub device: PathBuf,
    disks: Vec<Child>,
    // Warm files that are read beside cold ones are locked in memory, whatever else needs memory.
    _pinned: Vec<PinnedPages>,
}

impl Store {
    /// A store that writes files below `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Store {
        Store {
            folder: folder.to_path_buf(),
            probed: BTreeMap::new(),
            warmed: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// Writes the files of a cell's pools, and makes them cold or warm. `None` without pools.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] for too little space, or where the modelled disk cannot be mounted;
    /// [`Failure::Failed`].
    pub fn open(
        &mut self,
        pools: &[(String, PoolSpec)],
        scene: &Scene<'_>,
    ) -> Result<Option<RunSite>, Failure> {
        let Some((_, first)) = pools.first() else { return Ok(None) };
        let shapes: Vec<Shape> =
            pools.iter().map(|(_, pool)| shape(pool, scene)).collect::<Result<_, _>>()?;
        let single = pools.len() == 1;
        let parent = match single {
            true => self.folder.clone(),
            // Each combination of pools has its own root, so that mount points and folders keep their places.
            false => self.folder.join(combination(pools, &shapes, scene)),
        };
        let mut site = RunSite {
            root: parent.clone(),
            urls: BTreeMap::new(),
            is_cold: false,
            device: self.folder.clone(),
            disks: Vec::new(),
            _pinned: Vec::new(),
        };
        for ((name, pool), shape) in std::iter::zip(pools, shapes) {
            let root = self.open_pool(&mut site, (name, pool), shape, (&parent, single), scene)?;
            if single {
                site.root = root;
            }
        }
        if first.access_times == Some(true)
            && let Some(why) = drover_sys::process::cannot_note_access_times()
        {
            return Err(Failure::not_testable(why));
        }
        site.root = site.root.canonicalize().map_err(Failure::failed)?;
        Ok(Some(site))
    }

    /// Writes the files of one pool, in a folder of its own below `parent` unless it is the single one, makes them cold or warm,
    /// and lists their paths. Returns the folder that has them.
    fn open_pool(
        &mut self,
        site: &mut RunSite,
        (name, pool): (&str, &PoolSpec),
        shape: Shape,
        (parent, single): (&Path, bool),
        scene: &Scene<'_>,
    ) -> Result<PathBuf, Failure> {
        let shared = self.folder.join(format!("{}x{}", shape.files, shape.bytes));
        let disk = pool.disk(scene.levels).map_err(Failure::failed)?;
        let in_place = if single { shared.clone() } else { parent.join(name) };
        let files = match disk {
            PoolDisk::Model => PoolFiles::make(&shared, shape)?,
            PoolDisk::Memory | PoolDisk::Real => PoolFiles::make(&in_place, shape)?,
        };
        let prefix = if single { String::new() } else { format!("/{name}") };
        let urls = scene.work.join(format!("urls-{name}"));
        fs::write(&urls, files.urls(&prefix))
            .map_err(|error| Failure::failed(format!("{}: {error}", urls.display())))?;
        site.urls.insert(name.to_owned(), urls);
        site.device = files.folder().to_path_buf();
        site.is_cold |= disk != PoolDisk::Memory;
        match disk {
            PoolDisk::Memory => {
                match self.warmed.contains(files.folder()) {
                    true => files.keep_warm()?,
                    false => files.make_warm()?,
                }
                self.warmed.insert(files.folder().to_path_buf());
                if !single {
                    site._pinned.extend(files.pin()?);
                }
            }
            PoolDisk::Real => {
                self.look_at(&files);
                self.warmed.remove(files.folder());
                files.make_cold()?;
            }
            PoolDisk::Model => {
                let mountpoint = if single { scene.work.join("disk") } else { in_place };
                fs::create_dir_all(&mountpoint).map_err(Failure::failed)?;
                // The model's own files are read into memory if they fit: the real disk is no part of the model.
                let _ = files.make_warm();
                site.disks.push(mount(&files, &mountpoint, pool, single, scene)?);
                return Ok(mountpoint);
            }
        }
        Ok(files.folder().to_path_buf())
    }

    /// Measures, once for each folder, whether its disk can show what asynchronous reads gain.
    fn look_at(&mut self, files: &PoolFiles) {
        if self.probed.contains_key(files.folder()) {
            return;
        }
        match Gain::probe(&files.some_paths(PROBED)) {
            Ok(gain) => {
                self.notes.push(gain.in_words());
                self.probed.insert(files.folder().to_path_buf(), gain);
            }
            Err(error) => {
                self.notes.push(format!("The disk below the pools cannot be probed ({error})."));
            }
        }
    }
}

/// How many files of which length a pool has.
fn shape(pool: &PoolSpec, scene: &Scene<'_>) -> Result<Shape, Failure> {
    let resolve = |size: &Option<SizeSetting>, default| match size {
        Some(size) => size.resolve(scene.levels).map_err(Failure::failed),
        None => Ok(default),
    };
    let bytes = resolve(&pool.bytes, BYTES)?;
    Ok(Shape::of(bytes, resolve(&pool.total, TOTAL.max(bytes))?))
}

/// The name of a folder for these pools together.
fn combination(pools: &[(String, PoolSpec)], shapes: &[Shape], scene: &Scene<'_>) -> String {
    let of_each = std::iter::zip(pools, shapes).map(|((name, pool), shape)| {
        let disk = pool.disk(scene.levels).unwrap_or_default();
        format!("{name}-{}x{}-{disk:?}", shape.files, shape.bytes).to_lowercase()
    });
    of_each.collect::<Vec<_>>().join("+")
}

impl RunSite {
    /// The work of the modelled disks since the previous call: the report of the busiest disk.
    ///
    /// # Errors
    /// [`Failure::Failed`] if a disk does not answer.
    pub fn report(&mut self) -> Result<Option<Value>, Failure> {
        let mut busiest: Option<Value> = None;
        for disk in &mut self.disks {
            disk.go_on()?;
            let report: Value = disk
                .expect_line("a report", ANSWER_TIMEOUT, |line| serde_json::from_str(line).ok())?;
            let use_of = |report: &Value| report["utilisation_percent"].as_f64().unwrap_or(0.0);
            if busiest.as_ref().is_none_or(|before| use_of(before) < use_of(&report)) {
                busiest = Some(report);
            }
        }
        Ok(busiest)
    }
}

/// Mounts files behind a modelled disk. The process `drover lab disk` unmounts the disk when it ends, however it
/// ends.
fn mount(
    files: &PoolFiles,
    mountpoint: &Path,
    pool: &PoolSpec,
    is_alone: bool,
    scene: &Scene<'_>,
) -> Result<Child, Failure> {
    let mut command = Command::new(scene.drover);
    command.args(["lab", "disk"]).args([files.folder(), mountpoint]);
    if let Some(speed) = pool.speed {
        command.arg(format!("--speed={speed}"));
    }
    if let Some(metadata) = &pool.metadata {
        let metadata = metadata.resolve(scene.levels).map_err(Failure::failed)?;
        command.arg(format!("--metadata={}us", metadata.as_micros()));
    }
    let mut launch = Launch::new("modelled disk", command, scene.guard, scene.interrupt);
    // The process runs on the load's processors, because the disk is no part of the subject.
    launch.cpus = scene.placement.load.clone();
    // The shell that unmounts may outlive the process until the disk is unmounted.
    launch.tidies_up = true;
    // With other files beside the cold ones, the load measures the server and must not wait for the model's own work.
    launch.turn = if is_alone { Turn::Usual } else { Turn::Last };
    let mut disk = Child::start(launch)?;
    let mounted = |line: &str| line.strip_prefix("mounted ").map(drop);
    match disk.expect_line("'mounted'", ANSWER_TIMEOUT, mounted) {
        Ok(()) => Ok(disk),
        Err(Failure::Interrupted) => Err(Failure::Interrupted),
        // FUSE is missing, or the right to mount: the last line of stderr says which.
        Err(failure) => Err(Failure::not_testable(failure)),
    }
}
