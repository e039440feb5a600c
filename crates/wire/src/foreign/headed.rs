//! Formats without a marker: what no frame of them begins with, and what is believed to be one behind zeros.

use super::{Describe, Place, alice, artdaq, cms, ess, eudaq, frd, lhcb, midas, nscldaq};
use crate::framing::{Framing, Front, Part, Search, Window};
use crate::zeros::{self, Begin, Headed};

/// A format whose frames begin with a length, and have no marker that is looked for after damage.
pub(super) trait Unmarked: Framing {
    /// So many zeros begin no frame.
    const ZEROS: usize;
    /// So many bytes say whether a header may stand there.
    const HEADER: usize;

    /// The frame at the front of a stream without zeros.
    fn cut(&self, window: &(impl Window + ?Sized)) -> Front;

    /// Whether these bytes may be the begin of a frame; none where they are not. There are at least [`Unmarked::HEADER`].
    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged;

    /// Whether what stands behind a frame shows that it is one.
    fn may_follow(&self, frame: &(impl Window + ?Sized), rest: &(impl Window + ?Sized)) -> bool {
        let _ = frame;
        zeros::leading(rest, Self::ZEROS) == Self::ZEROS || self.judge(rest) != Judged::No
    }
}

/// What a header looks like.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// No header.
    No,
    /// It may be one.
    Possible,
    /// So much of it is as it must be that it is one.
    Certain,
    /// It is one if the whole frame is as it should be.
    IfWhole,
}

impl Judged {
    const fn certain_if(is_header: bool) -> Self {
        if is_header { Self::Certain } else { Self::No }
    }

    const fn possible_if(is_header: bool) -> Self {
        if is_header { Self::Possible } else { Self::No }
    }

    const fn whole_if(is_header: bool) -> Self {
        if is_header { Self::IfWhole } else { Self::No }
    }
}

/// What stands at the front of a stream. Zeros are passed over, and behind them a frame is looked for that can be believed.
#[inline]
pub(super) fn front<F: Unmarked>(format: &F, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
    if search.adrift {
        return zeros::resume(&Found(format), window, search);
    }
    if window.array(0) != Some([0]) {
        return format.cut(window);
    }
    match zeros::leading(window, F::ZEROS) {
        zeros if zeros == F::ZEROS => zeros::skip(window, F::ZEROS - 1, search),
        zeros if zeros == window.len() => Front::Needs { bytes: F::ZEROS },
        _ => format.cut(window),
    }
}

struct Found<'a, F>(&'a F);

impl<F: Unmarked> Headed for Found<'_, F> {
    fn begin(&self, window: &(impl Window + ?Sized)) -> Begin {
        if window.len() < F::HEADER {
            return Begin::Needs(F::HEADER);
        }
        let judged = self.0.judge(window);
        if judged == Judged::No {
            return Begin::No;
        }
        match self.0.cut(window) {
            Front::Needs { bytes } => Begin::Needs(bytes),
            Front::Frame { bytes } => match judged {
                Judged::Certain => Begin::Surely(bytes),
                Judged::IfWhole if is_right(self.0, &Part::new(window, 0, bytes)) => Begin::Surely(bytes),
                Judged::Possible => Begin::Perhaps(bytes),
                Judged::IfWhole | Judged::No => Begin::No,
            },
            Front::Skip { .. } | Front::Lost { .. } => Begin::No,
        }
    }

    fn follows(&self, window: &(impl Window + ?Sized), bytes: usize) -> Result<bool, usize> {
        let rest = Part::new(window, bytes, window.len() - bytes);
        if rest.len() < F::HEADER {
            return Err(bytes + F::HEADER);
        }
        Ok(self.0.may_follow(window, &rest))
    }
}

fn is_right(format: &impl Framing, frame: &(impl Window + ?Sized)) -> bool {
    format.checksum(frame).unwrap_or_else(|| format.fields(frame).flags == Default::default())
}

impl Unmarked for midas::Midas {
    /// An id of 0 whose banks have no header is no event.
    const ZEROS: usize = midas::HEADER_BYTES;
    const HEADER: usize = midas::HEADER_BYTES + 8;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::certain_if(midas::is_header(window))
    }
}

impl Unmarked for eudaq::Eudaq {
    /// The type is the hash of a name, and the version is 1 or more.
    const ZEROS: usize = 8;
    const HEADER: usize = eudaq::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }

    /// An event in an event has the header of one. The next of a kind has the next number.
    fn may_follow(&self, frame: &(impl Window + ?Sized), rest: &(impl Window + ?Sized)) -> bool {
        let is_same = |place: Place| place.read(frame) == place.read(rest);
        let number = eudaq::EVENT.read(frame).map(|event| event + 1);
        [eudaq::TYPE, eudaq::STREAM, eudaq::EXTEND].into_iter().all(is_same) && eudaq::EVENT.read(rest) == number
    }
}

impl Unmarked for nscldaq::Nscldaq {
    const ZEROS: usize = 8;
    const HEADER: usize = nscldaq::HEADER_BYTES + 4;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }
}

impl Unmarked for artdaq::Artdaq {
    const ZEROS: usize = 8;
    const HEADER: usize = artdaq::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }
}

impl Unmarked for alice::Alice {
    const ZEROS: usize = 8;
    const HEADER: usize = alice::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::certain_if(looks_like(self, window) && alice::is_sound(window))
    }
}

impl Unmarked for ess::Ess {
    const ZEROS: usize = 8;
    const HEADER: usize = ess::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::certain_if(looks_like(self, window) && matches!(window.array(0), Some([0, 0 | 1])))
    }
}

impl Unmarked for frd::Frd {
    const ZEROS: usize = 4;
    const HEADER: usize = 40;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        if frd::begins_a_file(window) == Some(true) {
            return Judged::certain_if(looks_like(self, window));
        }
        Judged::whole_if(looks_like(self, window))
    }
}

impl Unmarked for cms::FerolBlocks {
    const ZEROS: usize = 8;
    const HEADER: usize = crate::ferol::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }
}

impl Unmarked for lhcb::Mep {
    const ZEROS: usize = 8;
    const HEADER: usize = crate::mep::MEP_HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::whole_if(lhcb::has_events(window))
    }
}

/// What the file recognition says of the bytes that are looked at.
fn looks_like<F: Unmarked + Describe>(format: &F, window: &(impl Window + ?Sized)) -> bool {
    const MOST: usize = 64;
    let mut bytes = [0; MOST];
    let length = MOST.min(window.len());
    let (first, _) = bytes.split_at_mut(length);
    window.read(0, first) && format.looks_like(first)
}
