/* A front end under Ropewalk's run control: see ropewalk_source.h. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "ropewalk_source.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONTROL_VERSION 2
#define LIBRARY_VERSION "ropewalk_source.c 2"
/* Bytes of fragments that may wait for the network before send waits, and the number sent without another poll. */
#define BUFFER_BYTES (1u << 20)
#define FLUSH_BYTES (1u << 16)
#define INCOMING_BYTES (1u << 17)
#define OUTGOING_BYTES (1u << 17)
/* Room for run control that is reserved for answers. */
#define RESERVED_BYTES (1u << 14)
#define MOST_NAMED 32
#define NAME_BYTES 64
#define TEXT_BYTES 256
#define RETRY_MS 500
#define CONNECT_MS 5000
#define STATUS_MS 1000
#define HELLO_BYTES 64
#define HEADER_BYTES 32
#define FRAME_BYTES 8

/* Kinds of messages; each frame is "RWC", kind, length of the body, little-endian. */
enum kind {
    HELLO = 1, WELCOME = 2, REFUSE = 3,
    CONFIGURE = 16, START = 17, ENABLE = 18, VETO = 19, STOP = 20, PING = 21, HOLD = 22, RELEASE = 23,
    READY = 32, FAILED = 33, STARTED = 34, ENABLED = 35, VETOED = 36, STOPPED = 37, STATUS = 38, REPORT = 39, HELD = 40,
    RELEASED = 41
};

/* A connection that is being made, is established, or will be made again after a while. */
struct line {
    char host[256], port[16];
    int socket; /* -1: none */
    int is_wanted, is_up;
    int64_t retry, limit;
};

struct named {
    char name[NAME_BYTES];
    uint64_t count;
};

struct bytes {
    unsigned char *at;
    size_t filled, room;
};

struct ropewalk_source {
    struct ropewalk_source_callbacks callbacks;
    void *mine;
    uint32_t id, run;
    char name[33], versions[TEXT_BYTES], text[TEXT_BYTES];
    enum ropewalk_clock clock;
    enum ropewalk_stage stage;
    struct line control, data;
    struct bytes incoming, outgoing, buffer;
    /* In the buffer: the beginning of the first fragment that was not sent completely, and how far it was sent. */
    size_t begin, gone;
    struct ropewalk_source_counts counts;
    uint64_t first, last, stop_last, first_sent, last_sent, issued, next;
    int is_stopping, is_done, has_command, is_held;
    int64_t ready_until, status_due; /* ready_until is 0 if no answer waits for the data connection */
    struct named vetoed[MOST_NAMED], counters[MOST_NAMED];
    int vetoed_count, counter_count;
};

uint64_t ropewalk_source_utc_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t milliseconds(void)
{
    return monotonic_ns() / 1000000;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int make_room(struct bytes *bytes, size_t more)
{
    size_t room = bytes->room;
    unsigned char *larger;
    if (bytes->filled + more <= room)
        return 0;
    while (room < bytes->filled + more)
        room *= 2;
    larger = realloc(bytes->at, room);
    if (larger == NULL)
        return -1;
    bytes->at = larger;
    bytes->room = room;
    return 0;
}

static void drop_front(struct bytes *bytes, size_t count)
{
    memmove(bytes->at, bytes->at + count, bytes->filled - count);
    bytes->filled -= count;
}

static unsigned char *put(unsigned char *to, uint64_t value, int count)
{
    int index;
    for (index = 0; index < count; index++)
        to[index] = (unsigned char)(value >> (8 * index));
    return to + count;
}

static uint64_t get(const unsigned char *from, int count)
{
    uint64_t value = 0;
    while (count-- > 0)
        value = value << 8 | from[count];
    return value;
}

/* A text with its length in front; a longer one is cut at a boundary of UTF-8 characters. */
static unsigned char *put_text(unsigned char *to, const char *text, size_t most)
{
    size_t length = text == NULL ? 0 : strlen(text);
    if (length > most) {
        length = most;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    to = put(to, length, 2);
    if (length > 0)
        memcpy(to, text, length);
    return to + length;
}

static unsigned char *put_named(unsigned char *to, const struct named *named, int count)
{
    int index;
    to = put(to, (uint64_t)count, 2);
    for (index = 0; index < count; index++) {
        to = put_text(to, named[index].name, NAME_BYTES);
        to = put(to, named[index].count, 8);
    }
    return to;
}

/* The number with this name, added if there is room; otherwise NULL. */
static uint64_t *number_of(struct named *named, int *count, const char *name)
{
    int index;
    for (index = 0; index < *count; index++)
        if (strncmp(named[index].name, name, NAME_BYTES - 1) == 0)
            return &named[index].count;
    if (*count == MOST_NAMED)
        return NULL;
    *count += 1;
    memset(&named[index], 0, sizeof named[index]);
    strncpy(named[index].name, name, NAME_BYTES - 1);
    return &named[index].count;
}

/* ---- connections --------------------------------------------------------------------------------------------------- */

/* Takes HOST:PORT, [HOST]:PORT, or :PORT, which is at `host`. */
static int set_place(struct line *line, const char *address, size_t length, const char *host)
{
    char copy[sizeof line->host + sizeof line->port];
    char *name = copy, *port;
    if (length >= sizeof copy)
        return -1;
    memcpy(copy, address, length);
    copy[length] = '\0';
    port = strrchr(copy, ':');
    if (port == NULL)
        return -1;
    *port++ = '\0';
    if (name[0] == '[') {
        name++;
        name[strcspn(name, "]")] = '\0';
    }
    if (name[0] == '\0')
        name = (char *)host;
    if (strlen(name) >= sizeof line->host || strlen(port) >= sizeof line->port)
        return -1;
    memmove(line->host, name, strlen(name) + 1);
    strcpy(line->port, port);
    return 0;
}

static void close_line(struct line *line)
{
    if (line->socket >= 0)
        close(line->socket);
    line->socket = -1;
    line->is_up = 0;
    line->retry = milliseconds() + RETRY_MS;
}

static void begin_line(struct line *line)
{
    struct addrinfo hints, *addresses;
    int one = 1;
    close_line(line);
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(line->host, line->port, &hints, &addresses) != 0)
        return;
    line->socket = socket(addresses->ai_family, addresses->ai_socktype, addresses->ai_protocol);
    if (line->socket >= 0) {
        fcntl(line->socket, F_SETFL, fcntl(line->socket, F_GETFL) | O_NONBLOCK);
        fcntl(line->socket, F_SETFD, FD_CLOEXEC);
        setsockopt(line->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(line->socket, addresses->ai_addr, addresses->ai_addrlen) < 0 && errno != EINPROGRESS)
            close_line(line);
    }
    freeaddrinfo(addresses);
    line->limit = milliseconds() + CONNECT_MS;
}

/* Whether the connection has just been established. */
static int has_come(struct line *line)
{
    struct pollfd look;
    int failure = 0;
    socklen_t length = sizeof failure;
    if (line->socket < 0 || line->is_up)
        return 0;
    look.fd = line->socket;
    look.events = POLLOUT;
    if (poll(&look, 1, 0) > 0) {
        getsockopt(line->socket, SOL_SOCKET, SO_ERROR, &failure, &length);
        line->is_up = failure == 0;
        if (failure != 0)
            close_line(line);
    } else if (milliseconds() >= line->limit) {
        close_line(line);
    }
    return line->is_up;
}

static int is_busy(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* ---- words ----------------------------------------------------------------------------------------------------------- */

static void say(struct ropewalk_source *source, enum kind kind, const unsigned char *body, size_t length)
{
    unsigned char *to;
    if (make_room(&source->outgoing, FRAME_BYTES + length) < 0) {
        close_line(&source->control); /* run control asks again over the next connection */
        return;
    }
    to = source->outgoing.at + source->outgoing.filled;
    memcpy(to, "RWC", 3);
    to[3] = (unsigned char)kind;
    to = put(to + 4, length, 4);
    if (length > 0)
        memcpy(to, body, length);
    source->outgoing.filled += FRAME_BYTES + length;
}

static void say_run(struct ropewalk_source *source, enum kind kind)
{
    unsigned char body[4];
    put(body, source->run, 4);
    say(source, kind, body, sizeof body);
}

static void say_failed(struct ropewalk_source *source, uint32_t run, const char *text)
{
    unsigned char body[4 + 2 + TEXT_BYTES];
    say(source, FAILED, body, (size_t)(put_text(put(body, run, 4), text, TEXT_BYTES) - body));
}

static void say_status(struct ropewalk_source *source)
{
    unsigned char body[64 + TEXT_BYTES + MOST_NAMED * (NAME_BYTES + 10)];
    unsigned char *to = put(body, source->run, 4);
    to = put(to, (uint64_t)source->stage, 1);
    to = put(to, source->counts.sent, 8);
    to = put(to, source->counts.sent_bytes, 8);
    to = put(to, source->counts.waited_ns, 8);
    to = put_text(to, source->text, TEXT_BYTES - 1);
    to = put_named(to, source->counters, source->counter_count);
    source->status_due = milliseconds() + STATUS_MS;
    if (source->control.is_up)
        say(source, STATUS, body, (size_t)(to - body));
}

static void say_vetoed(struct ropewalk_source *source)
{
    unsigned char body[32 + MOST_NAMED * (NAME_BYTES + 10)];
    unsigned char *to = put(body, source->run, 4);
    to = put(to, source->next - 1, 8);
    to = put(to, source->issued, 8);
    to = put_named(to, source->vetoed, source->vetoed_count);
    say(source, VETOED, body, (size_t)(to - body));
}

static void say_held(struct ropewalk_source *source)
{
    unsigned char body[12];
    put(put(body, source->run, 4), source->next - 1, 8);
    say(source, HELD, body, sizeof body);
}

static void say_stopped(struct ropewalk_source *source, uint32_t run)
{
    unsigned char body[28];
    int is_this = run == source->run;
    unsigned char *to = put(body, run, 4);
    to = put(to, is_this ? source->first_sent : ROPEWALK_UNKNOWN, 8);
    to = put(to, is_this ? source->last_sent : ROPEWALK_UNKNOWN, 8);
    put(to, is_this ? source->counts.sent : 0, 8);
    say(source, STOPPED, body, sizeof body);
}

/* Sends id and stage; anything begun over an earlier connection is void. */
static void greet(struct ropewalk_source *source)
{
    unsigned char body[64 + TEXT_BYTES];
    unsigned char *to = body + 8;
    source->incoming.filled = source->outgoing.filled = 0;
    memcpy(body, "RWSOURCE", 8);
    to = put(to, CONTROL_VERSION, 2);
    to = put(to, (uint64_t)source->clock, 1);
    to = put(to, (uint64_t)source->stage, 1);
    to = put(to, source->id, 4);
    to = put(to, source->run, 4);
    memcpy(to, source->name, 32);
    to = put_text(to + 32, source->versions, TEXT_BYTES - 1);
    say(source, HELLO, body, (size_t)(put(to, (uint64_t)source->is_held, 1) - body));
}

/* ---- data ------------------------------------------------------------------------------------------------------------ */

static void greet_data(struct ropewalk_source *source)
{
    struct bytes *buffer = &source->buffer;
    unsigned char *hello;
    /* A partly sent fragment is sent again completely; a hello is for one connection. */
    drop_front(buffer, source->begin);
    source->begin = source->gone = 0;
    if (buffer->filled >= HELLO_BYTES && memcmp(buffer->at, "RWHI", 4) == 0)
        drop_front(buffer, HELLO_BYTES);
    if (make_room(buffer, HELLO_BYTES) < 0) {
        close_line(&source->data);
        return;
    }
    memmove(buffer->at + HELLO_BYTES, buffer->at, buffer->filled);
    buffer->filled += HELLO_BYTES;
    hello = buffer->at;
    memset(hello, 0, HELLO_BYTES);
    memcpy(hello, "RWHI", 4);
    put(hello + 4, 1, 1);
    put(hello + 6, source->clock == ROPEWALK_CLOCK_UTC, 2);
    put(hello + 8, source->id, 4);
    memcpy(hello + 16, source->name, 32);
}

static size_t piece_bytes(const unsigned char *piece)
{
    return memcmp(piece, "RWHI", 4) == 0 ? HELLO_BYTES : HEADER_BYTES + (size_t)get(piece + 12, 4);
}

/* Sends collected data, as far as the network accepts it. */
static void flush(struct ropewalk_source *source)
{
    struct bytes *buffer = &source->buffer;
    while (source->data.is_up && source->gone < buffer->filled) {
        ssize_t count = send(source->data.socket, buffer->at + source->gone, buffer->filled - source->gone, MSG_NOSIGNAL);
        if (count < 0 && is_busy())
            break;
        if (count < 0)
            close_line(&source->data);
        else
            source->gone += (size_t)count;
    }
    while (source->begin < source->gone && source->begin + piece_bytes(buffer->at + source->begin) <= source->gone)
        source->begin += piece_bytes(buffer->at + source->begin);
    if (source->begin == buffer->filled || source->begin > BUFFER_BYTES / 2) {
        drop_front(buffer, source->begin);
        source->gone -= source->begin;
        source->begin = 0;
    }
}

/* ---- commands -------------------------------------------------------------------------------------------------------- */

static const char *configure(struct ropewalk_source *source, uint32_t run, unsigned char *body, size_t length)
{
    size_t address = length < 2 ? length : (size_t)get(body, 2);
    const char *failure = NULL;
    if (run != source->run || source->stage == ROPEWALK_IDLE || source->stage == ROPEWALK_STOPPED) {
        unsigned char *settings = body + 4 + address;
        if (length < 4 + address)
            return "a configure that is cut";
        if (source->stage >= ROPEWALK_STARTED && !source->is_stopping && source->callbacks.stop != NULL)
            source->callbacks.stop(source->mine, source->run, ROPEWALK_UNKNOWN);
        source->data.is_wanted = 0;
        close_line(&source->data);
        source->buffer.filled = source->begin = source->gone = 0;
        source->counts.sent = source->counts.sent_bytes = source->counts.waited_ns = 0;
        source->first_sent = source->last_sent = ROPEWALK_UNKNOWN;
        source->is_stopping = source->is_done = source->is_held = 0;
        source->stage = ROPEWALK_IDLE;
        source->run = run;
        if (set_place(&source->data, (const char *)body + 2, address, source->control.host) < 0)
            failure = "the address of the readout unit cannot be read";
        body[length] = '\0'; /* the buffer has room after every body */
        if (failure == NULL && source->callbacks.configure != NULL)
            failure = source->callbacks.configure(source->mine, (const char *)settings);
        if (failure != NULL) {
            source->run = 0;
            return failure;
        }
        source->data.is_wanted = 1;
        begin_line(&source->data);
    }
    /* The answer is sent when the data connection is established. */
    source->ready_until = milliseconds() + CONNECT_MS;
    return NULL;
}

static const char *start(struct ropewalk_source *source, const unsigned char *body)
{
    const char *failure = NULL;
    if (source->stage == ROPEWALK_READY) {
        source->first = source->next = get(body, 8);
        source->last = get(body + 8, 8);
        source->issued = 0;
        source->vetoed_count = 0;
        if (source->callbacks.start != NULL)
            failure = source->callbacks.start(source->mine, source->run, source->first, source->last);
        if (failure != NULL)
            return failure;
        source->stage = ROPEWALK_STARTED;
    }
    say_run(source, STARTED);
    return NULL;
}

static const char *stop(struct ropewalk_source *source, const unsigned char *body)
{
    if (source->is_stopping) {
        /* A second stop needs no answer while the first is in flight; after the end it is answered again. */
        if (source->stage == ROPEWALK_STOPPED)
            say_stopped(source, source->run);
        return NULL;
    }
    source->stop_last = get(body, 8);
    source->is_stopping = 1;
    source->is_held = 0;
    source->is_done = source->stop_last == ROPEWALK_UNKNOWN || source->stage == ROPEWALK_READY;
    if (source->stage == ROPEWALK_STARTED || source->stage == ROPEWALK_TRIGGERING)
        source->stage = ROPEWALK_VETOED;
    return source->callbacks.stop == NULL ? NULL : source->callbacks.stop(source->mine, source->run, source->stop_last);
}

/* A pause of the run begins or ends. On failure the state does not change. */
static const char *hold(struct ropewalk_source *source, int is_held)
{
    const char *(*callback)(void *) = is_held ? source->callbacks.hold : source->callbacks.release;
    const char *failure = NULL;
    int may_trigger = source->stage == ROPEWALK_STARTED || source->stage == ROPEWALK_TRIGGERING;
    if (may_trigger && source->is_held != is_held) {
        if (callback != NULL)
            failure = callback(source->mine);
        if (failure != NULL)
            return failure;
        source->is_held = is_held;
    }
    if (is_held)
        say_held(source);
    else
        say_run(source, RELEASED);
    return NULL;
}

/* Carries out a command about the present run; returns NULL, or the reason of a failure. */
static const char *run_command(struct ropewalk_source *source, enum kind kind, const unsigned char *body, size_t length)
{
    const char *failure = NULL;
    if (kind == START && length >= 16)
        return start(source, body);
    if (kind == STOP && length >= 8)
        return stop(source, body);
    if (kind == ENABLE) {
        if (source->stage == ROPEWALK_STARTED) {
            if (source->callbacks.enable != NULL)
                failure = source->callbacks.enable(source->mine);
            if (failure != NULL)
                return failure;
            source->stage = ROPEWALK_TRIGGERING;
        }
        say_run(source, ENABLED);
    } else if (kind == VETO) {
        if (source->stage >= ROPEWALK_READY && source->stage <= ROPEWALK_TRIGGERING) {
            source->stage = ROPEWALK_VETOED;
            source->is_held = 0;
            if (source->callbacks.inhibit != NULL)
                failure = source->callbacks.inhibit(source->mine);
        }
        say_vetoed(source);
    } else if (kind == HOLD || kind == RELEASE) {
        failure = hold(source, kind == HOLD);
    }
    return failure;
}

static void command(struct ropewalk_source *source, enum kind kind, unsigned char *body, size_t length)
{
    const char *failure = NULL;
    uint32_t run = length < 4 ? 0 : (uint32_t)get(body, 4);
    if (kind == REFUSE) {
        ropewalk_source_say(source, "refused: another version, no such source, or another program is it already");
        close_line(&source->control);
    } else if (kind == PING) {
        say_status(source);
    } else if (kind == CONFIGURE && length >= 8) {
        failure = configure(source, run, body + 4, length - 4);
    } else if (((kind >= START && kind <= STOP) || kind == HOLD || kind == RELEASE) && length >= 4) {
        if (run == source->run && source->stage != ROPEWALK_IDLE)
            failure = run_command(source, kind, body + 4, length - 4);
        else if (kind == STOP)
            say_stopped(source, run); /* an unknown run: nothing was sent */
    }
    if (failure != NULL)
        say_failed(source, run, failure);
}

/* Carries out complete commands. While send waits, commands wait too, so that no callback runs inside it. */
static void obey(struct ropewalk_source *source, int only_pings)
{
    unsigned char *body;
    source->has_command = 0;
    while (source->incoming.filled >= FRAME_BYTES) {
        const unsigned char *frame = source->incoming.at;
        size_t length = (size_t)get(frame + 4, 4);
        enum kind kind = (enum kind)frame[3];
        if (memcmp(frame, "RWC", 3) != 0 || length > INCOMING_BYTES / 2) {
            close_line(&source->control);
            return;
        }
        if (source->incoming.filled < FRAME_BYTES + length)
            break;
        if (only_pings && kind != PING) {
            source->has_command = 1;
            break;
        }
        /* Removed before the callback, which may call send and so enter this function again. */
        body = malloc(length + 1);
        if (body == NULL)
            return;
        memcpy(body, frame + FRAME_BYTES, length);
        drop_front(&source->incoming, FRAME_BYTES + length);
        command(source, kind, body, length);
        free(body);
    }
    if (only_pings && milliseconds() >= source->status_due)
        say_status(source);
}

/* Sends due answers: the data connection is established, or all data were sent. */
static void answer(struct ropewalk_source *source)
{
    int has_last = source->stop_last != ROPEWALK_UNKNOWN &&
                   (source->stop_last < source->first ||
                    (source->last_sent != ROPEWALK_UNKNOWN && source->last_sent >= source->stop_last));
    if (source->ready_until != 0 && source->data.is_up) {
        if (source->stage < ROPEWALK_READY)
            source->stage = ROPEWALK_READY;
        source->ready_until = 0;
        say_run(source, READY);
    } else if (source->ready_until != 0 && milliseconds() >= source->ready_until) {
        say_failed(source, source->run, "no connection to the readout unit");
        source->ready_until = 0;
        source->run = 0;
        source->data.is_wanted = 0;
        close_line(&source->data);
    }
    if (source->is_stopping && source->stage != ROPEWALK_STOPPED && (has_last || source->is_done) &&
        source->buffer.filled == 0) {
        source->stage = ROPEWALK_STOPPED;
        source->data.is_wanted = 0;
        close_line(&source->data);
        say_stopped(source, source->run);
    }
    if (source->stage != ROPEWALK_IDLE && milliseconds() >= source->status_due)
        say_status(source);
}

static void read_control(struct ropewalk_source *source)
{
    while (source->control.is_up && source->incoming.filled < source->incoming.room) {
        struct bytes *incoming = &source->incoming;
        ssize_t count =
            recv(source->control.socket, incoming->at + incoming->filled, incoming->room - incoming->filled, 0);
        if (count < 0 && is_busy())
            return;
        if (count <= 0)
            close_line(&source->control);
        else
            incoming->filled += (size_t)count;
    }
}

static void write_control(struct ropewalk_source *source)
{
    while (source->control.is_up && source->outgoing.filled > 0) {
        ssize_t count = send(source->control.socket, source->outgoing.at, source->outgoing.filled, MSG_NOSIGNAL);
        if (count < 0 && is_busy())
            return;
        if (count < 0)
            close_line(&source->control);
        else
            drop_front(&source->outgoing, (size_t)count);
    }
}

/* The readout unit sends nothing over the data connection, so readable data mean its end. */
static void watch_data(struct ropewalk_source *source)
{
    char nothing[256];
    if (source->data.is_up) {
        ssize_t count = recv(source->data.socket, nothing, sizeof nothing, 0);
        if (count == 0 || (count < 0 && !is_busy()))
            close_line(&source->data);
    }
}

/* Does all pending work; first sleeps until there is some, at most this long. */
static void serve(struct ropewalk_source *source, int timeout_ms, int only_pings)
{
    struct line *lines[2];
    struct pollfd looks[2];
    int index;
    lines[0] = &source->control;
    lines[1] = &source->data;
    for (index = 0; index < 2; index++) {
        struct line *line = lines[index];
        size_t waiting = index == 0 ? source->outgoing.filled : source->buffer.filled - source->gone;
        if (line->is_wanted && line->socket < 0 && milliseconds() >= line->retry)
            begin_line(line);
        looks[index].fd = line->socket; /* -1 is skipped */
        looks[index].events = (short)(line->is_up ? (waiting > 0 ? POLLIN | POLLOUT : POLLIN) : POLLOUT);
    }
    if (timeout_ms > RETRY_MS)
        timeout_ms = RETRY_MS;
    poll(looks, 2, timeout_ms);
    if (has_come(&source->control))
        greet(source);
    if (has_come(&source->data))
        greet_data(source);
    read_control(source);
    watch_data(source);
    obey(source, only_pings);
    flush(source);
    answer(source);
    write_control(source);
}

/* ---- public functions --------------------------------------------------------------------------------------------------- */

static int allocate(struct bytes *bytes, size_t room)
{
    bytes->at = malloc(room);
    bytes->room = room;
    return bytes->at == NULL ? -1 : 0;
}

struct ropewalk_source *ropewalk_source_open(const char *run_control, uint32_t id, const char *name,
                                             enum ropewalk_clock clock, const char *versions,
                                             const struct ropewalk_source_callbacks *callbacks, void *mine)
{
    struct ropewalk_source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return NULL;
    source->control.socket = source->data.socket = -1;
    if (allocate(&source->incoming, INCOMING_BYTES) < 0 || allocate(&source->outgoing, OUTGOING_BYTES) < 0 ||
        allocate(&source->buffer, BUFFER_BYTES + 2 * FLUSH_BYTES) < 0) {
        ropewalk_source_close(source);
        errno = ENOMEM;
        return NULL;
    }
    if (set_place(&source->control, run_control, strlen(run_control), "127.0.0.1") < 0) {
        ropewalk_source_close(source);
        errno = EINVAL;
        return NULL;
    }
    if (callbacks != NULL)
        source->callbacks = *callbacks;
    source->mine = mine;
    source->id = id;
    source->clock = clock;
    strncpy(source->name, name, 32);
    strncpy(source->versions, versions == NULL ? "" : versions, TEXT_BYTES - sizeof LIBRARY_VERSION - 1);
    strcat(source->versions, source->versions[0] == '\0' ? LIBRARY_VERSION : " " LIBRARY_VERSION);
    source->first = source->next = 1;
    source->stop_last = source->last = source->first_sent = source->last_sent = ROPEWALK_UNKNOWN;
    source->control.is_wanted = 1;
    return source;
}

int ropewalk_source_poll(struct ropewalk_source *source, int timeout_ms)
{
    serve(source, timeout_ms, 0);
    return 0;
}

static int has_room(const struct ropewalk_source *source, size_t more)
{
    size_t waiting = source->buffer.filled - source->gone;
    return waiting == 0 || waiting + more <= BUFFER_BYTES;
}

static int send_fragment(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                         uint32_t length)
{
    struct bytes *buffer = &source->buffer;
    unsigned char *to;
    if (make_room(buffer, HEADER_BYTES + (size_t)length) < 0) {
        errno = ENOMEM;
        return -1;
    }
    to = buffer->at + buffer->filled;
    memset(to, 0, HEADER_BYTES);
    memcpy(to, "RWFR", 4);
    put(to + 4, 1, 1);
    put(to + 8, source->id, 4);
    put(to + 12, length, 4);
    put(to + 16, event, 8);
    put(to + 24, timestamp_ns, 8);
    if (length > 0)
        memcpy(to + HEADER_BYTES, payload, length);
    buffer->filled += HEADER_BYTES + (size_t)length;
    source->counts.sent += 1;
    source->counts.sent_bytes += HEADER_BYTES + (uint64_t)length;
    if (source->first_sent == ROPEWALK_UNKNOWN)
        source->first_sent = event;
    source->last_sent = event;
    if (buffer->filled - source->gone >= FLUSH_BYTES)
        flush(source);
    return 0;
}

int ropewalk_source_try_send(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                             uint32_t length)
{
    if (!has_room(source, HEADER_BYTES + (size_t)length))
        flush(source);
    if (!has_room(source, HEADER_BYTES + (size_t)length)) {
        errno = EAGAIN;
        return -1;
    }
    return send_fragment(source, event, timestamp_ns, payload, length);
}

int ropewalk_source_send(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                         uint32_t length)
{
    int64_t began = monotonic_ns();
    while (ropewalk_source_try_send(source, event, timestamp_ns, payload, length) < 0) {
        if (errno != EAGAIN)
            return -1;
        /* Run control may send commands although the readout unit is gone. */
        if (source->has_command && !source->data.is_up) {
            errno = ENOTCONN;
            return -1;
        }
        serve(source, 50, 1);
        source->counts.waited_ns += (uint64_t)(monotonic_ns() - began);
        began = monotonic_ns();
    }
    return 0;
}

uint64_t ropewalk_source_trigger(struct ropewalk_source *source)
{
    if (source->stage != ROPEWALK_STARTED && source->stage != ROPEWALK_TRIGGERING)
        return ROPEWALK_UNKNOWN;
    if (source->stage == ROPEWALK_STARTED) {
        ropewalk_source_veto(source, "not_enabled");
        return ROPEWALK_UNKNOWN;
    }
    if (source->is_held) {
        ropewalk_source_veto(source, "paused");
        return ROPEWALK_UNKNOWN;
    }
    if (source->last != ROPEWALK_UNKNOWN && source->next > source->last) {
        ropewalk_source_veto(source, "run_complete");
        return ROPEWALK_UNKNOWN;
    }
    source->issued += 1;
    return source->next++;
}

int ropewalk_source_is_held(const struct ropewalk_source *source)
{
    return source->is_held;
}

void ropewalk_source_veto(struct ropewalk_source *source, const char *cause)
{
    uint64_t *count;
    if (source->stage != ROPEWALK_STARTED && source->stage != ROPEWALK_TRIGGERING)
        return;
    count = number_of(source->vetoed, &source->vetoed_count, cause);
    if (count == NULL)
        count = &source->vetoed[MOST_NAMED - 1].count; /* a wrong name is better than a wrong sum */
    *count += 1;
    source->issued += 1;
}

void ropewalk_source_done(struct ropewalk_source *source)
{
    source->is_done = 1;
}

int ropewalk_source_report(struct ropewalk_source *source, const char *name, double value, const char *unit)
{
    unsigned char body[32 + 2 * NAME_BYTES], *to = put(body, ropewalk_source_utc_ns(), 8);
    uint64_t bits;
    if (!source->control.is_up || source->outgoing.filled > OUTGOING_BYTES - RESERVED_BYTES) {
        source->counts.reports_left_out += 1;
        errno = source->control.is_up ? EAGAIN : ENOTCONN;
        return -1;
    }
    memcpy(&bits, &value, sizeof bits);
    to = put(to, bits, 8);
    to = put_text(put_text(to, name, NAME_BYTES), unit, NAME_BYTES);
    say(source, REPORT, body, (size_t)(to - body));
    return 0;
}

void ropewalk_source_count(struct ropewalk_source *source, const char *name, uint64_t value)
{
    uint64_t *count = number_of(source->counters, &source->counter_count, name);
    if (count != NULL)
        *count = value;
}

void ropewalk_source_say(struct ropewalk_source *source, const char *text)
{
    memset(source->text, 0, sizeof source->text);
    strncpy(source->text, text, sizeof source->text - 1);
}

enum ropewalk_stage ropewalk_source_stage(const struct ropewalk_source *source)
{
    return source->stage;
}

uint32_t ropewalk_source_run(const struct ropewalk_source *source)
{
    return source->run;
}

struct ropewalk_source_counts ropewalk_source_counts(const struct ropewalk_source *source)
{
    return source->counts;
}

void ropewalk_source_close(struct ropewalk_source *source)
{
    if (source == NULL)
        return;
    flush(source);
    close_line(&source->control);
    close_line(&source->data);
    free(source->incoming.at);
    free(source->outgoing.at);
    free(source->buffer.at);
    free(source);
}
