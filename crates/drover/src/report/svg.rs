//! One panel of a figure as inline SVG: lines, markers and intervals against a linear x axis.
//!
//! Colours come from the page's style sheet (`--s0` … by the series' place); the markers' shape and
//! the line's dashes repeat the distinction for those who see no colour.

use std::fmt::Write;

use super::html::escape;
use super::number;
use crate::lab::stats::Estimate;

/// What one panel shows.
pub(super) struct Panel<'a> {
    /// What the x axis counts.
    pub(super) x_label: &'a str,
    /// What the y axis counts, with its unit.
    pub(super) y_label: &'a str,
    /// Whether the y axis is logarithmic.
    pub(super) logarithmic: bool,
    /// The lines, in the order of the legend.
    pub(super) series: &'a [Series],
}

/// One line.
pub(super) struct Series {
    /// Its place in the legend, which gives its colour, marker and dashes.
    pub(super) place: usize,
    /// Its name.
    pub(super) name: String,
    /// Its points, in ascending order of x.
    pub(super) points: Vec<(f64, Estimate)>,
}

pub(super) const WIDTH: f64 = 536.0;
pub(super) const HEIGHT: f64 = 330.0;
pub(super) const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 512.0;
pub(super) const TOP: f64 = 14.0;
pub(super) const BOTTOM: f64 = 284.0;

/// How many colours the style sheet has.
const COLOURS: usize = 16;

/// The colour of the series at `place`: a number in the style sheet, and in the script.
pub(super) fn colour(place: usize) -> usize {
    place % COLOURS
}

/// Line patterns; a series takes the one at its place, from the start again when they run out.
const DASHES: [&str; 6] = ["", "7 3", "2 3", "9 3 2 3", "4 4", "12 4"];

/// Marker outlines around (0, 0), filled or open by turns.
const MARKERS: [&str; 6] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -4.8L4.5 3.4h-9z",
    "M0 -5L5 0L0 5L-5 0z",
    "M0 4.8L4.5 -3.4h-9z",
    "M-4.5 -1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",
];

/// The outline and dashes of the series at `place`, for its key in the legend.
pub(super) fn key(place: usize) -> String {
    format!(
        "<svg class=\"key s{}\" viewBox=\"0 0 36 12\" aria-hidden=\"true\">\
         <path class=\"line\" stroke-dasharray=\"{}\" d=\"M0 6H36\"/>\
         <path class=\"{}\" transform=\"translate(18 6)\" d=\"{}\"/></svg>",
        colour(place),
        DASHES[place % DASHES.len()],
        marker_class(place),
        MARKERS[place % MARKERS.len()],
    )
}

/// Draws the panel. The `data-` attributes tell the page's script where the plot lies.
pub(super) fn draw(panel: &Panel) -> String {
    let x = x_axis(panel.series);
    let y = y_axis(panel.series, panel.logarithmic);
    let mut out = format!(
        "<svg class=\"panel\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{} against {}\" data-left=\"{LEFT}\" data-right=\"{RIGHT}\" \
         data-width=\"{WIDTH}\" data-max=\"{}\">",
        escape(panel.y_label),
        escape(panel.x_label),
        x.end,
    );
    draw_grid(&mut out, panel.x_label, panel.y_label, &x, &y);
    for series in panel.series {
        draw_series(&mut out, series, &x, &y);
    }
    let _ = write!(out, "<path class=\"cross\" d=\"M0 {TOP}V{BOTTOM}\"/></svg>");
    out
}

/// Draws the axes with their ticks and labels.
pub(super) fn draw_grid(out: &mut String, x_label: &str, y_label: &str, x: &Axis, y: &Axis) {
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
        escape(x_label),
        f64::midpoint(TOP, BOTTOM),
        escape(y_label)
    );
}

/// A number beside an axis, where there is room for five characters.
fn short(tick: f64) -> String {
    match tick {
        1e6.. => format!("{}M", number(tick / 1e6)),
        1e4.. => format!("{}k", number(tick / 1e3)),
        _ => number(tick),
    }
}

fn draw_series(out: &mut String, series: &Series, x: &Axis, y: &Axis) {
    let place = series.place;
    let mut line = String::new();
    let mut marks = String::new();
    for (at, estimate) in &series.points {
        let (px, py) = (x.place(*at), y.place(estimate.value));
        let _ = write!(line, "{}{px:.1} {py:.1}", if line.is_empty() { 'M' } else { 'L' });
        let (low, high) = (y.place(estimate.low), y.place(estimate.high));
        let _ = write!(
            marks,
            "<path class=\"interval\" d=\"M{px:.1} {low:.1}V{high:.1}m-3 0h6M{:.1} {low:.1}h6\"/>\
             <path class=\"{}\" transform=\"translate({px:.1} {py:.1})\" d=\"{}\">\
             <title>{} at {}: {} ({} … {})</title></path>",
            px - 3.0,
            marker_class(place),
            MARKERS[place % MARKERS.len()],
            escape(&series.name),
            number(*at),
            number(estimate.value),
            number(estimate.low),
            number(estimate.high)
        );
    }
    let _ = write!(
        out,
        "<g class=\"series s{}\" data-series=\"{}\">\
         <path class=\"line\" stroke-dasharray=\"{}\" d=\"{line}\"/>{marks}</g>",
        colour(place),
        escape(&series.name),
        DASHES[place % DASHES.len()]
    );
}

fn marker_class(place: usize) -> &'static str {
    if place.is_multiple_of(2) { "marker" } else { "marker open" }
}

/// An axis: from values to positions.
pub(super) struct Axis {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) logarithmic: bool,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.start) / self.start).ln() / (self.end / self.start).ln()
        } else {
            (value - self.start) / (self.end - self.start)
        };
        self.from + share * (self.to - self.from)
    }
}

fn x_axis(series: &[Series]) -> Axis {
    let all = series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
    let ticks = linear_ticks(all.fold(0.0, f64::max), 7);
    Axis { start: 0.0, end: last(&ticks), from: LEFT, to: RIGHT, logarithmic: false, ticks }
}

fn y_axis(series: &[Series], logarithmic: bool) -> Axis {
    let all = || series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    let highest = all().map(|estimate| estimate.high).fold(0.0, f64::max);
    let least = all().map(|e| e.low).filter(|low| *low > 0.0).fold(f64::INFINITY, f64::min);
    let logarithmic = logarithmic && least.is_finite();
    let ticks =
        if logarithmic { logarithmic_ticks(least, highest) } else { linear_ticks(highest, 6) };
    let start = if logarithmic { ticks[0] } else { 0.0 };
    Axis { start, end: last(&ticks), from: BOTTOM, to: TOP, logarithmic, ticks }
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

/// 1, 2 and 5 times powers of ten that enclose `least` and `highest`.
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

    fn exact(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

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

    /// Every series of an experiment has a colour of its own, by day and by night.
    #[test]
    fn the_style_sheet_has_colours_for_the_largest_experiment() {
        let sheet = include_str!("style.css");
        for place in 0..COLOURS {
            assert_eq!(sheet.matches(&format!("--s{place}: #")).count(), 2, "{place}");
            assert!(sheet.contains(&format!(".s{place} {{ --c: var(--s{place}); }}")), "{place}");
        }
        let built_in = crate::lab::experiment::Experiment::built_in().into_iter();
        let largest = built_in.map(|experiment| experiment.mechanisms.len()).max();
        assert!(largest.unwrap() <= COLOURS, "{largest:?}");
        assert!(key(COLOURS + 3).contains("class=\"key s3\""));
    }

    #[test]
    fn axes_run_from_edge_to_edge() {
        let series = [Series {
            place: 0,
            name: "a".into(),
            points: vec![(10.0, exact(1.0)), (70.0, exact(100.0))],
        }];
        let x = x_axis(&series);
        assert_eq!((x.place(0.0), x.place(70.0)), (LEFT, RIGHT));
        let y = y_axis(&series, true);
        assert_eq!((y.place(1.0), y.place(100.0)), (BOTTOM, TOP));
        assert!((y.place(10.0) - f64::midpoint(TOP, BOTTOM)).abs() < 1e-9);
        assert_eq!(y.place(0.0), BOTTOM, "a logarithmic axis has no zero");
    }

    #[test]
    fn a_panel_names_its_series_and_escapes_them() {
        let series = [Series { place: 1, name: "a<b".into(), points: vec![(1.0, exact(2.0))] }];
        let panel = Panel { x_label: "x", y_label: "y", logarithmic: false, series: &series };
        let drawing = draw(&panel);
        assert!(drawing.contains("data-series=\"a&lt;b\""));
        assert!(drawing.contains("<title>a&lt;b at 1: 2 (2 … 2)</title>"));
        assert!(!drawing.contains("a<b"));
    }

    #[test]
    fn a_panel_without_points_is_drawn_empty() {
        let panel = Panel { x_label: "x", y_label: "y", logarithmic: true, series: &[] };
        assert!(draw(&panel).ends_with("</svg>"));
    }
}
