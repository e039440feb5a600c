// A filter in C++: it keeps events in which enough sources have data, with trigger n for n sources.
// Its configuration: how many sources, and how many bytes each of them must have, such as "2 100".
#include "ropewalk_filter.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

class Coincidence {
public:
    explicit Coincidence(const std::string &configuration) {
        std::istringstream text(configuration);
        if (!(text >> sources_ >> bytes_))
            throw std::invalid_argument("the configuration is a number of sources and one of bytes, such as \"2 100\"");
    }

    void begin_run(uint32_t run) { run_ = run; kept_ = 0; }

    void end_run() const { std::fprintf(stderr, "coincidence: run %u: %llu events kept\n", run_, kept_); }

    void process(const ropewalk_event &event, ropewalk_decision &decision) {
        const auto begin = event.fragments, end = begin + event.fragment_count;
        const auto loud = std::count_if(begin, end, [this](const ropewalk_fragment &fragment) {
            return fragment.length >= bytes_ && (fragment.flags & ROPEWALK_CRC_ERROR) == 0;
        });
        decision.accept = loud >= sources_;
        ropewalk_pass(&decision, static_cast<unsigned>(loud));
        kept_ += decision.accept;
    }

private:
    long sources_ = 0;
    uint32_t bytes_ = 0, run_ = 0;
    unsigned long long kept_ = 0;
};

// No exception may escape a function that the host calls.
void *create(const ropewalk_host *, const char *configuration, char *error, size_t capacity) {
    try {
        return new Coincidence(configuration);
    } catch (const std::exception &why) {
        std::snprintf(error, capacity, "%s", why.what());
        return nullptr;
    }
}

Coincidence &mine(void *state) { return *static_cast<Coincidence *>(state); }

void begin_run(void *state, uint32_t run) { mine(state).begin_run(run); }

int process(void *state, const ropewalk_event *event, ropewalk_decision *decision) {
    mine(state).process(*event, *decision);
    return 0;
}

void end_run(void *state) { mine(state).end_run(); }

void destroy(void *state) { delete &mine(state); }

const ropewalk_filter filter = {
    ROPEWALK_FILTER_HEAD("coincidence 1.0"), create, begin_run, process, end_run, nullptr, destroy};

} // namespace

extern "C" const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
