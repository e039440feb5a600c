//! A run with threads: configuration in, a handle out.
//!
//! ```text
//! assemble   configuration -> drives          worker    one thread that turns drives
//! entrances  sources that do not connect to a readout unit's service point: files, programs, own addresses
//! front_ends front ends under run control: a service that outlives runs
//! black_box  files of what sources sent before something was wrong with them
//! captures   captured datagrams in the place of a source's
//! splitters  what divides the frames of sources: libraries of others, and their processes
//! filters    who decides on built events: triggers that are built in, libraries and programs of others, and their processes
//! filter_node  filter units for builder units on other machines
//! emulated   sources that are not there, and how they come
//! registry   run numbers and directories      handle    commands in, snapshots and the account out
//! units      readout units, builder units and event manager behind the handle
//! gateway    gateways behind the handle: flows of packets, a farm
//! record     a run of the past in a line      logbook   what people say of runs
//! stored     the files that a run has left on the disks
//! takeover_record  which event manager has a run, for its successor
//! stats_page a node that publishes its counters in its page
//! placement  where threads and pools go        thread_placement  places them
//! summary    what the run says of itself: run.json and the last line of --json
//! forecast   how long the disks last at the present rate
//! run_files  from [run] and [storage] to what writes run files and takes them away
//! transfer   closed run files, taken to where they are kept by a command of the user's
//! advice     which key would help where a source is no use
//! stream     chunks of FELIX blocks served and subscribed to, without a run
//! ```

mod advice;
mod assemble;
mod black_box;
mod captures;
mod card_process;
mod card_summary;
mod cards;
mod clock_summary;
mod configured;
mod descriptors;
mod disk_summary;
mod emulated;
mod entrances;
mod feeder;
mod file_filters;
mod file_summary;
mod filter_node;
mod filter_summary;
mod filters;
mod forecast;
mod fragment_summary;
mod front_end_summary;
mod front_ends;
pub mod gateway;
mod handle;
mod histograms;
mod input_summary;
mod ledger_summary;
mod logbook;
mod lumisections;
mod measures;
mod placement;
mod record;
mod registry;
mod resolve;
mod run_files;
mod serve;
mod source_summary;
mod splitters;
mod stats_page;
mod stored;
mod stream;
mod summary;
mod takeover_record;
mod thread_placement;
mod transfer;
mod units;
mod watched;
mod worker;

pub use advice::advice;
pub use assemble::{RunError, launch, launch_unit, launch_with};
pub(crate) use assemble::{launch_manager, take_over};
pub use card_process::write_card;
pub use card_summary::{CardSummary, SubscriberSummary};
pub use clock_summary::{ClockReading, ClockSummary};
pub use configured::{CONFIGURATION, ConfigurationSummary};
pub use disk_summary::{DeletedSummary, DiskSummary, FailingDisk, disk_error};
pub use file_summary::{FileBasedSummary, FiledLumisection, FiledStream};
pub use filter_node::{FilterNodeHandle, FilterNodeSummary, launch_filter_node};
pub use filter_summary::{FilterSummary, StreamSummary};
pub use filters::unusable_libraries;
pub use forecast::DiskLeft;
pub use fragment_summary::FragmentSummary;
pub use front_end_summary::{FrontEndSummary, FrontEndsSummary, IncidentSummary, TriggerSummary};
pub use front_ends::FrontEndService;
pub use handle::{RunHandle, RunThreads};
pub use histograms::{HistogramCounts, HistogramDefinition, HistogramKind, HistogramUnit, SourceHistograms};
pub use input_summary::{InputState, InputSummary};
pub use ledger_summary::{LedgerSummary, UnbalancedSummary};
pub use logbook::{LOGBOOK, LOGBOOK_TAIL, LONGEST_NOTE, Logbook, Note, NoteKind};
pub use lumisections::LumisectionSummary;
pub use measures::{MeasureSummary, MeasureUnit};
pub(crate) use placement::MANAGER;
pub use placement::{PlacementError, placement, placement_of_node, placement_on};
pub use record::{FrontEndRecord, GapRecord, RunRecord};
pub use registry::{Registry, RunDirectory};
pub use resolve::Addresses;
pub use ropewalk_wire::run_file::run_directory_name as directory_name;
pub use serve::{CardOffer, OfferWriter, Served, Serving, serve};
pub use source_summary::{GapSummary, MaskedSummary, NumberingSummary, SynchronySummary, SynchronyVerdict};
pub use stored::{FileName, FileState, MOST_FILES, NotAFile, StoredFile, StoredFiles};
pub use stream::{LARGEST_CHUNK_BYTES, StreamRunError, subscribe};
pub use summary::{
    ByteSummary, CopySummary, DatagramSummary, EventSummary, PartialSummary, RateSummary, RunSummary, SUMMARY_SCHEMA,
};
pub use takeover_record::{ACCOUNT, TakeoverRecord};
pub use transfer::TransferSummary;
