//! Seccomp: which calls of the system go through, by their numbers and by arguments.

use super::calls::{self, Argument, Call};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::io;

/// What opens a file to change it, or makes one.
const CHANGES: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;

/// A list of what is allowed; what is said last of a call counts. A call that is not in it is not made, and becomes the signal SIGSYS, whose handler learns which it was.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter(BTreeMap<i64, Vec<SeccompRule>>);

impl Filter {
    /// These are allowed, whatever their arguments are.
    pub(super) fn allow(mut self, calls: &[Call]) -> Self {
        self.0.extend(calls.iter().map(|&(_, number)| (number, Vec::new())));
        self
    }

    /// These are allowed where that argument, its lower half, is one of those values.
    pub(super) fn allow_where(self, calls: &[Call], argument: u8, values: &[u32]) -> io::Result<Self> {
        let is_one = values.iter().map(|&value| (SeccompCmpOp::Eq, u64::from(value)));
        self.allow_if(calls, argument, is_one)
    }

    /// These are allowed where an argument is one of those that the list names.
    pub(super) fn allow_by_argument(self, calls: &[(Call, Argument)]) -> io::Result<Self> {
        calls.iter().try_fold(self, |filter, (call, argument)| filter.allow_where(&[*call], argument.0, argument.1))
    }

    /// Files may be opened to be read.
    pub(super) fn allow_reading_of_files(self) -> io::Result<Self> {
        self.allow_if(calls::OPENING, 2, [(SeccompCmpOp::MaskedEq(CHANGES), libc::O_RDONLY as u64)])
    }

    fn allow_if(
        mut self,
        calls: &[Call],
        argument: u8,
        conditions: impl IntoIterator<Item = (SeccompCmpOp, u64)>,
    ) -> io::Result<Self> {
        let rule = |(operation, value)| {
            let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)?;
            SeccompRule::new(vec![condition])
        };
        let rules = conditions.into_iter().map(rule).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        self.0.extend(calls.iter().map(|&(_, number)| (number, rules.clone())));
        Ok(self)
    }

    /// From now on it holds, for all threads of this process. Filters that hold already go on holding.
    pub(super) fn install(self) -> io::Result<()> {
        install(self.0, SeccompAction::Trap, SeccompAction::Allow)
    }
}

/// From now on these calls fail, and whoever makes them goes on. They must be allowed otherwise.
pub(super) fn refuse(calls: &[Call]) -> io::Result<()> {
    let rules = calls.iter().map(|&(_, number)| (number, Vec::new())).collect();
    install(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

fn install(rules: BTreeMap<i64, Vec<SeccompRule>>, others: SeccompAction, these: SeccompAction) -> io::Result<()> {
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, others, these, machine).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}
