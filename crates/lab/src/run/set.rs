//! One run of a set: its servers are alive at once, and are driven in turns. So the cells are measured within milliseconds of each
//! other, and a slower machine is slower for all of them.

use super::cell::{Around, Ground, Measurement, One, StartedServer, set_lifted, urls};
use super::{RunOptions, Session};
use crate::analysis::summary::{deviation, mean};
use crate::analysis::turns::typical;
use crate::drive::{Driven, HttpLoad, LoadDriver, Moment, Target, TurnedLoad, Warm};
use crate::failure::Failure;
use crate::instrument::memory::IdleMemory;
use crate::instrument::reading;
use crate::site::RunSite;
use crate::spec::phases::Until;
use crate::subject::{Scene, WorkFolder};

/// A server of the set, with its own load.
struct Member<'o> {
    one: One<'o, 'o>,
    server: StartedServer,
    load: TurnedLoad,
    warm: Option<Warm>,
    around: Around,
    turns: Vec<Turn>,
}

/// What a turn of a server took.
#[derive(Clone, Copy, Debug)]
struct Turn {
    responses: f64,
    seconds: f64,
    /// CPU time of the server in the turn, and since the one before it, between which nobody asked it for anything.
    cpu_s: f64,
}

impl Session<'_> {
    /// Runs the cells of a set once, at the same time. A cell that fails leaves the set, and the others go on.
    pub(super) fn measure_set(
        &mut self,
        cells: &[usize],
        round: u32,
    ) -> Vec<Result<Measurement, Failure>> {
        let work = self.work();
        let whole = WorkFolder::create(&work);
        let grounds: Vec<Result<Ground<'_>, Failure>> = cells
            .iter()
            .enumerate()
            .map(|(number, cell)| {
                self.options.interrupt.check()?;
                self.ground(*cell, round, &work.join(number.to_string()))
            })
            .collect();
        let mut open = |ground: &Ground<'_>| {
            let site = self.store.open(&ground.pools, &ground.scene(self.options));
            site.map_err(Failure::of_lab)
        };
        let served: Vec<Result<ServedGround<'_>, Failure>> = grounds
            .iter()
            .map(|ground| {
                let ground = ground.as_ref().map_err(Failure::clone)?;
                Ok(ServedGround { site: open(ground)?, ground })
            })
            .collect();
        let scenes: Vec<Result<Scene<'_>, Failure>> = served
            .iter()
            .map(|ground| Ok(ground.as_ref().map_err(Failure::clone)?.scene(self.options)))
            .collect();
        let begun = std::iter::zip(&served, &scenes).map(|(ground, scene)| {
            let ground = ground.as_ref().map_err(Failure::clone)?;
            let scene = scene.as_ref().map_err(Failure::clone)?;
            Member::begin(One { session: self, scene, ground: ground.ground }, ground.site.as_ref())
        });
        let mut members: Vec<Result<Member<'_>, Failure>> = begun.collect();
        take_turns(&mut members);
        let measured = members.into_iter().map(|member| member.and_then(Member::end)).collect();
        drop(whole);
        in_step(measured)
    }
}

/// Where a server of the set runs, with the files that it serves.
struct ServedGround<'p> {
    ground: &'p Ground<'p>,
    site: Option<RunSite>,
}

impl ServedGround<'_> {
    fn scene<'a>(&'a self, options: &'a RunOptions) -> Scene<'a> {
        let root = self.site.as_ref().map(|site| site.root.as_path());
        Scene { root, ..self.ground.scene(options) }
    }
}

/// Lets each server have its turns, as many cycles as its window has.
fn take_turns(members: &mut [Result<Member<'_>, Failure>]) {
    let cycles = members.iter().flatten().map(|member| member.load.turns()).max().unwrap_or(0);
    for cycle in 0..cycles {
        for number in order(members.len(), cycle) {
            if let Ok(member) = &mut members[number]
                && let Err(failure) = member.turn()
            {
                members[number] = Err(failure);
            }
        }
    }
}

/// Who has the turns of a cycle, one after the other: there and back, and each time from the next on, so that what one leaves to
/// another in the processor's caches meets all alike.
fn order(members: usize, cycle: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members).collect();
    order.rotate_left((cycle / 2) as usize % members.max(1));
    if cycle % 2 == 1 {
        order.reverse();
    }
    order
}

impl<'o> Member<'o> {
    /// Starts a server and opens the connections of its load.
    fn begin(one: One<'o, 'o>, site: Option<&RunSite>) -> Result<Member<'o>, Failure> {
        let phases = one.phases()?;
        let http = one.session.experiment.load.http.as_ref();
        let http = http.ok_or_else(|| Failure::failed("turns need a load of HTTP"))?;
        let urls = site.and_then(|site| urls(&site.urls, Some(http)));
        let http = HttpLoad { http };
        let turn = phases.turn.filter(|turn| !turn.is_zero());
        let turn = turn.ok_or_else(|| Failure::failed("a turn has no length"))?;
        // The generator knows a single turn as a window in one piece.
        let turns = phases.at_least.as_nanos().div_ceil(turn.as_nanos()).max(2) as u32;
        let target = Target { scene: one.scene, urls, is_cold: false };
        // Those of the machine's idle time and disks cannot tell the servers of a set apart.
        let mut instruments = one.common_instruments();
        instruments.extend(one.server_counters());
        let mut server = one.start(instruments)?;
        let warm = match phases.until {
            Until::Steady => http.warm_up(&mut server.running, &target, phases.warm_up)?,
            Until::Connected | Until::Nothing => None,
        };
        if let Some(idle) = one.idle_connections() {
            server.instruments.push(Box::new(IdleMemory::before(idle, &server.running)));
        }
        set_lifted(server.share.as_ref(), true)?;
        let load = http.take_turns(&server.running, &target, (turns, turn), warm.as_ref())?;
        set_lifted(server.share.as_ref(), false)?;
        let mut around = Around::default();
        let StartedServer { running, instruments, .. } = &mut server;
        around.at(Moment::Begin, running, instruments)?;
        let member = Member { one, server, load, warm, around, turns: Vec::new() };
        member.set_paused(true);
        Ok(member)
    }

    /// What slows the server takes nothing from the others in their turns.
    fn set_paused(&self, is_paused: bool) {
        if let Some(share) = &self.server.share {
            share.set_paused(is_paused);
        }
    }

    fn turn(&mut self) -> Result<(), Failure> {
        self.set_paused(false);
        let turn = self.load.turn();
        self.set_paused(true);
        let turn = turn?;
        let cpu_s = self.around.cpu_s(&mut self.server.running).unwrap_or(f64::NAN);
        let before: f64 = self.turns.iter().map(|turn| turn.cpu_s).sum();
        self.turns.push(Turn {
            responses: turn.responses as f64,
            seconds: turn.seconds,
            cpu_s: cpu_s - before,
        });
        Ok(())
    }

    /// Ends server and load. The values are those of all turns together.
    fn end(mut self) -> Result<(Measurement, Vec<Turn>), Failure> {
        let StartedServer { running, instruments, .. } = &mut self.server;
        self.around.at(Moment::End, running, instruments)?;
        let driven: Driven = self.load.finish()?;
        // What was read is of the whole time, in which the processors also worked for the other servers.
        let whole = std::mem::replace(&mut self.around.seconds, driven.seconds);
        let values = &mut self.around.readings.values;
        values.remove(reading::IDLE_S);
        let processors = self.one.processors().len() as f64;
        values.insert(reading::CAPACITY_S.to_owned(), driven.seconds * processors);
        values.entry("overflows".to_owned()).and_modify(|rate| *rate *= whole / driven.seconds);
        let measured = self.one.conclude(self.server, self.around, driven, self.warm, None)?;
        Ok((measured, self.turns))
    }
}

/// Replaces the rates and costs of the cells by those of their typical turns.
fn in_step(
    measured: Vec<Result<(Measurement, Vec<Turn>), Failure>>,
) -> Vec<Result<Measurement, Failure>> {
    let series = |of: fn(&Turn) -> f64| {
        let of_member = |(_, turns): &(Measurement, Vec<Turn>)| turns.iter().map(of).collect();
        typical(&measured.iter().flatten().map(of_member).collect::<Vec<Vec<f64>>>())
    };
    let costs = series(|turn| turn.cpu_s / turn.responses);
    let rates = series(|turn| turn.responses / turn.seconds);
    let shares = series(|turn| turn.cpu_s / turn.seconds);
    let mut number = 0;
    let put = |one: Result<(Measurement, Vec<Turn>), Failure>| {
        let (mut measurement, turns) = one?;
        let own = |values: &Option<Vec<f64>>| values.as_ref().map(|values| values[number]);
        let (cost, rate, share) = (own(&costs), own(&rates), own(&shares));
        number += 1;
        let sum = |of: fn(&Turn) -> f64| turns.iter().map(of).sum::<f64>();
        let (cpu_s, seconds, responses) =
            (sum(|turn| turn.cpu_s), sum(|turn| turn.seconds), sum(|turn| turn.responses));
        let mut scale = |names: &[&str], typical: Option<f64>, mean: f64| {
            let Some(factor) = typical.map(|it| it / mean).filter(|it| it.is_finite()) else {
                return;
            };
            for name in names {
                if let Some(value) = measurement.values.get_mut(*name) {
                    *value *= factor;
                }
            }
        };
        scale(&["cpu-per-response", "cpu-per-megabyte"], cost, cpu_s / responses);
        let per_cpu = ["responses-per-cpu", "megabytes-per-cpu", "handshakes-per-cpu"];
        scale(&per_cpu, cost.map(f64::recip), responses / cpu_s);
        scale(&["response-rate", "throughput"], rate, responses / seconds);
        scale(&["cpu-percent", "busy-percent"], share, cpu_s / seconds);
        let rates: Vec<f64> = turns.iter().map(|turn| turn.responses / turn.seconds).collect();
        measurement
            .values
            .insert("rate-variation".to_owned(), 100.0 * deviation(&rates) / mean(&rates));
        measurement.artefacts["turns"] = serde_json::json!({
            "responses": turns.iter().map(|turn| turn.responses).collect::<Vec<_>>(),
            "seconds": turns.iter().map(|turn| turn.seconds).collect::<Vec<_>>(),
            "cpu_s": turns.iter().map(|turn| turn.cpu_s).collect::<Vec<_>>(),
        });
        Ok(measurement)
    };
    measured.into_iter().map(put).collect()
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn each_has_every_turn_of_a_cycle_equally_often() {
        assert_eq!(
            (0..4).map(|cycle| order(2, cycle)).collect::<Vec<_>>(),
            [[0, 1], [1, 0], [1, 0], [0, 1]]
        );
        for members in 1..6 {
            let cycles: Vec<Vec<usize>> =
                (0..2 * members as u32).map(|cycle| order(members, cycle)).collect();
            for (turn, member) in
                (0..members).flat_map(|turn| (0..members).map(move |it| (turn, it)))
            {
                let times = cycles.iter().filter(|order| order[turn] == member).count();
                assert_eq!(times, 2, "member {member} of {members}, turn {turn}");
            }
        }
    }
}
