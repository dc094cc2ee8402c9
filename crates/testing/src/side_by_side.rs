//! Cases that have nothing to do with each other, some of them at the same time: most of a case that starts a server is
//! waiting, for the server, for a limit, for the rest of a grace.

use std::fmt::Debug;
use std::panic::resume_unwind;
use std::thread;

/// How many cases of all tests run at the same time, of which there are as many as processors: each may have a ring, whose
/// memory is limited for an ordinary user.
const CASES_MOST: usize = 8;

/// How many cases of a test run at the same time: up to 4, from which on two processors are busy.
fn threads() -> usize {
    let tests = thread::available_parallelism().map_or(1, usize::from);
    (CASES_MOST / tests).clamp(1, 4)
}

/// Runs `case` on each item, some of them at the same time: each thread takes items that follow each other, in their
/// order, and ends with the first that fails.
///
/// The threads have the name of the calling one, which is the test's, so that [`skip!`](crate::skip) knows it.
///
/// # Panics
/// Once all threads have ended, if a case has failed; what it failed on is printed.
pub fn side_by_side<T: Debug + Sync>(items: &[T], case: impl Fn(&T) + Sync) {
    let run = |items: &[T]| {
        for item in items {
            let _told = OnPanic(item);
            case(item);
        }
    };
    let name = thread::current().name().unwrap_or("a thread of a test").to_owned();
    thread::scope(|scope| {
        let spawn = |items| {
            thread::Builder::new()
                .name(name.clone())
                .spawn_scoped(scope, move || run(items))
                .unwrap()
        };
        let size = items.len().div_ceil(threads()).max(1);
        let threads: Vec<_> = items.chunks(size).map(spawn).collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).last();
        if let Some(panic) = failed {
            resume_unwind(panic);
        }
    });
}

/// Prints the item of the case that has failed.
struct OnPanic<'i, T: Debug>(&'i T);

impl<T: Debug> Drop for OnPanic<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("failed: {:?}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_item_is_a_case_and_one_that_fails_fails_the_test() {
        let seen = Mutex::new(Vec::new());
        side_by_side(&[3, 1, 4, 1, 5, 9, 2], |item| seen.lock().unwrap().push(*item));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [1, 1, 2, 3, 4, 5, 9]);
        for failing in 0..9 {
            let items: Vec<_> = (0..9).collect();
            let outcome = catch_unwind(|| side_by_side(&items, |item| assert_ne!(*item, failing)));
            assert!(outcome.is_err(), "{failing}");
        }
        side_by_side(&[0; 0], |_| unreachable!());
    }

    #[test]
    fn cases_run_at_the_same_time_under_the_name_of_the_test() {
        let all_there = std::sync::Barrier::new(threads());
        let name = thread::current().name().map(str::to_owned);
        side_by_side(&vec![(); threads()], |()| {
            all_there.wait();
            assert_eq!(thread::current().name(), name.as_deref());
        });
    }
}
