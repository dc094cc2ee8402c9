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

/// The settings of a worker's network. [`NetOptions::new`] has the defaults; each setting can be changed by its `with_`
/// method or in its field. [`Net::open`] checks them.
///
/// ```
/// use std::time::Duration;
///
/// let mechanism = drover_mech::mechanisms::by_name("poll").expect("there is a mechanism of this name");
/// let options = drover_mech::net::NetOptions::new(mechanism)
///     .with_connections(1000)
///     .with_timer_resolution(Duration::from_millis(10));
/// assert!(options.check().is_ok());
/// let wrong = options.with_budget(0).check().unwrap_err();
/// assert_eq!(wrong.to_string(), "NetOptions::budget is 0; it must be at least 1");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
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

    /// Sets the file backend.
    #[must_use]
    pub fn with_files(self, files: &'static Backend) -> NetOptions {
        NetOptions { files, ..self }
    }

    /// Sets the settings of the file backend.
    #[must_use]
    pub fn with_file_options(self, file_options: fileio::FileIoOptions) -> NetOptions {
        NetOptions { file_options, ..self }
    }

    /// Sets the settings of the mechanism.
    #[must_use]
    pub fn with_dispatch(self, dispatch: mechanism::MechanismOptions) -> NetOptions {
        NetOptions { dispatch, ..self }
    }

    /// Sets the size of an input buffer, in bytes.
    #[must_use]
    pub fn with_input_capacity(self, input_capacity: usize) -> NetOptions {
        NetOptions { input_capacity, ..self }
    }

    /// Sets how many free buffers of each kind the worker keeps.
    #[must_use]
    pub fn with_buffers_kept(self, buffers_kept: usize) -> NetOptions {
        NetOptions { buffers_kept, ..self }
    }

    /// Sets the granularity of deadlines.
    #[must_use]
    pub fn with_timer_resolution(self, timer_resolution: Duration) -> NetOptions {
        NetOptions { timer_resolution, ..self }
    }

    /// Sets for how long before the end of a precise sleep the worker polls.
    #[must_use]
    pub fn with_spin(self, spin: Duration) -> NetOptions {
        NetOptions { spin, ..self }
    }

    /// Sets how long a worker that has something to do lets further events gather.
    #[must_use]
    pub fn with_min_wait(self, min_wait: Duration) -> NetOptions {
        NetOptions { min_wait, ..self }
    }

    /// Sets how many transfers a coroutine may make per turn.
    #[must_use]
    pub fn with_budget(self, budget: u32) -> NetOptions {
        NetOptions { budget, ..self }
    }

    /// Sets how many connections there may be at a time.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> NetOptions {
        NetOptions { connections, ..self }
    }

    /// Sets whether connections that wait for their peer within a message count as idle.
    #[must_use]
    pub fn with_waiting_is_idle(self, waiting_is_idle: bool) -> NetOptions {
        NetOptions { waiting_is_idle, ..self }
    }

    /// Sets the lowest rate at which peers may take what is sent; `None`: no limit.
    #[must_use]
    pub fn with_min_rate(self, min_rate: impl Into<Option<MinRate>>) -> NetOptions {
        NetOptions { min_rate: min_rate.into(), ..self }
    }

    /// Sets how many bytes of a body a coroutine sends in its turn; `None`: chosen by the worker.
    #[must_use]
    pub fn with_send_budget(self, send_budget: impl Into<Option<NonZeroU64>>) -> NetOptions {
        NetOptions { send_budget: send_budget.into(), ..self }
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
        let rate = |window| MinRate::new(NonZeroU64::MIN, window);
        let dispatch = mechanism::MechanismOptions::default;
        type Change = Box<dyn Fn(NetOptions) -> NetOptions>;
        let cases: [(&str, Change); 15] = [
            ("min_wait", Box::new(|options| options.with_min_wait(Duration::from_secs(2)))),
            ("input_capacity", Box::new(|options| options.with_input_capacity(0))),
            ("input_capacity", Box::new(|options| options.with_input_capacity(usize::MAX))),
            ("timer_resolution", Box::new(|options| options.with_timer_resolution(Duration::ZERO))),
            ("budget", Box::new(|options| options.with_budget(0))),
            ("connections", Box::new(|options| options.with_connections(0))),
            ("window", Box::new(move |options| options.with_min_rate(rate(Duration::ZERO)))),
            ("window", Box::new(move |options| options.with_min_rate(rate(Duration::MAX)))),
            (
                "events_per_wait",
                Box::new(move |options| options.with_dispatch(dispatch().with_events_per_wait(0))),
            ),
            (
                "events_per_wait",
                Box::new(move |options| {
                    options.with_dispatch(dispatch().with_events_per_wait(usize::MAX))
                }),
            ),
            (
                "completions",
                Box::new(move |options| options.with_dispatch(dispatch().with_completions(0))),
            ),
            (
                "receive_buffers",
                Box::new(move |options| options.with_dispatch(dispatch().with_receive_buffers(1))),
            ),
            (
                "receive_buffers",
                Box::new(move |options| {
                    options.with_dispatch(dispatch().with_receive_buffers(1000))
                }),
            ),
            (
                "read_ahead",
                Box::new(|options| options.with_file_options(fileio::FileIoOptions::new(0, 1))),
            ),
            (
                "read_threads",
                Box::new(|options| options.with_file_options(fileio::FileIoOptions::new(1, 0))),
            ),
        ];
        for mechanism in mechanisms::ALL {
            NetOptions::new(mechanism).check().unwrap();
            for (setting, change) in &cases {
                let error = Net::open(&change(NetOptions::new(mechanism))).err().unwrap();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{setting}: {error}");
                assert!(error.to_string().contains(&format!("::{setting} is ")), "{error}");
            }
        }
    }
}
