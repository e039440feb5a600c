//! A test program that is the process of a plug-in.

/// That it is where `SERVES` is set. It comes before its `main`, which starts threads: the process of a plug-in has one.
macro_rules! serves {
    ($serve:path) => {
        extern "C" fn serves_where_that_is_wanted() {
            if std::env::var_os(crate::support::SERVES).is_some() {
                let served = $serve();
                std::process::exit(i32::from(served.is_err()));
            }
        }

        #[used]
        #[allow(unsafe_code)]
        // SAFETY: the system calls each function of this section once, with nothing that this one would look at.
        #[unsafe(link_section = ".init_array")]
        static SERVES_WHERE_THAT_IS_WANTED: extern "C" fn() = serves_where_that_is_wanted;
    };
}
