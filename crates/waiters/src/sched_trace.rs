//! Which threads are woken and fall asleep, from the kernel's tracepoints `sched_waking` and `sched_switch`, in
//! a tracing instance of this process (the kernel's Documentation/trace/ftrace.rst).
//!
//! A waiter may be woken for a connection that another waiter takes, and fall asleep again without returning
//! to user space. The tracepoints record both events, with times of `CLOCK_MONOTONIC`. Only root may use the
//! tracepoints. Events are read as binary pages (`trace_pipe_raw`), because making text would cost more than
//! the measured events. The kernel filters the events by the threads' name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The size of each processor's event buffer, in KiB. One connection that wakes 16,384 threads causes 1.5 MB of
/// events.
const BUFFER_KIB: u32 = 8192;

/// The beginning of a tracing instance's name. The id of the process follows.
const PREFIX: &str = "drover-";

/// A change of a thread's state, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// The time, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// The thread's id.
    pub thread: u32,
    /// Whether the thread was woken or fell asleep.
    pub what: ThreadChange,
}

/// A change of a thread's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadChange {
    /// The thread was made ready to run (`sched_waking`).
    Woken,
    /// The thread gave up its processor to wait (`sched_switch`).
    Asleep,
}

/// A running trace. Dropping this value ends the trace and removes the tracing instance.
#[derive(Debug)]
pub struct SchedTrace {
    /// The folder of the tracing instance.
    folder: PathBuf,
    /// `trace_pipe_raw` of each processor.
    pipes: Vec<File>,
    layout: Layout,
    /// A buffer for one page of events.
    page: Vec<u8>,
    /// Keeps tracefs mounted, if this process has mounted it without a mount point ([`root`]).
    _mount: Option<OwnedFd>,
}

/// The layout of a page of events, as this kernel describes it.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// The size of a page in bytes.
    page: usize,
    /// The offset of the first event in a page.
    data: usize,
    /// The events of `sched_waking`.
    waking: Format,
    /// The events of `sched_switch`.
    switch: Format,
}

/// The layout of one kind of event.
#[derive(Clone, Copy, Debug)]
struct Format {
    /// The number of the kind, with which each event begins.
    number: u16,
    /// The offset of the thread's id.
    thread: usize,
    /// The offset of the state in which the thread gives up its processor. `None` for `sched_waking`.
    state: Option<usize>,
}

impl SchedTrace {
    /// Begins to trace the threads with the name `name`.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`: the process is not privileged. `ENODEV`, `ENOENT`: the kernel lacks
    /// tracefs or the tracepoints. `Unsupported`: the kernel describes its events in an unknown way.
    pub fn begin(name: &str) -> io::Result<SchedTrace> {
        let (root, mount) = root()?;
        remove_remains(&root.join("instances"));
        let layout = Layout::read(&root)?;
        let folder = root.join("instances").join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)?;
        let mut trace =
            SchedTrace { layout, folder, pipes: Vec::new(), page: Vec::new(), _mount: mount };
        trace.page.resize(trace.layout.page, 0);
        let write = |file: &str, value: &str| fs::write(trace.folder.join(file), value);
        write("trace_clock", "mono")?;
        write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        let sleeps = format!("prev_comm == \"{name}\" && prev_state != 0");
        write("events/sched/sched_switch/filter", &sleeps)?;
        write("events/sched/sched_waking/filter", &format!("comm == \"{name}\""))?;
        for processor in fs::read_dir(trace.folder.join("per_cpu"))? {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            trace.pipes.push(options.open(processor?.path().join("trace_pipe_raw"))?);
        }
        let write = |file: &str, value: &str| fs::write(trace.folder.join(file), value);
        write("events/sched/sched_waking/enable", "1")?;
        write("events/sched/sched_switch/enable", "1")?;
        write("tracing_on", "1")?;
        Ok(trace)
    }

    /// Appends the events since the last call to `events`. The events of one processor are in order of time;
    /// the processors follow one another.
    ///
    /// # Errors
    /// `InvalidData`: events came faster than they were taken, and the kernel has dropped some.
    pub fn take(&mut self, events: &mut Vec<ThreadEvent>) -> io::Result<()> {
        for mut pipe in &self.pipes {
            loop {
                match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => self.layout.parse(&self.page[..length], events)?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Drop for SchedTrace {
    fn drop(&mut self) {
        self.pipes.clear();
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The folder of tracefs. If tracefs is not mounted, mounts it for this process without a mount point
/// (fsmount(2)), and returns the descriptor that keeps the mount.
fn root() -> io::Result<(PathBuf, Option<OwnedFd>)> {
    for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        if Path::new(path).join("instances").is_dir() {
            return Ok((PathBuf::from(path), None));
        }
    }
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let mount =
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())), Some(mount)))
}

/// Removes the tracing instances of processes that were killed before they could remove them.
fn remove_remains(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Layout {
    fn read(root: &Path) -> io::Result<Layout> {
        let events = root.join("events");
        let format = |name: &str| read(&events.join("sched").join(name).join("format"));
        let (waking, switch) = (format("sched_waking")?, format("sched_switch")?);
        let header = read(&events.join("header_page"))?;
        Layout::of(&header, &waking, &switch).ok_or_else(|| {
            let reason = "the kernel describes its tracepoints in an unknown way";
            io::Error::new(io::ErrorKind::Unsupported, reason)
        })
    }

    fn of(header: &str, waking: &str, switch: &str) -> Option<Layout> {
        let (data, size) = field(header, "data")?;
        Some(Layout {
            page: data + size,
            data,
            waking: Format {
                number: number(waking)?,
                thread: field(waking, "pid")?.0,
                state: None,
            },
            switch: Format {
                number: number(switch)?,
                thread: field(switch, "prev_pid")?.0,
                state: Some(field(switch, "prev_state")?.0),
            },
        })
    }

    /// Reads a page of the kernel's ring buffer (kernel/trace/ring_buffer.c). A page has a time in ns, the length
    /// of its data, and events. Each event has a time difference to the event before.
    fn parse(&self, page: &[u8], events: &mut Vec<ThreadEvent>) -> io::Result<()> {
        /// A bit in the length: events were lost before this page.
        const MISSED: u64 = 1 << 31;
        const LENGTH: u64 = (1 << 20) - 1;
        let (Some(mut at), Some(committed)) = (word64(page, 0), word64(page, 8)) else {
            return Ok(());
        };
        if committed & MISSED != 0 {
            let reason = "the kernel's trace buffer was too small, and events were lost";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let end = (self.data + (committed & LENGTH) as usize).min(page.len());
        let mut offset = self.data;
        while offset + 4 <= end {
            let Some(header) = word32(page, offset) else { break };
            let (kind, distance) = (header & 0x1f, u64::from(header >> 5));
            let extra = word32(page, offset + 4).map_or(0, u64::from);
            let (content, next) = match kind {
                // Padding: space that was reserved and not used. A time difference of 0 means that the rest
                // of the page is padding.
                29 if distance == 0 => break,
                29 => (None, offset + 4 + extra as usize),
                // 30: a time difference of more than 27 bits. 31: an absolute time without its 5 highest
                // bits.
                30 => (None, offset + 8),
                31 => (None, offset + 8),
                0 => (Some(offset + 8), offset + 4 + extra as usize),
                words => (Some(offset + 4), offset + 4 + 4 * words as usize),
            };
            match kind {
                30 => at += distance + (extra << 27),
                31 => at = (at & (0x1f << 59)) | (distance + (extra << 27)),
                _ => at += distance,
            }
            let event =
                content.filter(|_| next <= end).and_then(|from| self.event(&page[from..next]));
            events.extend(event.map(|(thread, what)| ThreadEvent {
                at: Duration::from_nanos(at),
                thread,
                what,
            }));
            offset = next;
        }
        Ok(())
    }

    /// The thread and the change in an event; `None` for other events.
    fn event(&self, bytes: &[u8]) -> Option<(u32, ThreadChange)> {
        let number = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        let is = |format: &Format| format.number == number;
        if is(&self.waking) {
            return Some((word32(bytes, self.waking.thread)?, ThreadChange::Woken));
        }
        /// The bits of `prev_state` in which a thread waits (the kernel's `TASK_REPORT` and
        /// `TASK_REPORT_IDLE`). The next higher bit means that the thread was preempted in any state.
        const WAITS: u64 = 0xff;
        let format = Some(self.switch).filter(is)?;
        let can_go_on = word64(bytes, format.state?)? & WAITS == 0;
        (!can_go_on).then_some((word32(bytes, format.thread)?, ThreadChange::Asleep))
    }
}

/// Reads a file of tracefs with one read(2): a second read(2) of `header_page` returns nothing.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(16 << 10);
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The number of a kind of event, from its `format` file.
fn number(format: &str) -> Option<u16> {
    format.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()
}

/// The offset and the size of a field, from a line such as `field:pid_t pid; offset:24; size:4; signed:1;`.
fn field(format: &str, name: &str) -> Option<(usize, usize)> {
    let is_it = |line: &&str| {
        let declared = line.trim().strip_prefix("field:").and_then(|line| line.split(';').next());
        let last = declared.and_then(|words| words.split_whitespace().next_back());
        last.is_some_and(|word| word.split('[').next() == Some(name))
    };
    let line = format.lines().find(is_it)?;
    let value = |key: &str| {
        let part = line.split(';').find_map(|part| part.trim().strip_prefix(key))?;
        part.parse().ok()
    };
    Some((value("offset:")?, value("size:")?))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                          \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    const WAKING: &str = "name: sched_waking\nID: 375\nformat:\n\
                          \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
                          \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
                          \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
                          \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
                          \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n";

    fn layout() -> Layout {
        Layout::of(HEADER, WAKING, SWITCH).unwrap()
    }

    /// A page that begins at 1000 ns. Each event is given as its kind or length, its time difference, and its
    /// words.
    fn page(events: &[(u32, u32, &[u32])]) -> Vec<u8> {
        let words: Vec<u32> = events
            .iter()
            .flat_map(|(kind, distance, words)| [&[kind | distance << 5], *words].concat())
            .collect();
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut page = [1000u64, data.len() as u64].map(u64::to_le_bytes).concat();
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    fn parsed(page: &[u8]) -> Vec<(u64, u32, ThreadChange)> {
        let mut events = Vec::new();
        layout().parse(page, &mut events).unwrap();
        events.iter().map(|event| (event.at.as_nanos() as u64, event.thread, event.what)).collect()
    }

    fn switch(thread: u32, state: u32) -> [u32; 16] {
        let mut words = [0; 16];
        (words[0], words[6], words[8]) = (372, thread, state);
        words
    }

    fn waking(thread: u32) -> [u32; 9] {
        [375, 0, 0, 0, 0, 0, thread, 120, 1]
    }

    #[test]
    fn a_page_is_read_as_the_kernel_writes_it() {
        let long = [&[4 + 64][..], &switch(8, 1)].concat();
        let page = page(&[
            (9, 5, &waking(7)),
            (30, 1, &[1]),
            (16, 2, &switch(7, 1)),
            (29, 3, &[8, 0]),
            (0, 4, &long),
            (16, 0, &switch(9, 0)),
            (31, 500, &[0]),
            (9, 1, &waking(6)),
            (29, 0, &[0]),
            (9, 5, &waking(5)),
        ]);
        let far = 1005 + 1 + (1 << 27) + 2;
        let expected = [
            (1005, 7, ThreadChange::Woken),
            (far, 7, ThreadChange::Asleep),
            (far + 3 + 4, 8, ThreadChange::Asleep),
            (501, 6, ThreadChange::Woken),
        ];
        assert_eq!(parsed(&page), expected);
    }

    #[test]
    fn who_is_preempted_does_not_sleep() {
        assert_eq!(parsed(&page(&[(16, 0, &switch(9, 0x100))])), []);
        assert_eq!(parsed(&page(&[(16, 0, &switch(9, 2))])), [(1000, 9, ThreadChange::Asleep)]);
    }

    #[test]
    fn a_page_that_is_cut_off_or_empty_gives_what_it_has() {
        let whole = page(&[(9, 5, &waking(7)), (9, 5, &waking(8))]);
        assert_eq!(parsed(&whole[..16 + 40 + 20]).len(), 1);
        assert_eq!(parsed(&whole[..10]), []);
        assert_eq!(parsed(&page(&[])), []);
    }

    #[test]
    fn lost_events_are_an_error() {
        let mut page = page(&[]);
        page[11] |= 0x80;
        let error = layout().parse(&page, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("lost"), "{error}");
    }

    #[test]
    fn a_kernel_that_says_less_is_refused() {
        assert!(Layout::of(HEADER, WAKING, &SWITCH.replace("prev_state", "state")).is_none());
        assert!(Layout::of(HEADER, &WAKING.replace("ID: 375", "ID: many"), SWITCH).is_none());
    }

    /// The traced thread sleeps until it gets a message.
    #[test]
    fn a_thread_is_seen_to_wake_and_to_fall_asleep() {
        const NAME: &str = "drover-traced";
        let mut trace = match SchedTrace::begin(NAME) {
            Ok(trace) => trace,
            Err(error) => return drover_testing::skip!("no tracepoints: {error}"),
        };
        let (send, receive) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let sleeper = thread::Builder::new().name(NAME.to_string());
        let sleeper = sleeper.spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            receive.iter().for_each(drop);
        });
        let id = told.recv().unwrap();
        let mut events = Vec::new();
        let mut wait_for = |what: ThreadChange, from: usize| {
            while !events[from..].iter().any(|event: &ThreadEvent| event.what == what) {
                trace.take(&mut events).unwrap();
            }
            assert!(events.iter().all(|event| event.thread == id), "{events:?}");
            events.len()
        };
        let before = drover_sys::process::monotonic_time();
        let slept = wait_for(ThreadChange::Asleep, 0);
        send.send(()).unwrap();
        wait_for(ThreadChange::Woken, slept);
        wait_for(ThreadChange::Asleep, slept);
        drop(send);
        sleeper.unwrap().join().unwrap();
        assert!(events[slept].at >= before, "{events:?} {before:?}");
        assert!(events[slept].at <= drover_sys::process::monotonic_time());
        let folder = trace.folder.clone();
        assert!(folder.is_dir());
        let mount = trace._mount.take();
        drop(trace);
        assert!(!folder.exists(), "{mount:?}");
    }
}
