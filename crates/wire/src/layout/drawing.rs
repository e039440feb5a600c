//! A layout as a drawing of its bytes.

use super::Plan;
use super::extent::Extents;
use super::number::Field;
use core::fmt;

/// Bytes of a line.
const LINE: usize = 8;
/// Letters that a byte takes.
const CELL: usize = 10;

impl fmt::Display for Plan {
    /// The bytes from a frame's begin, and those before its end, eight in a line with what stands in each.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:>6} ", "")?;
        (0..LINE).try_for_each(|byte| write!(out, "{byte:^width$}", width = CELL + 1))?;
        writeln!(out)?;
        let cells = Cells(&self.extents);
        let front = cells.end(false);
        for line in 0..front.div_ceil(LINE) {
            let first = (line * LINE) as i64;
            write!(out, "{first:>6} ")?;
            cells.line(out, first, front as i64)?;
        }
        let back = cells.end(true);
        if self.least < self.most {
            writeln!(out, "{:>6} |  ... {} to {} bytes in all", "", self.least, self.most)?;
        }
        for line in (0..back.div_ceil(LINE)).rev() {
            let first = -((line as i64 + 1) * LINE as i64);
            write!(out, "{first:>6} ")?;
            cells.line(out, first, 0)?;
        }
        Ok(())
    }
}

/// What stands in each byte.
struct Cells<'a>(&'a Extents);

impl Cells<'_> {
    /// Bytes from the begin, or before the end, in which something stands.
    fn end(&self, from_end: bool) -> usize {
        let distances = self.0.taken().iter().filter(|(_, field)| (field.number().at < 0) == from_end);
        let reach = distances.map(|(_, field)| {
            let number = field.number();
            if from_end { number.at.unsigned_abs() as usize } else { number.at as usize + usize::from(number.bytes) }
        });
        reach.max().unwrap_or(0)
    }

    fn line(&self, out: &mut fmt::Formatter<'_>, first: i64, end: i64) -> fmt::Result {
        let mut at = first;
        out.write_str("|")?;
        while at < first + LINE as i64 && at < end {
            let (text, here) = self.at(at);
            // As far as the same field goes on in this line.
            let mut count = 1;
            while count < LINE as i64 - (at - first) && at + count < end && here && self.at(at + count).0 == text {
                count += 1;
            }
            let width = count as usize * (CELL + 1) - 1;
            let text = if here { text } else { String::new() };
            write!(out, "{:^width$}|", text.chars().take(width).collect::<String>())?;
            at += count;
        }
        writeln!(out)
    }

    /// The names of what stands in a byte, and whether anything does.
    fn at(&self, at: i64) -> (String, bool) {
        let stands = |field: &Field| {
            let number = field.number();
            let byte = at - i64::from(number.at);
            (number.at < 0) == (at < 0) && byte >= 0 && field.bits_of_byte(byte as usize) != 0
        };
        let mut names: Vec<&str> = Vec::new();
        for (key, field) in self.0.taken() {
            let name = key.rsplit('.').next().unwrap_or(key);
            if stands(field) && !names.contains(&name) {
                names.push(name);
            }
        }
        (names.join("+"), !names.is_empty())
    }
}
