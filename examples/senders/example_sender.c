/*
 * An example front end: sends events with a test pattern to Ropewalk. Use it as a start for your own.
 *
 *     cc -std=c99 -O2 -o example_sender example_sender.c
 *     ./example_sender --to 127.0.0.1:5000 --source 1 --events 1000 --rate 100
 */
#include "ropewalk_sender.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char USAGE[] =
    "usage: example_sender [--to HOST:PORT] [--source N] [--name TEXT] [--events N] [--rate HZ] [--size BYTES]\n"
    "                      [--first N] [--resync-after N] [--clock-step NS] [--wait S]\n"
    "  --to HOST:PORT    where Ropewalk listens (127.0.0.1:5000)\n"
    "  --source N        the id of this front end (1)\n"
    "  --name TEXT       its name, at most 32 bytes (example)\n"
    "  --events N        how many events to send; 0 goes on until Ctrl-C (1000)\n"
    "  --rate HZ         events per second; 0 goes as fast as it can (100)\n"
    "  --size BYTES      payload of each event (1024)\n"
    "  --first N         the first event's number (1)\n"
    "  --resync-after N  starts the numbering again after so many events; 0 never (0)\n"
    "  --clock-step NS   timestamps grow by this instead of telling the time; 0 tells the time (0)\n"
    "  --wait S          how long to try until Ropewalk listens (10)\n";

struct options {
    const char *host, *port, *name;
    char address[256];
    uint64_t source, events, size, first, resync_after, clock_step, wait;
    double rate;
};

static volatile sig_atomic_t stopped = 0;

/* The first Ctrl-C ends after the event at hand; a second one ends at once. */
static void stop(int signal_number)
{
    signal(signal_number, SIG_DFL);
    stopped = 1;
}

static void fail_with_usage(void)
{
    fputs(USAGE, stderr);
    exit(2);
}

static uint64_t number(const char *text, uint64_t largest)
{
    char *end;
    unsigned long long value;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value > largest)
        fail_with_usage();
    return value;
}

static double rate(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0))
        fail_with_usage();
    return value;
}

static void set_address(struct options *options, const char *text)
{
    char *colon;
    if (strlen(text) >= sizeof options->address)
        fail_with_usage();
    strcpy(options->address, text);
    colon = strrchr(options->address, ':');
    if (colon == NULL)
        fail_with_usage();
    *colon = '\0';
    options->host = options->address;
    options->port = colon + 1;
}

static void parse(int count, char **arguments, struct options *options)
{
    int index;
    set_address(options, "127.0.0.1:5000");
    for (index = 1; index < count; index += 2) {
        const char *name = arguments[index], *value = arguments[index + 1];
        if (value == NULL)
            fail_with_usage();
        else if (strcmp(name, "--to") == 0)
            set_address(options, value);
        else if (strcmp(name, "--source") == 0)
            options->source = number(value, UINT32_MAX);
        else if (strcmp(name, "--name") == 0)
            options->name = value;
        else if (strcmp(name, "--events") == 0)
            options->events = number(value, UINT64_MAX);
        else if (strcmp(name, "--rate") == 0)
            options->rate = rate(value);
        else if (strcmp(name, "--size") == 0)
            options->size = number(value, UINT32_MAX);
        else if (strcmp(name, "--first") == 0)
            options->first = number(value, UINT64_MAX);
        else if (strcmp(name, "--resync-after") == 0)
            options->resync_after = number(value, UINT64_MAX);
        else if (strcmp(name, "--clock-step") == 0)
            options->clock_step = number(value, UINT64_MAX);
        else if (strcmp(name, "--wait") == 0)
            options->wait = number(value, 1000000);
        else
            fail_with_usage();
    }
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ns(uint64_t nanoseconds)
{
    struct timespec pause;
    pause.tv_sec = (time_t)(nanoseconds / 1000000000u);
    pause.tv_nsec = (long)(nanoseconds % 1000000000u);
    nanosleep(&pause, NULL);
}

/* Tries until Ropewalk listens: the two may start in any order. */
static int open_patiently(struct ropewalk_sender *sender, const struct options *options)
{
    uint64_t deadline = monotonic_ns() + options->wait * 1000000000u;
    uint16_t flags = options->clock_step == 0 ? ROPEWALK_HELLO_UTC : 0;
    while (ropewalk_open(sender, options->host, options->port, (uint32_t)options->source, flags, options->name) < 0) {
        if (stopped || monotonic_ns() >= deadline)
            return -1;
        sleep_ns(100000000u);
    }
    return 0;
}

/* Waits until the event numbered `index` is due. Collected data are sent first. */
static int wait_for_trigger(struct ropewalk_sender *sender, const struct options *options, uint64_t start, uint64_t index)
{
    uint64_t due, now;
    if (options->rate <= 0)
        return 0;
    due = start + (uint64_t)((double)index / options->rate * 1e9);
    now = monotonic_ns();
    if (now >= due)
        return 0;
    if (ropewalk_flush(sender) < 0)
        return -1;
    sleep_ns(due - now);
    return 0;
}

static int send_events(struct ropewalk_sender *sender, const struct options *options, unsigned char *payload)
{
    uint64_t start = monotonic_ns(), event_number = options->first, index, byte;
    for (index = 0; !stopped && (options->events == 0 || index < options->events); index++) {
        int resync = index > 0 && index == options->resync_after;
        uint64_t timestamp_ns;
        if (resync)
            event_number = options->first;
        if (wait_for_trigger(sender, options, start, index) < 0)
            return -1;
        timestamp_ns = options->clock_step == 0 ? ropewalk_utc_ns() : index * options->clock_step;
        for (byte = 0; byte < options->size; byte++)
            payload[byte] = (unsigned char)(event_number + byte);
        if (ropewalk_send(sender, event_number++, timestamp_ns, resync ? ROPEWALK_RESYNC : 0, payload,
                          (uint32_t)options->size) < 0)
            return -1;
    }
    fprintf(stderr, "sent %llu events\n", (unsigned long long)index);
    return ropewalk_close(sender);
}

int main(int count, char **arguments)
{
    static struct ropewalk_sender sender;
    static struct options options = {
        .name = "example", .source = 1, .events = 1000, .rate = 100, .size = 1024, .first = 1, .wait = 10
    };
    unsigned char *payload;
    parse(count, arguments, &options);
    payload = malloc(options.size + 1);
    signal(SIGINT, stop);
    if (payload == NULL || open_patiently(&sender, &options) < 0 || send_events(&sender, &options, payload) < 0) {
        perror("example_sender");
        return 1;
    }
    free(payload);
    return 0;
}
