//! A configuration whose sources are read from what somebody recorded of them: a run of it makes run files of the recording.
//!
//! ```text
//!  configuration --> the sources whose frames it describes, and nobody else's
//!                --> each is read from the recording: the packets that went where it listens
//!                --> the first event is the first one in the recording, whatever its number
//! ```
//! Everything else is as in any run, so that what comes out is what a run would have written.

use super::input::Input;
use super::trial::{TrialOptions, tried};
use super::wanted::Wanted;
use crate::configuration::{
    Configuration, InputChoice, ManagerSection, NetworkAddress, PacketsTable, PlacementChoice, ReadoutSection,
    SourceSection,
};
use crate::offline::{ByteOrigin, OfflineError};
use ropewalk_flow::trial::TrialAccount;
use ropewalk_wire::capture::CaptureReader;
use ropewalk_wire::framing::Framing;
use std::net::IpAddr;
use std::path::Path;

/// What a run of a recording is taken with.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The configuration. Where its run directory is made is still what stands there.
    pub configuration: Configuration,
    /// Sources that take no part, because nothing describes their frames.
    pub left_out: Vec<String>,
}

/// Puts recordings, each a capture or the bytes of one stream, in the place of the sources of these names, or of all whose frames
/// are described where none is named. One recording is that of all of them; of several each source has its own, in the order of
/// the names, or of the configuration.
///
/// # Errors
/// Where a recording cannot be read, there is no such source, or it cannot hold what these sources sent.
pub fn of_recordings<P: AsRef<Path>>(
    configuration: &Configuration,
    recordings: &[P],
    names: &[String],
) -> Result<Recorded, OfflineError> {
    let recordings: Vec<&Path> = recordings.iter().map(AsRef::as_ref).collect();
    let mut configuration = configuration.clone();
    let left_out = choose(&mut configuration, recordings.first().copied().unwrap_or(Path::new("")), names)?;
    let sources = &mut configuration.source;
    let recordings = of_each(sources, &recordings, names)?;
    for (source, recording) in sources.iter_mut().zip(&recordings) {
        read_from(source, recording);
    }
    begin_at_its_begin(sources, &recordings)?;
    alone(&mut configuration);
    Ok(Recorded { configuration, left_out })
}

/// The recording of each source.
fn of_each<'r>(
    sources: &[SourceSection],
    recordings: &[&'r Path],
    names: &[String],
) -> Result<Vec<&'r Path>, OfflineError> {
    if let [recording] = recordings {
        fits(sources, recording)?;
        return Ok(vec![recording; sources.len()]);
    }
    let known: Vec<String> = sources.iter().map(SourceSection::name_or_id).collect();
    let order = if names.is_empty() { &known[..] } else { names };
    if recordings.len() == known.len() && order.len() == known.len() {
        let place = |name: &String| order.iter().position(|named| named == name);
        return Ok(known.iter().filter_map(|name| Some(recordings[place(name)?])).collect());
    }
    let why = format!(
        "there are {} files for {}: one for each, in the order of --source; or one capture for all, as `mergecap -w all.pcapng \
         ...` makes of several",
        recordings.len(),
        known.join(", ")
    );
    Err(unfit(recordings.first().copied().unwrap_or(Path::new("no file")), why))
}

fn unfit(recording: &Path, why: String) -> OfflineError {
    OfflineError::Recording { path: recording.to_owned(), why }
}

/// Keeps the sources that are meant; says who else there was.
fn choose(configuration: &mut Configuration, recording: &Path, names: &[String]) -> Result<Vec<String>, OfflineError> {
    let known: Vec<String> = configuration.source.iter().map(SourceSection::name_or_id).collect();
    if let Some(stranger) = names.iter().find(|name| !known.contains(name)) {
        return Err(unfit(recording, format!("no source is named `{stranger}`; there are {}", known.join(", "))));
    }
    let is_meant = |source: &SourceSection| {
        if names.is_empty() { source.description().is_some() } else { names.contains(&source.name_or_id()) }
    };
    let (meant, others): (Vec<_>, Vec<_>) = configuration.source.drain(..).partition(is_meant);
    if meant.is_empty() {
        let why = "the configuration describes no frames: a [[source]] does, by `frame` or by a `format` with a name";
        return Err(unfit(recording, why.to_owned()));
    }
    configuration.source = meant;
    let left_out = if names.is_empty() { others.iter().map(SourceSection::name_or_id).collect() } else { Vec::new() };
    Ok(left_out)
}

/// A capture holds what many sent; any other file the bytes of one stream, unless its frames say whose they are.
fn fits(sources: &[SourceSection], recording: &Path) -> Result<(), OfflineError> {
    if CaptureReader::recognises(Input::open(recording)?.begin()) {
        return Ok(());
    }
    let is_several = sources.len() > 1 && sources.iter().any(|source| source.chosen().is_none());
    if is_several {
        let names: Vec<String> = sources.iter().map(SourceSection::name_or_id).collect();
        let why = format!("it is no capture, but the bytes of one source: name which, --source {}", names.join(" or "));
        return Err(unfit(recording, why));
    }
    Ok(())
}

/// A source is read from the recording: the packets that went where it listens, if it does not say which.
fn read_from(source: &mut SourceSection, recording: &Path) {
    let address = |place: &str| place.rsplit_once(':').and_then(|(host, _)| host.parse::<IpAddr>().ok());
    let mut packets = PacketsTable::default();
    match &source.listen {
        Some(NetworkAddress::Ip(_, protocol)) => packets.protocol = Some(*protocol),
        Some(place) => packets.port = place.port(),
        None => {}
    }
    if let Some(NetworkAddress::Tcp(place)) = &source.connect {
        packets.from = address(place);
    }
    source.packets = source.packets.take().or(Some(packets));
    source.input = Some(InputChoice(ByteOrigin::File(recording.to_owned())));
    (source.listen, source.connect, source.program) = (None, None, None);
    (source.emulate, source.play, source.felix, source.black_box) = (None, None, None, None);
    (source.controlled, source.settings) = (false, None);
}

/// The numbers that a source's events have.
struct Begin {
    bits: u32,
    /// How much higher the first number in the recording is than the first of a run.
    shift: u64,
}

impl Begin {
    /// How far this source begins after the event with so much higher a number, as far as its bits tell.
    const fn after(&self, shift: u64) -> i64 {
        let unused = 64 - self.bits;
        (self.shift.wrapping_sub(shift) << unused) as i64 >> unused
    }
}

/// Who records begins in the middle: the first event is the first one of any source.
fn begin_at_its_begin(sources: &mut [SourceSection], recordings: &[&Path]) -> Result<(), OfflineError> {
    let (mut begins, mut has_frames) = (Vec::new(), false);
    for (source, recording) in sources.iter().zip(recordings) {
        let wanted = source.wanted_beside(sources.iter());
        let Some(account) = account(source, &wanted, recording)? else {
            has_frames = true;
            continue;
        };
        has_frames |= account.frames() > 0;
        begins.extend(begin(source, &account).filter(|_| !source.numbers_grow()));
    }
    if !has_frames {
        let names: Vec<String> = sources.iter().map(SourceSection::name_or_id).collect();
        let why = format!("no frame of {} is in it; `ropewalk source test` shows what is", names.join(", "));
        return Err(unfit(recordings[0], why));
    }
    let Some(widest) = begins.iter().max_by_key(|begin| begin.bits) else { return Ok(()) };
    let earliest = begins.iter().map(|begin| begin.after(widest.shift)).min().unwrap_or(0);
    let shift = widest.shift.wrapping_add_signed(earliest);
    for source in sources {
        // Bits beyond the counter's mean nothing.
        source.first = Some(source.first_event().wrapping_add(shift));
        if let Some(event) = &mut source.event {
            event.first = source.first;
        }
    }
    Ok(())
}

/// What there is of a source; none where only a run finds its frames.
fn account(source: &SourceSection, wanted: &Wanted, recording: &Path) -> Result<Option<TrialAccount>, OfflineError> {
    let Some(framing) = source.framing() else { return Ok(None) };
    let own = source.tried_board(wanted);
    let (gathers, grows) = (source.gathering().is_some(), source.numbers_grow());
    let (limits, own) = (source.datagram_limits(), own.as_ref());
    let options = TrialOptions { framing: &framing, gathers, grows, limits, own, input: recording, wanted };
    let (account, _) = tried(&options)?;
    Ok(Some(account))
}

/// Where a source's numbers begin; none where it has none, or nothing of it was recorded.
fn begin(source: &SourceSection, account: &TrialAccount) -> Option<Begin> {
    let widths = source.framing()?.widths();
    let (first, bits) = first_of(account, (widths.event, widths.sequence))?;
    let bits = u32::from(source.counter_bits.unwrap_or(bits).clamp(8, 64));
    Some(Begin { bits, shift: first.wrapping_sub(source.first_event()) })
}

/// The first number of a source's own boards, and its bits.
fn first_of(account: &TrialAccount, (event, sequence): (u8, u8)) -> Option<(u64, u8)> {
    account.boards.iter().find_map(|(_, account)| {
        account.event.first.map(|first| (first, event)).or(account.sequence.first.map(|first| (first, sequence)))
    })
}

/// Nothing but the recording is needed: no network, no rule about another machine's cores, one place to write to.
fn alone(configuration: &mut Configuration) {
    let Configuration { run, readout, builder, manager, source, felix, synchrony, thread, pool, .. } = configuration;
    (run.duration, run.events, run.keep) = (None, None, None);
    (run.until_sources_end, run.write, run.placement) = (true, true, PlacementChoice::Rules);
    *manager = ManagerSection { policy: manager.policy, batch: manager.batch, ..ManagerSection::default() };
    readout.retain(|readout| source.iter().any(|source| source.readout == readout.name));
    for readout in readout {
        let ReadoutSection { listen, address, card, .. } = readout;
        (*listen, *address, *card) = (manager.address.clone(), manager.address.clone(), None);
    }
    builder.truncate(1);
    builder.iter_mut().for_each(|builder| builder.output = None);
    felix.clear();
    thread.clear();
    pool.clear();
    synchrony.reference = synchrony.reference.filter(|id| source.iter().any(|source| source.id == *id));
}
