//! The settings of a worker's network.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use super::limits::min_rate::MinRate;
use crate::fileio::{self, Backend};
use crate::mechanism::{self, Mechanism, invalid};
#[cfg(doc)]
use crate::net::{Conn, Net};

/// The largest input buffer, in bytes.
const INPUT_MOST: usize = 1 << 30;

/// The longest [`NetOptions::min_wait`].
const MIN_WAIT_MOST: Duration = Duration::from_secs(1);

/// How many ticks of the timers a window of [`MinRate`] has at most: windows are compared by their lowest 32 bits.
const WINDOW_MOST: u128 = i32::MAX as u128;

/// The settings of a worker's network. [`NetOptions::new`] has the defaults. [`Net::open`] checks the settings.
///
/// ```
/// use drover_mech::net::NetOptions;
/// use std::time::Duration;
///
/// let mechanism = drover_mech::mechanisms::by_name("poll").expect("there is a mechanism of this name");
/// let options = NetOptions {
///     connections: 1000,
///     timer_resolution: Duration::from_millis(10),
///     ..NetOptions::new(mechanism)
/// };
/// assert!(options.check().is_ok());
/// let wrong = NetOptions { budget: 0, ..options }.check().unwrap_err();
/// assert_eq!(wrong.to_string(), "NetOptions::budget is 0; it must be at least 1");
/// ```
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// The dispatch mechanism.
    pub mechanism: &'static Mechanism,
    /// The file backend.
    pub files: &'static Backend,
    /// The settings of the file backend. Workers with clones of one value share its threads.
    pub file_options: fileio::FileIoOptions,
    /// The settings of the mechanism.
    pub dispatch: mechanism::MechanismOptions,
    /// The size of an input buffer, in bytes: 1 to 2^30. A message head must fit into one.
    pub input_capacity: usize,
    /// How many free input buffers, and how many free output buffers, the worker keeps for its next connections. Further ones
    /// go back to the allocator.
    pub buffers_kept: usize,
    /// Granularity of deadlines ([`Conn::set_deadline`]); not zero.
    pub timer_resolution: Duration,
    /// For how long before the end of a precise sleep the worker polls for events instead of sleeping: an
    /// idle processor wakes late, by a millisecond and more in some virtual machines.
    pub spin: Duration,
    /// How long a worker that has something to do lets further events gather before it looks for them: fewer waits for
    /// so much latency. At most a second; zero: not at all.
    pub min_wait: Duration,
    /// How many transfers a coroutine may make before the other coroutines get their turn; at least 1.
    pub budget: u32,
    /// How many connections there may be at a time, at least 1. Listeners let further connections wait.
    pub connections: usize,
    /// Whether a connection that waits for its peer within a message counts as idle too, and gives way to new connections
    /// ([`Net::expire_idle`]): for the rest of what it receives, or for room for what it sends. Otherwise only its deadline ends
    /// it, and as many peers as there may be connections can keep all others out for that long.
    pub waiting_is_idle: bool,
    /// The lowest rate at which peers may take what [`Conn::flush`] sends; `None`: no limit.
    pub min_rate: Option<MinRate>,
    /// How many bytes of a body a coroutine sends in its turn. `None`: chosen so that the bytes of all
    /// connections are still in the processor's caches when their peers receive them.
    pub send_budget: Option<NonZeroU64>,
}

impl NetOptions {
    /// The default settings, with `mechanism`.
    #[must_use]
    pub fn new(mechanism: &'static Mechanism) -> NetOptions {
        NetOptions {
            mechanism,
            files: fileio::auto(),
            file_options: fileio::FileIoOptions::default(),
            dispatch: mechanism::MechanismOptions::default(),
            input_capacity: 16 * 1024,
            buffers_kept: 256,
            timer_resolution: Duration::from_millis(100),
            spin: Duration::ZERO,
            min_wait: Duration::ZERO,
            budget: 32,
            connections: usize::MAX,
            waiting_is_idle: false,
            min_rate: None,
            send_budget: None,
        }
    }

    /// Checks every setting; [`Net::open`] does so by itself.
    ///
    /// # Errors
    /// `InvalidInput`, with the name of the setting, its value and what it may be.
    pub fn check(&self) -> io::Result<()> {
        self.dispatch.check()?;
        self.file_options.check()?;
        if !(1..=INPUT_MOST).contains(&self.input_capacity) {
            let value = self.input_capacity;
            return Err(invalid("NetOptions::input_capacity", value, "1 to 1073741824"));
        }
        if self.timer_resolution.is_zero() {
            return Err(invalid("NetOptions::timer_resolution", 0, "longer than nothing"));
        }
        if self.min_wait > MIN_WAIT_MOST {
            let value = format_args!("{:?}", self.min_wait);
            return Err(invalid("NetOptions::min_wait", value, "at most 1s"));
        }
        if self.budget == 0 {
            return Err(invalid("NetOptions::budget", 0, "at least 1"));
        }
        if self.connections == 0 {
            return Err(invalid("NetOptions::connections", 0, "at least 1"));
        }
        if let Some(MinRate { window, .. }) = self.min_rate {
            let ticks = window.as_nanos().div_ceil(self.timer_resolution.as_nanos());
            if !(1..=WINDOW_MOST).contains(&ticks) {
                let value = format_args!("{window:?}");
                let may_be =
                    "longer than nothing and shorter than 2147483648 times timer_resolution";
                return Err(invalid("MinRate::window", value, may_be));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms;
    use crate::net::Net;

    /// Every bad value alone is an error that names its setting, also from [`Net::open`] under every mechanism.
    #[test]
    fn a_bad_value_is_an_error_that_names_its_setting() {
        const fn rate(window: Duration) -> Option<MinRate> {
            Some(MinRate::new(NonZeroU64::MIN, window))
        }
        type Change = fn(&mut NetOptions);
        let cases: [(&str, Change); 15] = [
            ("min_wait", |options| options.min_wait = Duration::from_secs(2)),
            ("input_capacity", |options| options.input_capacity = 0),
            ("input_capacity", |options| options.input_capacity = usize::MAX),
            ("timer_resolution", |options| options.timer_resolution = Duration::ZERO),
            ("budget", |options| options.budget = 0),
            ("connections", |options| options.connections = 0),
            ("window", |options| options.min_rate = rate(Duration::ZERO)),
            ("window", |options| options.min_rate = rate(Duration::MAX)),
            ("events_per_wait", |options| options.dispatch.events_per_wait = 0),
            ("events_per_wait", |options| options.dispatch.events_per_wait = usize::MAX),
            ("completions", |options| options.dispatch.completions = 0),
            ("receive_buffers", |options| options.dispatch.receive_buffers = 1),
            ("receive_buffers", |options| options.dispatch.receive_buffers = 1000),
            ("read_ahead", |options| options.file_options.read_ahead = 0),
            ("read_threads", |options| options.file_options.read_threads = 0),
        ];
        for mechanism in mechanisms::ALL {
            NetOptions::new(mechanism).check().unwrap();
            for (setting, change) in &cases {
                let mut options = NetOptions::new(mechanism);
                change(&mut options);
                let error = Net::open(&options).err().unwrap();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{setting}: {error}");
                assert!(error.to_string().contains(&format!("::{setting} is ")), "{error}");
            }
        }
    }
}
