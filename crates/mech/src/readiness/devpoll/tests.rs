//! The device's calls, on each model of /dev/poll, and on the kernel's where there is one.

use std::collections::BTreeSet;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

use super::*;

fn entry(fd: &impl AsRawFd, events: i16) -> PollFd {
    PollFd { fd: fd.as_raw_fd(), events, revents: 0 }
}

fn readable() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(b"x").unwrap();
    (reader, writer)
}

/// Runs a case on a device of each model, and on the kernel's if there is one.
fn on_each(area_size: usize, case: impl Fn(ModelOrKernel)) {
    for bits in 0..=DevPollModel::all().bits() {
        let model = DevPollModel::from_bits_truncate(bits);
        case(ModelOrKernel::Model(DevPoll::open_model(area_size, model).unwrap()));
        if is_real() {
            case(ModelOrKernel::Kernel(KernelDevice::open(area_size, model).unwrap()));
        }
    }
}

impl ModelOrKernel {
    fn is_polled(&self, fd: RawFd) -> Option<i16> {
        match self {
            ModelOrKernel::Model(model) => model.is_polled(fd),
            ModelOrKernel::Kernel(device) => device.is_polled(fd).unwrap(),
        }
    }
}

fn look(device: &mut ModelOrKernel, dp_nfds: usize) -> Vec<RawFd> {
    let ready = device.poll(dp_nfds, Some(Duration::ZERO)).unwrap();
    ready.iter().map(|entry| entry.fd).collect()
}

#[test]
fn a_second_write_replaces_the_events() {
    on_each(8, |mut device| {
        let (reader, _writer) = readable();
        device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
        device.write(&[entry(&reader, libc::POLLPRI)]).unwrap();
        assert_eq!(device.is_polled(reader.as_raw_fd()), Some(libc::POLLPRI));
        assert!(look(&mut device, 8).is_empty());
        device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
        assert_eq!(look(&mut device, 8), [reader.as_raw_fd()]);
    });
}

#[test]
fn pollremove_takes_out_what_is_in_and_ignores_what_is_not() {
    on_each(8, |mut device| {
        let pipes = [readable(), readable(), readable()];
        let fds = pipes.each_ref().map(|(reader, _)| reader.as_raw_fd());
        device.write(&pipes.each_ref().map(|(reader, _)| entry(reader, libc::POLLIN))).unwrap();
        device.write(&[entry(&pipes[0].0, POLLREMOVE), entry(&pipes[0].0, POLLREMOVE)]).unwrap();
        assert_eq!(device.is_polled(fds[0]), None);
        let ready: BTreeSet<RawFd> = look(&mut device, 8).into_iter().collect();
        assert_eq!(ready, fds[1..].iter().copied().collect());
    });
}

#[test]
fn dp_nfds_and_the_area_limit_the_results_and_the_rest_comes_next() {
    on_each(3, |mut device| {
        let pipes: Vec<_> = (0..5).map(|_| readable()).collect();
        for (reader, _) in &pipes {
            device.write(&[entry(reader, libc::POLLIN)]).unwrap();
        }
        let mut seen = look(&mut device, 2);
        assert_eq!(seen.len(), 2);
        let next = look(&mut device, 100);
        assert_eq!(next.len(), 3, "the area holds three");
        seen.extend(next);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5, "all were reported before one was repeated");
    });
}

#[test]
fn a_descriptor_closed_behind_its_back_is_dropped_and_the_wait_goes_on() {
    on_each(8, |mut device| {
        let (reader, _writer) = readable();
        let fd = reader.as_raw_fd();
        // A high number, which no other test in this process gets after the close.
        let high = rustix::io::fcntl_dupfd_cloexec(&reader, fd + 500).unwrap();
        device.write(&[entry(&high, libc::POLLIN)]).unwrap();
        let closed = high.as_raw_fd();
        drop(high);
        let timeout = Duration::from_millis(20);
        let begin = Instant::now();
        assert!(device.poll(8, Some(timeout)).unwrap().is_empty());
        assert!(begin.elapsed() >= timeout, "the drop alone ended the wait");
        assert_eq!(device.is_polled(closed), None);
    });
}

#[test]
fn a_negative_descriptor_is_refused() {
    on_each(1, |mut device| {
        let error = device.write(&[PollFd { fd: -1, events: 1, revents: 0 }]);
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EBADF));
    });
}

/// Descriptors come, are copied, closed and used again behind the device's back, while other threads write and close at the
/// other end: nothing is reported that is not in the set, and the kernel's memory stays whole.
#[test]
fn descriptors_may_be_closed_copied_and_used_again_at_any_moment() {
    const SLOTS: usize = 32;
    on_each(16, |mut device| {
        let (sender, receiver) = std::sync::mpsc::channel::<PipeWriter>();
        let peers = std::thread::spawn(move || {
            for (number, mut peer) in receiver.into_iter().enumerate() {
                if number % 3 > 0 {
                    // It fails once the other end is closed.
                    let _ = peer.write_all(b"x");
                }
            }
        });
        let mut slots: Vec<Option<PipeReader>> = (0..SLOTS).map(|_| None).collect();
        let mut random = 88_172_645_463_325_252_u64;
        for round in 0..400 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random as usize % SLOTS;
            match (random >> 32) % 8 {
                0 => slots[at] = None,
                1 if slots[at].is_some() => {
                    let copy = slots[at].as_ref().map(|it| it.try_clone().unwrap());
                    // The file stays open by another descriptor.
                    slots[at] = copy;
                }
                2 => {
                    if let Some(reader) = &slots[at] {
                        device.write(&[entry(reader, POLLREMOVE)]).unwrap();
                    }
                }
                3 => {
                    let open: Vec<RawFd> = slots.iter().flatten().map(AsRawFd::as_raw_fd).collect();
                    let ready = look(&mut device, 8);
                    // The model knows numbers alone, and another test may have those that were closed here.
                    let knows_files = matches!(device, ModelOrKernel::Kernel(_));
                    let is_open = |fd: &RawFd| !knows_files || open.contains(fd);
                    assert!(ready.iter().all(is_open), "{ready:?} of {open:?}");
                }
                _ => {
                    let (reader, writer) = pipe().unwrap();
                    device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
                    sender.send(writer).unwrap();
                    slots[at] = Some(reader);
                }
            }
            if round == 200 {
                // A child has copies of all of them for a moment.
                std::process::Command::new("/proc/self/exe").arg("--list").output().unwrap();
            }
        }
        // One half is closed before the device, the other after it.
        slots.truncate(SLOTS / 2);
        drop(sender);
        drop(device);
        peers.join().unwrap();
    });
}

#[test]
fn with_hints_the_device_asks_those_files_alone_that_have_changed() {
    if !is_real() {
        return drover_testing::skip!("this kernel has no /dev/poll (kernel/devpoll)");
    }
    let models = [DevPollModel::empty(), DevPollModel::HINTS, DevPollModel::READY_LIST];
    for (model, expected) in models.into_iter().zip([100, 1, 1]) {
        let mut device = KernelDevice::open(8, model).unwrap();
        let mut pipes: Vec<_> = (0..100).map(|_| pipe().unwrap()).collect();
        for (reader, _) in &pipes {
            device.write(&[entry(reader, libc::POLLIN)]).unwrap();
        }
        assert!(device.poll(8, Some(Duration::ZERO)).unwrap().is_empty());
        pipes[40].1.write_all(b"x").unwrap();
        // One that has changed, and is as it was.
        pipes[7].1.write_all(b"x").unwrap();
        pipes[7].0.read_exact(&mut [0]).unwrap();
        // What is ready is asked again, and what is not is not.
        for more in [1, 0, 0] {
            let before = device.asked().unwrap();
            assert_eq!(device.poll(8, Some(Duration::ZERO)).unwrap().len(), 1);
            let asked = device.asked().unwrap() - before;
            assert_eq!(asked, (expected + more).min(100), "{model:?}");
        }
    }
}

#[test]
fn what_could_not_be_reported_is_reported_by_the_next_wait() {
    if !is_real() {
        return drover_testing::skip!("this kernel has no /dev/poll (kernel/devpoll)");
    }
    for model in [DevPollModel::empty(), DevPollModel::HINTS, DevPollModel::READY_LIST] {
        let mut device = KernelDevice::open(8, model).unwrap();
        let (reader, mut writer) = pipe().unwrap();
        device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
        writer.write_all(b"x").unwrap();
        let error = device.poll_into_nothing().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{model:?}");
        assert_eq!(device.poll(8, Some(Duration::ZERO)).unwrap().len(), 1, "{model:?}");
    }
}
