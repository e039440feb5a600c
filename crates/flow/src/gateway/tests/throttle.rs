//! The throttle and the trigger.
