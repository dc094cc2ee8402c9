//! A panel of points as inline SVG: one point per measurement, without a line between points.
//!
//! Points that fall on the same dot of the panel are drawn once, so that the drawing stays small and looks the same.

use std::collections::HashSet;
use std::fmt::Write;

use super::axes::{
    BOTTOM, HEIGHT, LEFT, PlotAxis, RIGHT, TOP, WIDTH, colour, draw_grid, last, linear_ticks,
    logarithmic_ticks,
};
use super::page::escaped;

/// The content of one panel.
pub(super) struct Scatter<'a> {
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    pub(super) logarithmic: bool,
    /// The least y that a logarithmic axis shows. Smaller values are drawn on the axis.
    pub(super) least: f64,
    /// A level that is marked by a line, if the axis reaches it.
    pub(super) mark: f64,
    /// The end of the x axis. Panels that are to be compared have the same end.
    pub(super) x_most: f64,
    pub(super) y_most: f64,
    pub(super) series: &'a [Points],
}

/// The points of one colour.
pub(super) struct Points {
    /// The index of the series in the legend. It gives the colour.
    pub(super) place: usize,
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Draws the panel.
pub(super) fn draw(scatter: &Scatter) -> String {
    let ticks = linear_ticks(scatter.x_most, 7);
    let x = PlotAxis {
        start: 0.0,
        end: last(&ticks),
        from: LEFT,
        to: RIGHT,
        logarithmic: false,
        ticks,
    };
    let y = y_axis(scatter);
    let mut out = format!(
        "<svg class=\"panel\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{} against {}\">",
        escaped(scatter.y_label),
        escaped(scatter.x_label),
    );
    draw_grid(&mut out, scatter.x_label, scatter.y_label, &x, &y);
    if scatter.mark > y.start && scatter.mark < y.end {
        let _ = write!(
            out,
            "<path class=\"mark\" d=\"M{LEFT} {:.1}H{RIGHT}\"/>",
            y.place(scatter.mark)
        );
    }
    let mut drawn = HashSet::new();
    for series in scatter.series {
        let _ = write!(
            out,
            "<path class=\"series dots s{}\" data-series=\"{}\" d=\"",
            colour(series.place),
            escaped(&series.name)
        );
        for &(px, py) in &series.points {
            let dot = (x.place(px).round() as i32, y.place(py).round() as i32);
            if drawn.insert(dot) {
                let _ = write!(out, "M{} {}h0", dot.0, dot.1);
            }
        }
        out.push_str("\"/>");
    }
    out.push_str("</svg>");
    out
}

fn y_axis(scatter: &Scatter) -> PlotAxis {
    let logarithmic = scatter.logarithmic && scatter.y_most > scatter.least;
    let ticks = if logarithmic {
        logarithmic_ticks(scatter.least, scatter.y_most)
    } else {
        linear_ticks(scatter.y_most, 6)
    };
    PlotAxis { start: ticks[0], end: last(&ticks), from: BOTTOM, to: TOP, logarithmic, ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(points: Vec<(f64, f64)>, logarithmic: bool) -> String {
        draw(&Scatter {
            x_label: "x",
            y_label: "y",
            logarithmic,
            least: 0.001,
            mark: 4.0,
            x_most: 7.0,
            y_most: 6.0,
            series: &[Points { place: 1, name: "a<b".to_owned(), points }],
        })
    }

    #[test]
    fn points_on_one_dot_are_drawn_once_and_others_each() {
        let dots = |points| drawing(points, false).matches("h0").count();
        assert_eq!(dots(vec![(1.0, 1.0), (1.000_001, 1.0), (3.0, 1.0), (1.0, 3.0)]), 3);
        assert_eq!(dots(Vec::new()), 0);
    }

    #[test]
    fn the_ends_of_the_axes_are_where_they_say() {
        let text = drawing(vec![(0.0, 0.0), (7.0, 6.0)], false);
        assert!(text.contains(&format!("M{LEFT} {BOTTOM}h0M{RIGHT} {TOP}h0")), "{text}");
        assert!(text.contains("class=\"mark\"") && text.contains("a&lt;b"));
        // A logarithmic axis has no zero: it lies at the bottom.
        assert!(drawing(vec![(0.0, 0.0)], true).contains(&format!("M{LEFT} {BOTTOM}h0")));
    }
}
