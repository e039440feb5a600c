//! Charts as SVG, written by hand: axes with round numbers, curves with points, a legend.

use std::fmt::Write as _;

/// A chart of some curves.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// What stands below it.
    pub horizontal: String,
    /// What stands beside it.
    pub vertical: String,
    /// The horizontal axis is logarithmic.
    pub logarithmic: bool,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Points are marked: they are figures, and not a distribution.
    pub marked: bool,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
const COLOURS: [&str; 6] = ["#1f5fa8", "#c4452d", "#2e8540", "#7a4fa3", "#b8860b", "#4a4a4a"];

/// From values to places along an axis.
struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, logarithmic: bool, from: f64, to: f64) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0));
        let (least, most) =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
        let axis = |least, most| Self { least, most, logarithmic, from, to };
        match (least.is_finite(), logarithmic) {
            (false, _) => axis(1.0, 10.0),
            (true, true) if most > least => axis(least, most),
            (true, true) => axis(least / 2.0, most * 2.0),
            // A linear axis begins at 0, or differences would look larger than they are.
            (true, false) => axis(least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 }),
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + part * (self.to - self.from)
    }

    /// Round numbers along the axis.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.least.log10().floor() as i32, self.most.log10().ceil() as i32);
            let steps: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
            return all.filter(|tick| (self.least * 0.999..=self.most * 1.001).contains(tick)).collect();
        }
        let rough = (self.most - self.least) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let count = ((self.most - self.least) / step).floor() as usize;
        (0..=count).map(|index| self.least + index as f64 * step).collect()
    }
}

impl Chart {
    /// The chart as a whole SVG file.
    pub fn to_svg(&self) -> String {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let across = Axis::new(points().map(|point| point.0), self.logarithmic, LEFT, WIDTH - RIGHT);
        let up = Axis::new(points().map(|point| point.1), false, HEIGHT - BOTTOM, TOP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut out, (WIDTH / 2.0, TOP / 2.0), "middle", 15, &self.title);
        text(&mut out, (LEFT.midpoint(WIDTH - RIGHT), HEIGHT - 15.0), "middle", 12, &self.horizontal);
        let middle = TOP.midpoint(HEIGHT - BOTTOM);
        let _ = writeln!(out, "<g transform=\"translate(18 {middle}) rotate(-90)\">");
        text(&mut out, (0.0, 0.0), "middle", 12, &self.vertical);
        out.push_str("</g>\n");
        for tick in across.ticks() {
            let x = across.place(tick);
            line(&mut out, (x, TOP), (x, HEIGHT - BOTTOM));
            text(&mut out, (x, HEIGHT - BOTTOM + 18.0), "middle", 12, &short(tick));
        }
        for tick in up.ticks() {
            let y = up.place(tick);
            line(&mut out, (LEFT, y), (WIDTH - RIGHT, y));
            text(&mut out, (LEFT - 8.0, y + 4.0), "end", 12, &short(tick));
        }
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            curve.draw(&mut out, colour, &across, &up);
            let y = TOP + 16.0 + 18.0 * index as f64;
            let _ = writeln!(
                out,
                "<line x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                LEFT + 12.0,
                LEFT + 36.0
            );
            text(&mut out, (LEFT + 42.0, y + 4.0), "start", 12, &curve.name);
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Curve {
    fn draw(&self, out: &mut String, colour: &str, across: &Axis, up: &Axis) {
        let places: Vec<(f64, f64)> = self.points.iter().map(|&(x, y)| (across.place(x), up.place(y))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in places.iter().filter(|_| self.marked) {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#dddddd\"/>");
}

fn text(out: &mut String, at: (f64, f64), anchor: &str, size: u32, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{escaped}</text>",
        at.0, at.1
    );
}

/// A number as short as it can be read: 1500 as 1.5k.
fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Three digits are enough to tell ticks apart, and hide what binary fractions add.
    let digits = if scaled == 0.0 { 0 } else { (2 - scaled.abs().log10().floor() as i32).clamp(0, 6) };
    let text = format!("{scaled:.*}", digits as usize);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    text + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let linear = Axis::new([0.0, 5.2].into_iter(), false, 0.0, 1.0);
        assert_eq!(linear.ticks(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let logarithmic = Axis::new([256.0, 16384.0].into_iter(), true, 0.0, 1.0);
        assert_eq!(logarithmic.ticks(), [500.0, 1000.0, 2000.0, 5000.0, 10_000.0]);
        assert!(logarithmic.place(256.0).abs() < 1e-9 && (logarithmic.place(16384.0) - 1.0).abs() < 1e-9);
        assert!((logarithmic.place(2048.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (1500.0, "1.5k"), (0.02, "0.02"), (2e6, "2M"), (12.0, "12"), (0.1 + 0.2, "0.3")];
        cases.into_iter().for_each(|(value, text)| assert_eq!(short(value), text));
    }

    #[test]
    fn every_point_and_name_is_in_the_picture() {
        let curve = |name: &str| Curve { name: name.to_owned(), points: vec![(1.0, 2.0), (3.0, 4.0)], marked: true };
        let chart = Chart { title: "a < b".to_owned(), curves: vec![curve("one"), curve("two")], ..Chart::default() };
        let svg = chart.to_svg();
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains(">two</text>") && svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        assert!(!Chart::default().to_svg().contains("NaN"));
    }
}
