//! The generator says of itself what it did not do right.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::run::{Run, Running, check_sums, drover, finish, load};
use crate::server::{Action, Request, Server, response, wait};
use crate::timeouts::run_in_time;

/// Stops a run for that time after so many requests.
fn stop_and_go_on(running: &Running, server: &Server, requests: u64, time: Duration) {
    server.wait_for_requests(requests);
    running.signal(Signal::STOP);
    wait(time);
    running.signal(Signal::CONT);
}

const STOP: Duration = Duration::from_millis(700);

#[test]
fn a_generator_that_was_stopped_says_that_it_was_late() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let running = Running::start(&[&server.url(), "-c", "20", "--rate", "200", "-n", "400"]);
    stop_and_go_on(&running, &server, 100, STOP);
    let run = running.finish();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!((run.number("/responses"), run.number("/unsent")), (400, 0));
    assert!(run.float("/client/paused_us") >= 600_000.0, "{}", run.json);
    // 140 were due meanwhile.
    assert!(run.number("/late_starts") >= 120, "{}", run.json);
    assert!(run.float("/client/slip_p99_us") >= 600_000.0, "{}", run.json);
    run.assert_warned("generator-stalled", None);
    run.assert_warned("late-starts", run.number("/late_starts"));
    // The stop is in no service time, unless the server was without a processor as well: its log says so.
    let (log, _) = server.log();
    let slow = |request: &&Request| request.done - request.reached >= Duration::from_millis(100);
    if log.iter().filter(slow).count() < 10 {
        assert!(run.float("/service_us/p90") < 350_000.0, "{}", run.json);
    } else {
        drover_testing::skip!("the server within the test was not given the processor");
    }
}

/// Every connection is free again, but the generator is not there to use it.
#[test]
fn what_a_stop_kept_from_being_sent_is_the_generators_doing() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let running = Running::start(&[&server.url(), "-c", "400", "--rate", "200", "-d", "2s"]);
    stop_and_go_on(&running, &server, 100, Duration::from_secs(2));
    let run = running.finish();
    // The run may be over when this thread comes to stop it.
    if run.float("/client/paused_us") < 1_500_000.0 {
        return drover_testing::skip!("the stop came late");
    }
    check_sums(&run.json);
    assert!(run.number("/unsent") > 0, "{}", run.json);
    run.assert_warned("unsent-generator-behind", run.number("/unsent"));
}

#[test]
fn a_stop_is_told_in_a_closed_loop_too() {
    let server =
        Server::always(Action::ResponseLate(Duration::from_millis(1), response("200 OK", 1)));
    let running = Running::start(&[&server.url(), "-c", "2", "-d", "1h"]);
    stop_and_go_on(&running, &server, 10, STOP);
    // The window ends after the stop, however late that comes.
    server.wait_for_requests(server.requests() + 10);
    running.signal(Signal::INT);
    let run = running.finish();
    assert!(run.float("/client/paused_us") >= 600_000.0, "{}", run.json);
    run.assert_warned("generator-stalled", None);
    run.assert_null("/client/slip_p99_us");
}

/// All requests have left, and the generator may not have heard so yet: over a ring a send is over when its completion is taken.
#[test]
fn responses_that_came_during_a_stop_right_behind_the_requests_came_in_time() {
    let late = Action::ResponseLate(Duration::from_millis(200), response("200 OK", 1));
    for mechanism in drover_mech::mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        let run = || {
            let in_time = run_in_time(
                || Server::always(late.clone()),
                |server, timeout| {
                    let url = server.url();
                    let own = ["-c", "30", "-n", "30", "--rate", "100000", "--dispatch"];
                    let own = [&[&url[..], timeout.flag], &own[..], &[mechanism.name]].concat();
                    let running = Running::start(&own);
                    stop_and_go_on(&running, server, 30, timeout.time * 3 / 2);
                    Some(running.finish())
                },
            );
            let Some((run, ..)) = in_time else { return };
            let counts = (run.number("/responses"), run.errors());
            assert_eq!(counts, (30, 0), "{}: {}", mechanism.name, run.json);
        };
        // Where the stop falls is for the scheduler to say.
        std::thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(run))));
    }
}

/// About ten requests are on their way when the generator is stopped, for longer than their time-out.
#[test]
fn responses_that_came_during_a_stop_came_in_time() {
    let run = |mechanism: &str| {
        let late = Action::ResponseLate(Duration::from_millis(200), response("200 OK", 1));
        let in_time = run_in_time(
            || Server::always(late.clone()),
            |server, timeout| {
                let url = server.url();
                let arguments = ["-c", "75", "--rate", "50", "-n", "75", "--dispatch", mechanism];
                let running = Running::start(&[&[&url, timeout.flag], &arguments[..]].concat());
                stop_and_go_on(&running, server, 25, timeout.time * 3 / 2);
                let run = running.finish();
                // The run may be over when this thread comes to stop it.
                if run.float("/client/paused_us") < timeout.time.as_micros() as f64 {
                    drover_testing::skip!("{mechanism}: the stop came late");
                }
                Some(run)
            },
        );
        let Some((run, ..)) = in_time else { return };
        assert_eq!((run.number("/responses"), run.errors()), (75, 0), "{mechanism}: {}", run.json);
    };
    // All at once: they wait most of the time.
    std::thread::scope(|scope| {
        for mechanism in drover_mech::mechanisms::ALL {
            match mechanism.probe() {
                Ok(()) => drop(scope.spawn(move || run(mechanism.name))),
                Err(reason) => drover_testing::skip!("{}: {reason}", mechanism.name),
            }
        }
    });
}

#[test]
fn a_generator_that_ran_all_the_time_was_not_paused() {
    let server =
        Server::always(Action::ResponseLate(Duration::from_millis(500), response("200 OK", 1)));
    // The server is late, and only that; unless the machine has other work to do.
    let ran_all_the_time = (0..4).any(|_| {
        let run = Running::start(&[&server.url(), "-c", "2", "-n", "2"]).finish();
        assert!(run.float("/service_us/p50") >= 500_000.0, "{}", run.json);
        run.float("/client/paused_us") < 250_000.0
    });
    if !ran_all_the_time {
        drover_testing::skip!("the generator was never given the processor when it needed it");
    }
}

/// To stay awake takes the processor, but is no work: unless the machine has other work to do.
#[test]
fn a_generator_that_only_stays_awake_is_no_bottleneck() {
    let server = Server::always(Action::Response(response("200 OK", 1)));
    for _ in 0..4 {
        let run = Running::start(&[&server.url(), "--rate", "50", "-n", "25", "--spin", "1s"]);
        let run = run.finish();
        check_sums(&run.json);
        // The 25 requests by themselves take a tenth of that.
        if run.float("/client/cpu_s") > 0.05 && run.json["client"]["saturated"] == false {
            return;
        }
        assert!(run.float("/client/scheduler_error_us") > 1000.0, "{}", run.json);
    }
    drover_testing::skip!("the generator was never given the processor when it needed it");
}

#[test]
fn what_the_connections_cannot_carry_is_a_shortfall_that_is_counted() {
    let late = Action::ResponseLate(Duration::from_millis(20), response("200 OK", 1));
    let server = Server::always(late);
    let run = load(&[&server.url(), "-c", "4", "--rate", "1000", "-d", "1500ms"]);
    let (log, connections) = server.log();
    // 4 connections get at most 75 responses each.
    let sent = run.number("/requests");
    assert_eq!((sent, connections), (log.len() as u64, 4));
    assert!((1..=300).contains(&sent), "{}", run.json);
    assert_eq!((run.number("/responses"), run.number("/unsent")), (sent, 1500 - sent));
    assert_eq!(run.float("/offered_rate"), 1000.0);
    assert!(run.float("/achieved_rate") <= 200.0, "{}", run.json);
    let unsent = ["unsent-no-connection", "unsent-generator-behind"].map(|code| run.warned(code));
    assert_eq!(unsent.concat(), [Some(1500 - sent)], "{}", run.json);
}

/// A server on this machine may use each of its processors, unless somebody keeps it from some.
#[test]
fn a_generator_knows_whether_it_shares_processors_with_the_server() {
    let usable = drover_sys::process::usable_cpus().unwrap();
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let url = server.url();
    let own = ["load", "--json", "-", &url, "-c", "1", "-n", "2"];
    let free = finish(drover(&own).output().unwrap());
    let pinned = {
        let mut command = drover(&own);
        drover_sys::process::pin(&mut command, &usable[..1]).unwrap();
        finish(command.output().unwrap())
    };
    let online = drover_sys::process::online_cpus();
    for (run, count) in [(free, usable.len()), (pinned, 1)] {
        let shares = &run.json["client"]["shares_cpus"];
        assert_eq!(shares.as_bool(), (online == Some(count)).then_some(true), "{}", run.json);
    }
}

/// Three others work on the one processor that the generator may use: it uses a quarter of it, and
/// has work all the time.
#[test]
fn a_generator_that_waits_for_its_processor_is_the_bottleneck() {
    let cpu = drover_sys::process::usable_cpus().unwrap()[0];
    let server = Server::always(Action::Response(response("200 OK", 1)));
    let url = server.url();
    let run = |pace: &[&str]| {
        let mut command = drover(&["load", "--json", "-", &url, "-c", "32"]);
        drover_sys::process::pin(command.args(pace), &[cpu]).unwrap();
        finish(command.output().unwrap())
    };
    let over = AtomicBool::new(false);
    let (closed, open) = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                drover_sys::process::pin_current_thread(cpu).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Where the machine keeps the server from its processor, the generator has nothing to do.
        let busy = |pace: &[&str]| {
            let mut runs = (0..20).map(|_| run(pace));
            let first = runs.next().unwrap();
            let is_busy = |run: &Run| run.json["client"]["saturated"] == true;
            if is_busy(&first) { first } else { runs.find(is_busy).unwrap_or(first) }
        };
        let runs = std::panic::catch_unwind(|| {
            (busy(&["-d", "1s"]), busy(&["--rate", "300000", "-d", "300ms"]))
        });
        over.store(true, Ordering::Relaxed);
        runs.unwrap()
    });
    if drover_sys::process::thread_run_delay().is_none() {
        drover_testing::skip!("the kernel does not count how long threads wait for a processor");
        return;
    }
    for run in [&closed, &open] {
        check_sums(&run.json);
        assert_eq!(run.json["client"]["saturated"], true, "{}", run.json);
        run.assert_warned("generator-saturated", None);
    }
    // Nothing of what was due is forgotten, however much it is.
    assert_eq!(open.number("/requests") + open.number("/unsent"), 90_000, "{}", open.json);
    assert_eq!(open.float("/offered_rate"), 300_000.0);
    open.assert_warned("unsent-generator-behind", open.number("/unsent"));
}
