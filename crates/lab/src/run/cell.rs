//! One run of one cell: the subject is started, warmed up, driven, measured and stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::metrics::{Inputs, derive, own};
use super::{RunOptions, Session};
use crate::drive::{self, CommandLoad, Driven, HttpLoad, LoadDriver, Moment, Target, Warm, Window};
use crate::failure::Failure;
use crate::instrument::counters::{self, ServerCounters};
use crate::instrument::cpu::Cpu;
use crate::instrument::disk::DiskCounters;
use crate::instrument::idle::Idle;
use crate::instrument::machine::MachineCounters;
use crate::instrument::memory::IdleMemory;
use crate::instrument::stages::StageTrace;
use crate::instrument::{self, Instrument, Readings, events};
use crate::journal;
use crate::model::{Cell, Level, Mark};
use crate::path_text::utf8;
use crate::placement::Placement;
use crate::plan::estimate::RunPhases;
use crate::plan::limits::{connections, descriptors, pipe_descriptors, wanted_processors};
use crate::plan::order::round_seed;
use crate::process::{CpuShare, Guard};
use crate::site::RunSite;
use crate::spec;
use crate::spec::load::ResolvedWire;
use crate::spec::metric::InstrumentName;
use crate::spec::phases::Until;
use crate::spec::pool::PoolSpec;
use crate::spec::setting::level_of;
use crate::spec::subject::SubjectKind;
use crate::subject::{
    GuestCommand, PipeSet, Running, Scene, SelfDriven, TlsFiles, WaiterSubject, WorkFolder,
};
use crate::wire::Wire;

/// What a run has measured.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    pub(super) values: BTreeMap<String, f64>,
    pub(super) marks: BTreeSet<Mark>,
    pub(super) artefacts: Value,
}

impl<'s> Session<'s> {
    /// Runs a cell once.
    ///
    /// # Errors
    /// Each [`Failure`].
    pub(super) fn measure(&mut self, cell: usize, round: u32) -> Result<Measurement, Failure> {
        self.options.interrupt.check()?;
        let ground = self.ground(cell, round, &self.work())?;
        let subject = ground.subject;
        let mut scene = ground.scene(self.options);
        let mut site = self.store.open(&ground.pools, &scene).map_err(Failure::of_lab)?;
        let root = site.as_ref().map(|site| site.root.clone());
        root.as_deref().map_or(Ok(""), utf8).map_err(Failure::not_measured)?;
        scene.root = root.as_deref();
        let one = One { session: self, scene: &scene, ground: &ground };
        match subject.kind() {
            Some(SubjectKind::Waiters(waiters)) => {
                let connects = self.experiment.load.connects.as_ref().ok_or_else(|| {
                    Failure::failed("waiters need a load of connections ([load.connects])")
                })?;
                one.drive_itself(&WaiterSubject { subject, waiters, connects })
            }
            Some(SubjectKind::Pipes(pipes)) => {
                let tokens = self.experiment.load.tokens.as_ref().ok_or_else(|| {
                    Failure::failed("pipes need a load of tokens ([load.tokens])")
                })?;
                let warm_up = one.phases()?.warm_up;
                one.drive_itself(&PipeSet { subject, pipes, tokens, warm_up })
            }
            Some(SubjectKind::Guest(words)) => one.drive_itself(&GuestCommand { subject, words }),
            _ => one.serve(site.as_mut()),
        }
    }

    /// What a run of a cell needs, with its files beneath `folder`.
    pub(super) fn ground(
        &self,
        cell: usize,
        round: u32,
        folder: &Path,
    ) -> Result<Ground<'s>, Failure> {
        let cell: &Cell = &self.plan.cells[cell].cell;
        let subject = self.experiment.subject.get(&cell.subject);
        let subject = subject.ok_or_else(|| Failure::failed("the subject is gone"))?;
        let work = WorkFolder::create(folder).map_err(Failure::of_lab)?;
        for path in [work.path(), &self.options.drover] {
            utf8(path).map_err(Failure::not_measured)?;
        }
        Ok(Ground {
            cell,
            subject,
            kinds: self.experiment.instruments(),
            pools: self.pools(),
            placement: Placement::choose(
                &self.processors,
                wanted_processors(subject, &cell.levels)?,
            )?,
            wire: self.wire(&cell.levels)?,
            tls: self.tls(&cell.levels)?,
            is_http2: self.experiment.is_http2(&cell.levels).map_err(Failure::failed)?,
            trace: work.path().join("trace"),
            counters: work.path().join("counters"),
            work,
            guard: Arc::clone(&self.guard),
            seed: round_seed(self.plan.seed, round),
            descriptors: self.descriptors(subject, &cell.levels),
        })
    }

    /// The way between server and generator.
    fn wire(&self, levels: &BTreeMap<String, Level>) -> Result<Wire, Failure> {
        let Some(wire) = &self.experiment.wire else { return Ok(Wire::Loopback) };
        match wire.resolve(level_of(levels)).map_err(Failure::failed)? {
            ResolvedWire::Loopback => Ok(Wire::Loopback),
            ResolvedWire::BitsPerSecond(rate) => Wire::limited(rate),
        }
    }

    /// How many descriptors the processes of a run need, if that is more than the lab's own limit.
    fn descriptors(
        &self,
        subject: &spec::SubjectSpec,
        levels: &BTreeMap<String, Level>,
    ) -> Option<u64> {
        let of_connections =
            || Some(descriptors(connections(self.experiment.load.http.as_ref()?, levels)?));
        let needed = pipe_descriptors(subject, levels).or_else(of_connections)?;
        let hard = drover_sys::process::open_files_limit().hard;
        hard.is_some_and(|hard| needed > hard).then_some(needed)
    }

    fn pools(&self) -> Vec<(String, PoolSpec)> {
        let preset = &self.selection.preset;
        let names = self.experiment.pool.keys();
        names
            .filter_map(|name| Some((name.clone(), self.experiment.pool_in(preset, name)?)))
            .collect()
    }
}

/// What a run has for itself: processors, a wire, a folder.
pub(super) struct Ground<'s> {
    pub(super) cell: &'s Cell,
    pub(super) subject: &'s spec::SubjectSpec,
    pub(super) kinds: Vec<InstrumentName>,
    pub(super) pools: Vec<(String, PoolSpec)>,
    placement: Placement,
    wire: Wire,
    tls: Option<Arc<TlsFiles>>,
    is_http2: bool,
    trace: PathBuf,
    counters: PathBuf,
    work: WorkFolder,
    guard: Arc<Guard>,
    seed: u64,
    descriptors: Option<u64>,
}

impl Ground<'_> {
    /// The surroundings of the run, without a folder of files to serve.
    pub(super) fn scene<'a>(&'a self, options: &'a RunOptions) -> Scene<'a> {
        Scene {
            drover: &options.drover,
            guard: &self.guard,
            interrupt: &options.interrupt,
            wire: &self.wire,
            placement: &self.placement,
            levels: &self.cell.levels,
            seed: self.seed,
            tls: self.tls.as_deref(),
            is_http2: self.is_http2,
            root: None,
            work: self.work.path(),
            trace: self.kinds.contains(&InstrumentName::Stages).then_some(self.trace.as_path()),
            counters: &self.counters,
            counts_events: self.kinds.contains(&InstrumentName::Counters),
            notes_access: self.pools.iter().any(|(_, pool)| pool.access_times == Some(true)),
            descriptors: self.descriptors,
            guest: options.guest.as_ref().map(|guest| guest.socket.as_path()),
        }
    }
}

/// A run with its scene.
#[derive(Clone, Copy)]
pub(super) struct One<'o, 's> {
    pub(super) session: &'o Session<'s>,
    pub(super) scene: &'o Scene<'o>,
    pub(super) ground: &'o Ground<'o>,
}

/// A server that runs, warm, with what reads it.
pub(super) struct StartedServer {
    pub(super) running: Running,
    /// Ends after the server, whose processes are in its group.
    pub(super) share: Option<CpuShare>,
    pub(super) instruments: Vec<Box<dyn Instrument>>,
}

/// The file with the paths of the pool that a load asks for.
pub(super) fn urls<'a>(
    lists: &'a BTreeMap<String, PathBuf>,
    http: Option<&spec::load::Http>,
) -> Option<&'a Path> {
    let pool = http.and_then(|http| http.pool.as_ref());
    pool.map_or_else(|| lists.values().next(), |pool| lists.get(pool)).map(PathBuf::as_path)
}

/// Lets a slowed server have all of its processors' time while connections are opened, or ends that.
pub(super) fn set_lifted(share: Option<&CpuShare>, is_lifted: bool) -> Result<(), Failure> {
    let set = share.map_or(Ok(()), |share| share.set_lifted(is_lifted));
    set.map_err(|error| Failure::not_measured(format!("the quota cannot be changed: {error}")))
}

/// When a load is measured.
fn window(phases: &RunPhases) -> Window {
    Window {
        at_least: phases.at_least,
        at_most: phases.at_most,
        events: phases.events,
        use_every_connection: phases.until == Until::Steady,
        drain: phases.drain,
    }
}

impl One<'_, '_> {
    pub(super) fn phases(&self) -> Result<RunPhases, Failure> {
        RunPhases::of(self.session.experiment, &self.session.selection.preset, self.scene.levels)
    }

    /// Measures a subject that drives itself.
    fn drive_itself(&self, subject: &dyn SelfDriven) -> Result<Measurement, Failure> {
        let phases = self.phases()?;
        let measured = subject.measure(self.scene, phases.at_least)?;
        let mut values = measured.values;
        let inputs = Inputs { subject: &measured.result, ..Inputs::default() };
        values.extend(own(self.session.experiment, &inputs));
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|it| it.parse::<f64>().ok());
        values.extend(load.map(|load| ("load-average".to_string(), load)));
        let artefacts = json!({
            "subject": { "command": measured.command, "result": measured.result },
            "placement": self.scene.placement,
        });
        Ok(Measurement { values, marks: measured.marks, artefacts })
    }

    /// Measures a server under a load.
    fn serve(&self, mut site: Option<&mut RunSite>) -> Result<Measurement, Failure> {
        let experiment = self.session.experiment;
        let phases = self.phases()?;
        let instruments = self.instruments(site.as_deref()).map_err(Failure::of_lab)?;
        let lists = site.as_deref().map(|site| site.urls.clone()).unwrap_or_default();
        let is_cold = site.as_deref().is_some_and(|site| site.is_cold);
        let target_of = |http: Option<&spec::load::Http>| Target {
            scene: self.scene,
            urls: urls(&lists, http),
            is_cold,
        };
        let target = target_of(experiment.load.http.as_ref());
        let load = self.load()?;
        let mut server = self.start(instruments)?;
        let running = &mut server.running;
        let background = match (&experiment.background, running.address) {
            (Some(background), Some(address)) => {
                drive::background::start(background, address, &target_of(Some(&background.http)))?
            }
            _ => None,
        };
        let warm = match phases.until {
            Until::Steady => load.warm_up(running, &target, phases.warm_up)?,
            Until::Connected | Until::Nothing => None,
        };
        if let Some(idle) = self.idle_connections() {
            server.instruments.push(Box::new(IdleMemory::before(idle, running)));
        }
        let StartedServer { running, share, instruments } = &mut server;
        set_lifted(share.as_ref(), true)?;
        let window = window(&phases);
        let mut around = Around::default();
        let mut disk = None;
        let mut at = |moment: Moment, running: &mut Running| {
            if moment == Moment::Begin {
                set_lifted(share.as_ref(), false)?;
            }
            around.at(moment, running, instruments)?;
            // The first report covers the time before the window, and is not used.
            let report = site.as_deref_mut().map_or(Ok(None), RunSite::report);
            disk = report.map_err(Failure::of_lab)?;
            Ok(())
        };
        let driven = load.measure(running, &target, &window, warm.as_ref(), &mut at)?;
        if phases.drain {
            // The tail counts both for the CPU time and for the responses.
            around.drained_cpu_s = around.cpu_s(running);
        }
        drop(background);
        self.conclude(server, around, driven, warm, disk)
    }

    /// Starts the server, and leaves it its part of the processors.
    pub(super) fn start(
        &self,
        instruments: Vec<Box<dyn Instrument>>,
    ) -> Result<StartedServer, Failure> {
        let experiment = self.session.experiment;
        let running = crate::subject::server(experiment, self.ground.subject)?.start(self.scene)?;
        let share = self.slow_down(&running)?;
        Ok(StartedServer { running, share, instruments })
    }

    /// Ends the server, and puts together what was read of it.
    pub(super) fn conclude(
        &self,
        server: StartedServer,
        mut around: Around,
        driven: Driven,
        warm: Option<Warm>,
        disk: Option<Value>,
    ) -> Result<Measurement, Failure> {
        let StartedServer { running, share, instruments } = server;
        let subject_command = running.process.command_line().to_vec();
        counters::forget(self.scene.counters).map_err(Failure::of_lab)?;
        // The server completes the trace, and writes its last counters, only when it ends.
        drop(running);
        let trace = match self.scene.trace {
            Some(path) if path.exists() => {
                Some(StageTrace::read(path, around.began).map_err(Failure::of_lab)?)
            }
            _ => None,
        };
        self.read_what_it_has_written(&mut around)?;
        drop(instruments);
        let mut measured =
            self.assemble(around, driven, warm, subject_command, disk, trace.as_ref())?;
        measured.artefacts["slowed_by"] = json!(share.map(|share| share.by()));
        Ok(measured)
    }

    /// Leaves the server the part of its processors that the experiment says, from now on.
    fn slow_down(&self, running: &Running) -> Result<Option<CpuShare>, Failure> {
        let preset = &self.session.selection.preset;
        let Some(part) = self.session.experiment.slow_in(preset) else { return Ok(None) };
        let process = &running.process;
        let share = CpuShare::limit(&process.members(), process.cgroup(), part, &self.processors());
        share.map(Some).map_err(|why| Failure::not_testable(format!("slow = {part}: {why}")))
    }

    /// The processors of the subject.
    pub(super) fn processors(&self) -> Vec<usize> {
        match self.scene.placement.subject.as_slice() {
            [] => self.session.processors.iter().map(|it| it.number).collect(),
            own => own.to_vec(),
        }
    }

    /// Reads the events and the counters that a server has written until its end.
    fn read_what_it_has_written(&self, around: &mut Around) -> Result<(), Failure> {
        let events = self.scene.work.join("events");
        if events.exists() {
            let times = around.began..around.began + around.seconds;
            let peaks = events::read(&events, times).map_err(Failure::of_lab)?;
            around.readings.values.extend(peaks.values());
        }
        if let Some(imbalance) = counters::imbalance(self.scene.counters)? {
            around.readings.set("imbalance", imbalance);
        }
        Ok(())
    }

    /// How many idle connections the load keeps open, if any.
    pub(super) fn idle_connections(&self) -> Option<u64> {
        let idle = self.session.experiment.load.http.as_ref()?.idle.as_ref()?;
        idle.resolve(self.scene.levels).ok().filter(|idle| *idle > 0)
    }

    fn load(&self) -> Result<Box<dyn LoadDriver + '_>, Failure> {
        let load = &self.session.experiment.load;
        match (&load.http, &load.command) {
            (Some(http), _) => Ok(Box::new(HttpLoad { http })),
            (None, Some(command)) => Ok(Box::new(CommandLoad { load: command })),
            (None, None) => Err(Failure::failed("a server needs a load of HTTP or of a command")),
        }
    }

    /// What reads any server, also beside others that are alive.
    pub(super) fn common_instruments(&self) -> Vec<Box<dyn Instrument>> {
        vec![Box::new(MachineCounters::new(&self.processors())), Box::new(Cpu::default())]
    }

    /// The counters of Drover's own server, if they are wanted.
    pub(super) fn server_counters(&self) -> Option<Box<dyn Instrument>> {
        let is_own_server = matches!(self.ground.subject.kind(), Some(SubjectKind::Serve(_)));
        let is_wanted = is_own_server && self.ground.kinds.contains(&InstrumentName::Counters);
        is_wanted.then(|| {
            let counters = ServerCounters::of(self.scene.counters.to_path_buf());
            Box::new(counters) as Box<dyn Instrument>
        })
    }

    fn instruments(&self, site: Option<&RunSite>) -> Result<Vec<Box<dyn Instrument>>, Failure> {
        let every: Vec<usize> = self.session.processors.iter().map(|it| it.number).collect();
        let subject = &self.processors();
        let mut all = self.common_instruments();
        if self.ground.kinds.contains(&InstrumentName::IdleGuard) {
            all.push(Box::new(Idle::start(&every, subject)?));
        } else if self.ground.kinds.contains(&InstrumentName::IdleCounter) {
            all.push(Box::new(Idle::start(subject, subject)?));
        }
        all.extend(self.server_counters());
        let is_modelled = |(_, pool): &(String, PoolSpec)| {
            matches!(pool.disk(self.scene.levels), Ok(spec::pool::PoolDisk::Model))
        };
        if let Some(site) = site
            && self.ground.kinds.contains(&InstrumentName::Disk)
            && !self.ground.pools.iter().any(is_modelled)
        {
            all.push(Box::new(DiskCounters::below(&site.device)?));
        }
        Ok(all)
    }

    fn assemble(
        &self,
        around: Around,
        driven: Driven,
        warm: Option<Warm>,
        subject_command: Vec<String>,
        disk: Option<Value>,
        trace: Option<&StageTrace>,
    ) -> Result<Measurement, Failure> {
        let part = self.session.experiment.slow_in(&self.session.selection.preset).unwrap_or(1.0);
        let mut values = driven.values.clone();
        let mut marks = driven.marks.clone();
        for (name, value) in &around.readings.values {
            values.insert(name.clone(), *value);
        }
        marks.extend(&around.readings.marks);
        if warm.is_some_and(|warm| !warm.is_steady) {
            marks.insert(Mark::Cold);
        }
        if instrument::was_preempted(&values, around.seconds, part) {
            marks.insert(Mark::Preempted);
        }
        if let Some(use_percent) =
            disk.as_ref().and_then(|disk| disk["utilisation_percent"].as_f64())
        {
            values.insert("disk-percent".to_string(), use_percent);
        }
        let processors = part * self.processors().len() as f64;
        values.extend(derive(&driven, &values, around.drained_cpu_s, processors));
        values.extend(trace.map(StageTrace::values).unwrap_or_default());
        let speed = self.ground.pools.iter().find_map(|(_, pool)| pool.speed).unwrap_or(1.0);
        let inputs = Inputs {
            load: &driven.result,
            trace,
            speed,
            levels: Some(self.scene.levels),
            ..Inputs::default()
        };
        values.extend(own(self.session.experiment, &inputs));
        values.retain(|_, value| value.is_finite());
        let mut result = driven.result.clone();
        if let Some(result) = result.as_object_mut() {
            // Histograms are the largest part of a result. The histogram of latencies is kept.
            result.remove("histograms");
        }
        let artefacts = json!({
            "subject": { "command": subject_command },
            "load": { "command": driven.command, "result": result },
            "wire": self.scene.wire.describe(),
            "placement": self.scene.placement,
            "warm_up": warm.map(|warm| json!({
                "took_s": warm.took_s, "steady": warm.is_steady, "events_per_s": warm.events_per_s,
            })),
            "window_s": driven.seconds,
            "instruments": around.notes,
            "disk": disk,
            "notes": driven.notes,
        });
        Ok(Measurement { values, marks, artefacts })
    }
}

/// The readings around a window.
#[derive(Debug, Default)]
pub(super) struct Around {
    start: Option<Instant>,
    /// When the window began, in seconds since 1970.
    began: f64,
    /// The length of the window by the lab's clock, in seconds.
    pub(super) seconds: f64,
    pub(super) readings: Readings,
    notes: Map<String, Value>,
    cpu_before: Option<Duration>,
    /// CPU time from the beginning of the window to the end of its last request, in seconds.
    drained_cpu_s: Option<f64>,
}

impl Around {
    /// Reads the instruments. A failure to read one is the lab's own, unless the subject has ended and left nothing to read.
    pub(super) fn at(
        &mut self,
        moment: Moment,
        running: &mut Running,
        instruments: &mut [Box<dyn Instrument>],
    ) -> Result<(), Failure> {
        let read = self.read(moment, running, instruments);
        read.map_err(|failure| if running.has_ended() { failure } else { failure.of_lab() })
    }

    fn read(
        &mut self,
        moment: Moment,
        running: &mut Running,
        instruments: &mut [Box<dyn Instrument>],
    ) -> Result<(), Failure> {
        match moment {
            Moment::Begin => {
                for instrument in instruments.iter_mut() {
                    instrument.begin(running)?;
                }
                self.cpu_before = running.process.cpu_time().ok().flatten();
                self.began = journal::now_s();
                self.start = Some(Instant::now());
            }
            Moment::End => {
                self.seconds = self.start.map_or(0.0, |start| start.elapsed().as_secs_f64());
                for instrument in instruments.iter_mut().rev() {
                    let readings = instrument.end(running, self.seconds.max(1e-9))?;
                    for (name, value) in readings.values {
                        // A reading of the idle counter is kept, and not replaced by the kernel's own idle times.
                        self.readings.values.entry(name).or_insert(value);
                    }
                    self.readings.marks.extend(readings.marks);
                    self.notes.insert(instrument.name().to_string(), readings.notes);
                }
            }
        }
        Ok(())
    }

    pub(super) fn cpu_s(&self, running: &mut Running) -> Option<f64> {
        let now = running.process.cpu_time().ok().flatten()?;
        Some(now.saturating_sub(self.cpu_before?).as_secs_f64())
    }
}
