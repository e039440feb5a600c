//! Histograms, and what is counted of each lumisection.

use crate::filter::{
    Counted, Fill, Fills, Histogram, HistogramShape, MOST_BINS, MOST_FILLS, MOST_HISTOGRAMS, Monitoring,
};
use ropewalk_terms::{StreamIndex, StreamSet, TriggerBits, Verdict};

fn shape(name: &str) -> HistogramShape {
    HistogramShape::new(name, 10, 0.0, 5.0).expect("there can be one")
}

fn fills(values: &[(u16, f64)]) -> Fills {
    let mut fills = Fills::default();
    values.iter().for_each(|&(histogram, value)| fills.push(Fill { histogram, value }));
    fills
}

fn accepted(lumisection: u32) -> Counted {
    let streams = StreamSet::of(StreamIndex(1));
    let triggers = TriggerBits::of(3).with(TriggerBits::of(127));
    Counted { lumisection, verdict: Verdict::Accepted, triggers, streams }
}

#[test]
fn every_value_has_its_place_and_is_counted_once() {
    let mut histogram = Histogram::new(shape("energy"));
    let values = [-0.1, 0.0, 0.49, 0.5, 4.999_999_999_999_999, 5.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
    values.iter().for_each(|&value| histogram.fill(value));
    assert_eq!(histogram.counts.to_vec(), [3, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!((histogram.underflow, histogram.overflow, histogram.not_a_number), (2, 2, 1));
    assert_eq!(histogram.entries(), values.len() as u64);
    let mut both = histogram.clone();
    assert!(both.add(&histogram) && both.entries() == 2 * histogram.entries() && both.counts[0] == 6);
    assert!(!both.add(&Histogram::new(shape("time"))), "another one");
    both.clear();
    assert_eq!(both, Histogram::new(shape("energy")));
}

#[test]
fn whole_numbers_have_bins_of_their_own() {
    for bins in 1..=MOST_BINS {
        let shape = HistogramShape::new("number", bins, 0.0, f64::from(bins)).expect("there can be one");
        let mut histogram = Histogram::new(shape);
        (0..bins).for_each(|number| histogram.fill(f64::from(number)));
        assert!(histogram.counts.iter().all(|&count| count == 1), "{bins}");
    }
}

#[test]
fn a_histogram_that_cannot_be_is_refused_with_what_can() {
    let long = "a".repeat(65);
    for (name, bins, low, high, words) in [
        ("", 1, 0.0, 1.0, "1 to 64 bytes"),
        (long.as_str(), 1, 0.0, 1.0, "1 to 64 bytes"),
        ("a\nb", 1, 0.0, 1.0, "control characters"),
        ("none", 0, 0.0, 1.0, "1 to 4096"),
        ("many", MOST_BINS + 1, 0.0, 1.0, "1 to 4096"),
        ("backwards", 1, 1.0, 0.0, "the second one is larger"),
        ("empty", 1, 1.0, 1.0, "the second one is larger"),
        ("far", 1, f64::MIN, f64::MAX, "both are finite"),
        ("no number", 1, f64::NAN, 1.0, "both are finite"),
    ] {
        let error = HistogramShape::new(name, bins, low, high).expect_err("there can be none").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_is_filled_in_goes_to_the_lumisection_of_its_event() {
    let mut monitoring = Monitoring::new(2);
    let places = monitoring.declare(&[shape("energy"), shape("time")]);
    monitoring.decided(&accepted(2));
    monitoring.fill(2, &places, &fills(&[(0, 1.0), (1, 2.0)]));
    monitoring.decided(&accepted(1));
    monitoring.fill(1, &places, &fills(&[(0, 3.0)]));
    let (verdict, streams, triggers) = (Verdict::Rejected, StreamSet::EMPTY, TriggerBits::default());
    let rejected = Counted { verdict, streams, triggers, ..accepted(1) };
    monitoring.decided(&rejected);
    monitoring.decided(&Counted { verdict: Verdict::Quarantined, ..rejected });
    monitoring.close(1);
    let first = monitoring.next_closed().expect("it is closed");
    assert_eq!(monitoring.next_closed(), None, "the second one is open");
    assert_eq!((first.number, first.accepted, first.rejected, first.quarantined), (1, 1, 1, 1));
    assert_eq!((first.triggers[3], first.triggers[127], first.triggers[4]), (1, 1, 0));
    assert_eq!(first.streams.to_vec(), [0, 1]);
    assert_eq!((first.histograms[0].entries(), first.histograms[1].entries()), (1, 0));
    monitoring.give_back(first);
    monitoring.close(3);
    let third = monitoring.next_closed().expect("one without events is closed too");
    assert_eq!((third.number, third.events(), third.histograms[0].entries()), (3, 0, 0), "nothing is left in it");
    monitoring.close_all();
    let second = monitoring.next_closed().expect("the run has ended");
    assert_eq!((second.number, second.histograms[0].entries(), second.histograms[1].entries()), (2, 1, 1));
    monitoring.decided(&rejected);
    monitoring.restart();
    monitoring.close_all();
    assert_eq!(monitoring.next_closed(), None, "another run has nothing of it");
}

#[test]
fn filters_that_declare_in_another_order_fill_the_same_histograms() {
    let mut monitoring = Monitoring::new(1);
    let one = monitoring.declare(&[shape("energy"), shape("time")]);
    monitoring.fill(1, &one, &fills(&[(1, 2.0)]));
    let other_shape = HistogramShape::new("energy", 11, 0.0, 5.0).expect("there can be one");
    let other = monitoring.declare(&[shape("late"), shape("time"), other_shape]);
    assert_eq!((one, other.clone()), (vec![Some(0), Some(1)], vec![Some(2), Some(1), None]));
    let said = fills(&[(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]);
    monitoring.fill(1, &other, &said);
    monitoring.close_all();
    let record = monitoring.next_closed().expect("it is closed");
    let entries: Vec<_> = record.histograms.iter().map(|one| (one.shape().name(), one.entries())).collect();
    assert_eq!(entries, [("energy", 0), ("time", 2), ("late", 1)]);
    assert_eq!(record.dropped_fills, 2, "of another shape, and of none that was declared");
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let mut said = Fills::default();
    (0..MOST_FILLS + 3).for_each(|_| said.push(Fill { histogram: 0, value: 1.0 }));
    said.drop_more(2);
    assert_eq!((said.values().len(), said.dropped()), (MOST_FILLS, 5));
    let mut monitoring = Monitoring::new(2);
    let names: Vec<_> = (0..=MOST_HISTOGRAMS).map(|number| shape(&format!("h{number}"))).collect();
    let places = monitoring.declare(&names);
    assert_eq!((places[MOST_HISTOGRAMS - 1], places[MOST_HISTOGRAMS]), (Some(63), None));
    monitoring.fill(1, &places, &said);
    monitoring.close_all();
    let record = monitoring.next_closed().expect("it is closed");
    assert_eq!((record.dropped_fills, record.histograms[0].entries()), (5, MOST_FILLS as u64));
}
