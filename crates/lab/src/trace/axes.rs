//! The axes of a panel as inline SVG: ticks, grid and labels.
//!
//! Colours come from the page's style sheet: `--s0`, `--s1` and so on, by the index of the series.

use std::fmt::Write;

use super::page::{escaped, number};

pub(super) const WIDTH: f64 = 536.0;
pub(super) const HEIGHT: f64 = 330.0;
pub(super) const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 512.0;
pub(super) const TOP: f64 = 14.0;
pub(super) const BOTTOM: f64 = 284.0;

/// The number of colours in the style sheet.
const COLOURS: usize = 16;

/// The colour of the series with index `place`: a number that the style sheet and the script know.
pub(super) fn colour(place: usize) -> usize {
    place % COLOURS
}

/// Draws the axes with their ticks and labels.
pub(super) fn draw_grid(
    out: &mut String,
    x_label: &str,
    y_label: &str,
    x: &PlotAxis,
    y: &PlotAxis,
) {
    for tick in &y.ticks {
        let at = y.place(*tick);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>\
             <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(*tick)
        );
    }
    for tick in &x.ticks {
        let at = x.place(*tick);
        let _ = write!(
            out,
            "<path class=\"axis\" d=\"M{at:.1} {BOTTOM}v5\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            short(*tick)
        );
    }
    let _ = write!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>\
         <text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text class=\"label\" transform=\"translate(14 {}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, RIGHT),
        HEIGHT - 6.0,
        escaped(x_label),
        f64::midpoint(TOP, BOTTOM),
        escaped(y_label)
    );
}

/// A tick's label of at most five characters.
fn short(tick: f64) -> String {
    match tick {
        1e6.. => format!("{}M", number(tick / 1e6)),
        1e4.. => format!("{}k", number(tick / 1e3)),
        _ => number(tick),
    }
}

/// An axis: maps values to positions.
pub(super) struct PlotAxis {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) logarithmic: bool,
    pub(super) ticks: Vec<f64>,
}

impl PlotAxis {
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.start) / self.start).ln() / (self.end / self.start).ln()
        } else {
            (value - self.start) / (self.end - self.start)
        };
        self.from + share * (self.to - self.from)
    }
}

pub(super) fn last(ticks: &[f64]) -> f64 {
    ticks.last().copied().unwrap_or(1.0)
}

/// Round numbers from 0 to `highest` or just beyond, about `count` of them.
pub(super) fn linear_ticks(highest: f64, count: u32) -> Vec<f64> {
    if highest <= 0.0 || !highest.is_finite() {
        return vec![0.0, 1.0];
    }
    let rough = highest / f64::from(count);
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * magnitude);
    let steps = (highest / step - 1e-9).ceil() as u32;
    (0..=steps).map(|n| f64::from(n) * step).collect()
}

/// Ticks of 1, 2 and 5 times powers of ten. The first is at most `least`, the last at least `highest`.
pub(super) fn logarithmic_ticks(least: f64, highest: f64) -> Vec<f64> {
    let decades = least.log10().floor() as i32..=highest.log10().ceil() as i32;
    let all: Vec<f64> = decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)))
        .collect();
    let begin = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let end = all.iter().position(|tick| *tick >= highest).unwrap_or(all.len() - 1);
    all[begin..=end.max(begin + 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_enclose_the_values() {
        assert_eq!(linear_ticks(3000.0, 6), [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0]);
        assert_eq!(linear_ticks(10.3, 6), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(linear_ticks(0.0, 6), [0.0, 1.0]);
    }

    #[test]
    fn logarithmic_ticks_enclose_the_values() {
        assert_eq!(logarithmic_ticks(0.7, 12.0), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(logarithmic_ticks(5.0, 5.0), [5.0, 10.0]);
    }

    #[test]
    fn ticks_have_room() {
        let ticks = [0.0, 0.5, 2500.0, 1e4, 12_500.0, 2e5, 5e6].map(short);
        assert_eq!(ticks, ["0", "0.5", "2500", "10k", "12.5k", "200k", "5M"]);
    }

    /// Every series has a colour, in the light and in the dark style.
    #[test]
    fn the_style_sheet_has_every_colour() {
        let sheet = include_str!("style.css");
        for place in 0..COLOURS {
            assert_eq!(sheet.matches(&format!("--s{place}: #")).count(), 2, "{place}");
            assert!(sheet.contains(&format!(".s{place} {{ --c: var(--s{place}); }}")), "{place}");
        }
    }

    #[test]
    fn axes_run_from_edge_to_edge() {
        let axis = |start, end, from, to, logarithmic| PlotAxis {
            start,
            end,
            from,
            to,
            logarithmic,
            ticks: Vec::new(),
        };
        let x = axis(0.0, 70.0, LEFT, RIGHT, false);
        assert_eq!((x.place(0.0), x.place(70.0)), (LEFT, RIGHT));
        let y = axis(1.0, 100.0, BOTTOM, TOP, true);
        assert_eq!((y.place(1.0), y.place(100.0)), (BOTTOM, TOP));
        assert!((y.place(10.0) - f64::midpoint(TOP, BOTTOM)).abs() < 1e-9);
        assert_eq!(y.place(0.0), BOTTOM, "a logarithmic axis has no zero");
    }
}
