//! Runs with threads: configuration in, a handle out; and sessions, which are sequences of runs.
//!
//! ```text
//! assemble     configuration -> drives on threads       resolve    sections -> configurations of drives
//! workshop     resources of the nodes: memory, placement, identities, sinks
//! handle       commands in, snapshots and the account out
//! base         common parts of all runs: threads, directories         error      why a run could not be set up
//! units        readout units, builder units and event manager behind the handle
//! gateway      gateways behind the handle: flows of packets, a farm
//! worker       one thread that turns drives, and publishes their counters in pages
//! placement    placement of threads and pools; file descriptors
//! entrances    sources that do not connect to a readout unit's service point
//! feeder       threads that write data in place of sources, or save black boxes
//! cards        FELIX cards of readout units             stream     chunks served and subscribed to, without a run
//! controlled   front ends under run control: a service that outlives runs, and their account
//! plugins      filters and splitters from libraries and programs
//! filter_node  filter units for builder units on other machines
//! file_filters file-based filter units                  transfer   closed run files, moved by a command
//! run_files    writers of run files, and the forecast of full disks
//! stored       the files of past runs                   logbook    operators' notes on runs
//! registry     run numbers and directories, and the takeover record in one
//! record       fields of an account in one line         advice     keys that would help next time
//! summary      run.json; its parts in summary_sections, source_summary and histograms
//! remarks      sentences about the sources of a run, for its account
//! session      sequences of runs for an operator; no other module uses it
//! monitoring   counts of filters, in documents beside the events
//! schemas      JSON schemas of the output
//! user_command commands of the user, which are ended at their time-out
//! whole_file   atomic replacement of files
//! ```

mod advice;
mod assemble;
mod base;
mod cards;
mod controlled;
mod disk_loads;
mod entrances;
mod error;
mod feeder;
mod file_filters;
mod filter_node;
pub mod gateway;
mod handle;
mod histograms;
mod logbook;
pub mod monitoring;
mod pipe;
mod placement;
mod plugins;
mod record;
mod registry;
mod remarks;
mod resolve;
mod run_files;
pub mod schemas;
pub mod session;
mod source_summary;
mod stored;
mod stream;
mod summary;
mod summary_sections;
mod transfer;
mod units;
pub mod user_command;
pub mod whole_file;
mod worker;
mod workshop;

pub use advice::advice;
pub use assemble::{launch, launch_part, launch_unit, launch_with};
pub(crate) use assemble::{launch_manager, take_over};
pub use cards::check_card_files;
pub use controlled::{FrontEndService, FrontEndSummary, FrontEndsSummary, IncidentSummary, TriggerSummary};
pub use error::{PlacementError, RunError};
pub use file_filters::{FileBasedSummary, FiledLumisection, FiledStream};
pub use filter_node::{FilterNodeHandle, FilterNodeSummary, launch_filter_node};
pub use handle::{RunHandle, RunThreads};
pub use histograms::{HistogramCounts, HistogramDefinition, HistogramKind, HistogramUnit, SourceHistograms};
pub use logbook::{LOGBOOK, LOGBOOK_TAIL, LONGEST_NOTE, Logbook, Note, NoteKind};
pub(crate) use placement::MANAGER;
pub use placement::{placement, placement_of_node, placement_on, receiving_threads};
pub use plugins::{SplitterTrial, unusable_library, unusable_splitters};
pub use record::{FrontEndRecord, RunRecord};
pub use registry::{ACCOUNT, CONFIGURATION, ConfigurationSummary, Registry, RunDirectory, TakeoverRecord};
pub use resolve::Addresses;
pub(crate) use resolve::REPORT_INTERVAL;
pub use ropewalk_wire::run_file::run_directory_name as directory_name;
pub use run_files::DiskLeft;
pub use source_summary::{
    FragmentSummary, GapSummary, InputState, InputSummary, MaskedSummary, NumberingSummary, SynchronySummary,
    SynchronyVerdict,
};
pub use stored::{FileName, FileState, MOST_FILES, NotAFile, StoredFile, StoredFiles};
pub use stream::{
    CardOffer, LARGEST_CHUNK_BYTES, OfferWriter, Served, Serving, StreamRunError, serve, subscribe, write_card,
};
pub use summary::{
    ByteSummary, CopySummary, DatagramSummary, EventSummary, PartialSummary, RateSummary, RunSummary, SUMMARY_SCHEMA,
};
pub use summary_sections::{
    CardSummary, ClockReading, ClockSummary, DeletedSummary, DiskSummary, FailingDisk, FilterSummary, LedgerSummary,
    LumisectionSummary, MeasureSummary, MeasureUnit, ProbedDisk, SubscriberSummary, UnbalancedSummary, disk_error,
};
pub use transfer::TransferSummary;
