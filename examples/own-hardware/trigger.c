/*
 * A trigger source under run control: triggers come at a steady rate, and each gets the number of its event.
 *
 *     cc -std=c99 -O2 -I bindings/c -o trigger examples/own-hardware/trigger.c bindings/c/ropewalk_source.c
 *     ./trigger --control 127.0.0.1:5100 --source 1 --line 5101
 *
 * Detectors connect to the port --line to receive the triggers (format: line.h). Settings: rate = 10000.0, in Hz. A trigger that
 * comes while a detector on the line is too slow is vetoed as "busy". Ends with Ctrl-C.
 */
#define _POSIX_C_SOURCE 200809L
#include "line.h"
#include "ropewalk_source.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_FOLLOWERS 16
/* Bytes that may wait for a follower before triggers are vetoed. */
#define MOST_WAITING (1u << 16)

struct follower {
    int socket;
    size_t waiting;
    unsigned char bytes[2 * MOST_WAITING];
};

struct trigger {
    int listener;
    double rate;
    uint64_t begun_ns, done; /* start of the triggers; number of triggers so far */
    struct follower followers[MOST_FOLLOWERS];
    int count;
};

static volatile sig_atomic_t is_over = 0;

static void end(int number)
{
    (void)number;
    is_over = 1;
}

static void drop_followers(struct trigger *trigger)
{
    while (trigger->count > 0)
        close(trigger->followers[--trigger->count].socket);
}

static const char *configure(void *mine, const char *settings)
{
    struct trigger *trigger = mine;
    const char *rate = strstr(settings, "rate = ");
    trigger->rate = rate == NULL ? 1000.0 : atof(rate + 7);
    return trigger->rate > 0 ? NULL : "the rate must be more than 0 Hz";
}

/* All detectors have connected by now: run control enables triggers when every source has started. */
static const char *enable(void *mine)
{
    struct trigger *trigger = mine;
    int one;
    while (trigger->count < MOST_FOLLOWERS && (one = accept(trigger->listener, NULL, NULL)) >= 0) {
        fcntl(one, F_SETFL, fcntl(one, F_GETFL) | O_NONBLOCK);
        trigger->followers[trigger->count].waiting = 0;
        trigger->followers[trigger->count++].socket = one;
    }
    trigger->begun_ns = ropewalk_source_utc_ns();
    trigger->done = 0;
    return NULL;
}

static void feed(struct trigger *trigger)
{
    int index;
    for (index = 0; index < trigger->count; index++) {
        struct follower *one = &trigger->followers[index];
        ssize_t sent = send(one->socket, one->bytes, one->waiting, MSG_NOSIGNAL);
        if (sent > 0) {
            one->waiting -= (size_t)sent;
            memmove(one->bytes, one->bytes + sent, one->waiting);
        } else if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            close(one->socket);
            *one = trigger->followers[--trigger->count];
            index--;
        }
    }
}

static int is_busy(const struct trigger *trigger)
{
    int index;
    for (index = 0; index < trigger->count; index++)
        if (trigger->followers[index].waiting >= MOST_WAITING)
            return 1;
    return 0;
}

static void pull(struct trigger *trigger, struct ropewalk_source *source)
{
    unsigned char bytes[TRIGGER_BYTES];
    uint64_t event;
    int index;
    if (is_busy(trigger)) {
        ropewalk_source_veto(source, "busy");
        return;
    }
    event = ropewalk_source_trigger(source);
    if (event == ROPEWALK_UNKNOWN)
        return;
    put_number(bytes, event);
    put_number(bytes + 8, ropewalk_source_utc_ns());
    for (index = 0; index < trigger->count; index++) {
        struct follower *one = &trigger->followers[index];
        memcpy(one->bytes + one->waiting, bytes, sizeof bytes);
        one->waiting += sizeof bytes;
    }
    ropewalk_source_send(source, event, number_at(bytes + 8), bytes, sizeof bytes);
}

/* Takes the triggers that are due by now. */
static void go_on(struct trigger *trigger, struct ropewalk_source *source)
{
    double due = (double)(ropewalk_source_utc_ns() - trigger->begun_ns) * 1e-9 * trigger->rate;
    int most = 1000; /* at once, so that run control is read in between */
    while ((double)trigger->done < due && most-- > 0) {
        pull(trigger, source);
        trigger->done++;
    }
    /* Triggers without an event count, too: while the run is paused they are vetoed. */
    ropewalk_source_count(source, "triggers", trigger->done);
}

static int listen_at(const char *port)
{
    struct sockaddr_in place;
    socklen_t length = sizeof place;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    memset(&place, 0, sizeof place);
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons((uint16_t)atoi(port));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&place, sizeof place) < 0 || listen(listener, MOST_FOLLOWERS) < 0 ||
        getsockname(listener, (struct sockaddr *)&place, &length) < 0) {
        perror("the port of the line");
        exit(1);
    }
    fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
    printf("line %d\n", (int)ntohs(place.sin_port));
    fflush(stdout);
    return listener;
}

int main(int count, char **arguments)
{
    static struct trigger trigger;
    const char *control = "127.0.0.1:5100", *line = "5101", *id = "1";
    struct ropewalk_source_callbacks callbacks = {configure, NULL, enable, NULL, NULL, NULL, NULL};
    struct ropewalk_source *source;
    int index;
    for (index = 1; index + 1 < count; index += 2) {
        if (strcmp(arguments[index], "--control") == 0)
            control = arguments[index + 1];
        else if (strcmp(arguments[index], "--line") == 0)
            line = arguments[index + 1];
        else if (strcmp(arguments[index], "--source") == 0)
            id = arguments[index + 1];
    }
    signal(SIGINT, end);
    signal(SIGTERM, end);
    trigger.listener = listen_at(line);
    source = ropewalk_source_open(control, (uint32_t)atoi(id), "trigger", ROPEWALK_CLOCK_UTC, "example 1", &callbacks,
                                  &trigger);
    if (source == NULL) {
        perror("ropewalk_source_open");
        return 1;
    }
    while (!is_over && ropewalk_source_poll(source, 1) == 0) {
        if (ropewalk_source_stage(source) == ROPEWALK_TRIGGERING)
            go_on(&trigger, source);
        feed(&trigger);
        if (ropewalk_source_stage(source) == ROPEWALK_READY)
            drop_followers(&trigger); /* of the last run; the next ones wait to be accepted */
    }
    ropewalk_source_close(source);
    return 0;
}
