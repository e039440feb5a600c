/*
 * docs/filter-program.md specifies the memory and the messages.
 */
#define _DEFAULT_SOURCE
#include "ropewalk_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 2 };
/* The greeting: memory, the sizes, the starter's process and the length of the library's path; then that path. */
enum { MOST_GREETING = 64 << 10, SIZES = 7, GREETING_HEAD = 8 + 8 * SIZES + 4 + 4, MOST_DESCRIPTORS = 64 };
enum { SIZE_VERSION, SIZE_RECORDS, SIZE_COPIES, SIZE_RESULTS, SIZE_EVENTS, SIZE_ADDRESSES, SIZE_MEMORIES };
enum { WRITTEN = 0, TAKEN = 64, RECORDS = 4096 };         /* in the events */
enum { SLEEPS = 0, ENTRIES = 4096, ENTRY = 64 };          /* in the decisions */
enum { KIND_EVENT = 1 };                                  /* of a record; the others are runs, and the end of a ring */
enum { SEQUENCE = 8, EVENT = 16 };                        /* in the record of an event */
enum { FLAG_ACCEPT = 1, FLAG_UNDECIDED = 2 };
enum { MOST_HISTOGRAMS = 64, MOST_NAME = 64 };
/* Room for one event: its result, followed by its fills of histograms. */
enum { MOST_SAID = ROPEWALK_RESULT_CAPACITY + ROPEWALK_FILL_CAPACITY * sizeof(struct ropewalk_fill) };
/* The run is woken for decisions after this many, or if the event took this long. */
enum { MANY = 32, LONG_NS = 100000 };

struct ropewalk_client {
    int socket;
    uint64_t memory, sizes[SIZES];
    char *configuration;
    const uint8_t *addresses; /* the ring of events, followed by each memory that contains events */
    uint8_t *decisions;
    uint64_t *results;        /* by event: the position after its result */
    uint64_t at;              /* the position of the next record */
    uint64_t result;          /* the position of the next result */
    uint64_t decided, announced;
    int64_t begun_ns;
    /* The event at hand, and its decision. */
    uint64_t sequence, length;
    const struct ropewalk_event *event;
    struct ropewalk_decision decision;
    struct ropewalk_fill fills[ROPEWALK_FILL_CAPACITY];
    int histograms;           /* number of declared histograms */
};

static uint64_t u64_at(const uint8_t *at) { uint64_t value; memcpy(&value, at, sizeof value); return value; }
static uint32_t u32_at(const uint8_t *at) { uint32_t value; memcpy(&value, at, sizeof value); return value; }

/* A number that the run writes while this program reads it. */
static uint64_t look(const uint8_t *at) { return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE); }
static void put(uint8_t *at, uint64_t value) { __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELEASE); }

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Receives a message with descriptors; returns its length, or -1 without a message or for a truncated one. */
static ssize_t receive(int from, void *into, size_t room, int *descriptors, size_t *count) {
    union { struct cmsghdr head; char bytes[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))]; } control;
    struct iovec data;
    struct msghdr message;
    struct cmsghdr *part;
    ssize_t received;
    data.iov_base = into;
    data.iov_len = room;
    memset(&message, 0, sizeof message);
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    received = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    *count = 0;
    if (received <= 0 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return -1;
    part = CMSG_FIRSTHDR(&message);
    if (part != NULL && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
        *count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(descriptors, CMSG_DATA(part), *count * sizeof(int));
    }
    return received;
}

/* Maps the memory of a descriptor at its address, or anywhere if that is NULL, and closes the descriptor. */
static void *map(void *address, size_t length, int protection, int descriptor) {
    void *mapped = mmap(address, length, protection, MAP_SHARED | (address != NULL ? MAP_FIXED : 0), descriptor, 0);
    close(descriptor);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Maps all memory; returns 0, or -1. */
static int map_all(struct ropewalk_client *client, const int *own) {
    const uint64_t *sizes = client->sizes;
    size_t decisions = ENTRIES + sizes[SIZE_EVENTS] * ENTRY + sizes[SIZE_RESULTS], placed = 0, count, one;
    const uint64_t huge_page = 2 << 20;
    uint8_t *addresses = mmap(NULL, sizes[SIZE_ADDRESSES] + huge_page, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED)
        return -1;
    addresses += (huge_page - (uintptr_t)addresses % huge_page) % huge_page;
    client->addresses = addresses;
    client->decisions = map(NULL, decisions, PROT_READ | PROT_WRITE, own[1]);
    if (client->decisions == NULL ||
        map(addresses, RECORDS + sizes[SIZE_RECORDS] + sizes[SIZE_COPIES], PROT_READ, own[0]) == NULL)
        return -1;
    while (placed < sizes[SIZE_MEMORIES]) {
        uint8_t message[8 + 16 * MOST_DESCRIPTORS];
        int descriptors[MOST_DESCRIPTORS];
        ssize_t length = receive(client->socket, message, sizeof message, descriptors, &count);
        if (count == 0 || length != (ssize_t)(8 + 16 * count))
            return -1;
        for (one = 0; one < count; one++, placed++) {
            const uint8_t *said = message + 8 + 16 * one;
            if (map(addresses + u64_at(said), u64_at(said + 8), PROT_READ, descriptors[one]) == NULL)
                return -1;
        }
    }
    return 0;
}

/* Reads the first message, of this length; returns 0, or -1. */
static int greet(struct ropewalk_client *client, const uint8_t *greeting, size_t length) {
    size_t one, begin;
    uint32_t starter;
    if (length < GREETING_HEAD)
        return -1;
    client->memory = u64_at(greeting);
    for (one = 0; one < SIZES; one++)
        client->sizes[one] = u64_at(greeting + 8 + 8 * one);
    starter = u32_at(greeting + 8 + 8 * SIZES);
    begin = GREETING_HEAD + (size_t)u32_at(greeting + 8 + 8 * SIZES + 4);
    if (client->sizes[SIZE_VERSION] != VERSION || begin > length)
        return -1;
    client->configuration = calloc(1, length - begin + 1);
    client->results = calloc(client->sizes[SIZE_EVENTS], sizeof *client->results);
    if (client->configuration == NULL || client->results == NULL)
        return -1;
    memcpy(client->configuration, greeting + begin, length - begin);
    /* The parent may have ended before PR_SET_PDEATHSIG took effect. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && (uint32_t)getppid() == starter ? 0 : -1;
}

struct ropewalk_client *ropewalk_client_open(void) {
    struct ropewalk_client *client = calloc(1, sizeof *client);
    uint8_t *greeting = malloc(MOST_GREETING);
    int descriptors[MOST_DESCRIPTORS];
    size_t count = 0;
    ssize_t length = -1;
    int is_good = 0;
    if (client != NULL && greeting != NULL) {
        client->socket = STDIN_FILENO;
        length = receive(client->socket, greeting, MOST_GREETING, descriptors, &count);
        is_good = length > 0 && count == 2 && greet(client, greeting, (size_t)length) == 0 &&
                  map_all(client, descriptors) == 0;
    }
    free(greeting);
    if (!is_good) {
        fprintf(stderr, "a run of a version that fits starts this by itself, as a filter's program\n");
        if (client != NULL)
            ropewalk_client_close(client);
        return NULL;
    }
    return client;
}

const char *ropewalk_client_configuration(const struct ropewalk_client *client) { return client->configuration; }

uint64_t ropewalk_client_memory(const struct ropewalk_client *client) { return client->memory; }

int ropewalk_client_histogram(struct ropewalk_client *client, const char *name, uint32_t bins, double low, double high) {
    uint8_t message[24 + MOST_NAME] = {'H'};
    size_t length = strlen(name);
    if (length == 0 || length > MOST_NAME || client->histograms == MOST_HISTOGRAMS)
        return -1;
    memcpy(message + 4, &bins, 4);
    memcpy(message + 8, &low, 8);
    memcpy(message + 16, &high, 8);
    memcpy(message + 24, name, length);
    if (send(client->socket, message, 24 + length, MSG_NOSIGNAL) != (ssize_t)(24 + length))
        return -1;
    return client->histograms++;
}

int ropewalk_client_ready(struct ropewalk_client *client) {
    /* No confinement is missing: this is the user's own program, with the user's rights. */
    static const uint8_t ready[] = {'R', 0};
    uint8_t address[16] = {'A'};
    uint64_t begin = (uintptr_t)client->addresses;
    memcpy(address + 8, &begin, 8);
    client->begun_ns = now_ns();
    if (send(client->socket, address, sizeof address, MSG_NOSIGNAL) != sizeof address)
        return -1;
    return send(client->socket, ready, sizeof ready, MSG_NOSIGNAL) == sizeof ready ? 0 : -1;
}

void ropewalk_client_refuse(struct ropewalk_client *client, const char *why) {
    char text[4096];
    int length = snprintf(text, sizeof text, "E%s", why);
    if (length > 0)
        send(client->socket, text, length < (int)sizeof text ? (size_t)length : sizeof text - 1, MSG_NOSIGNAL);
}

/* Announces decisions that the run has not taken yet. Not needed if the socket is full of announcements already. */
static void announce(struct ropewalk_client *client) {
    uint64_t taken = look(client->addresses + TAKEN);
    if (client->decided > taken && client->decided > client->announced) {
        client->announced = client->decided;
        send(client->socket, "D", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Whether there is room for the largest result of the next event, after the results that were not taken yet. */
static int has_room(const struct ropewalk_client *client) {
    uint64_t taken = look(client->addresses + TAKEN);
    uint64_t free = taken == 0 ? 0 : client->results[taken % client->sizes[SIZE_EVENTS]];
    return client->result + MOST_SAID <= free + client->sizes[SIZE_RESULTS];
}

static int has_record(const struct ropewalk_client *client) { return look(client->addresses + WRITTEN) != client->at; }

/* Sleeps until a condition holds; returns 0 if the run has gone. */
static int wait_until(struct ropewalk_client *client, int (*is_so)(const struct ropewalk_client *)) {
    while (!is_so(client)) {
        char woken[16];
        announce(client);
        put(client->decisions + SLEEPS, 1);
        /* The run writes, and checks whether this sleeps: at least one of the two sees the other. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (!is_so(client) && recv(client->socket, woken, sizeof woken, 0) <= 0)
            return 0;
        put(client->decisions + SLEEPS, 0);
    }
    return 1;
}

const struct ropewalk_event *ropewalk_client_next(struct ropewalk_client *client, struct ropewalk_decision **decision) {
    const uint64_t records = client->sizes[SIZE_RECORDS], results = client->sizes[SIZE_RESULTS];
    while (wait_until(client, has_record)) {
        const uint8_t *record = client->addresses + RECORDS + client->at % records;
        uint64_t to_end = results - client->result % results;
        if (u32_at(record + 4) != KIND_EVENT) {
            client->at += u32_at(record);
            continue;
        }
        if (to_end < MOST_SAID)
            client->result += to_end;
        if (!wait_until(client, has_room))
            return NULL;
        client->sequence = u64_at(record + SEQUENCE);
        client->length = u32_at(record);
        memset(&client->decision, 0, sizeof client->decision);
        client->decision.size = sizeof client->decision;
        client->decision.capacity = ROPEWALK_RESULT_CAPACITY;
        client->decision.result = client->decisions + ENTRIES + client->sizes[SIZE_EVENTS] * ENTRY + client->result % results;
        client->decision.fills = client->fills;
        client->decision.fill_capacity = ROPEWALK_FILL_CAPACITY;
        *decision = &client->decision;
        /* Its pointers are addresses in this program: see ropewalk_client_ready. */
        client->event = (const struct ropewalk_event *)(const void *)(record + EVENT);
        return client->event;
    }
    return NULL;
}

/* Writes the entry of the event, its sequence last. */
static void publish(struct ropewalk_client *client, uint32_t flags, uint32_t result_length, uint32_t fills) {
    const struct ropewalk_decision *decision = &client->decision;
    const uint64_t events = client->sizes[SIZE_EVENTS];
    uint8_t *entry = client->decisions + ENTRIES + (client->sequence - 1) % events * ENTRY;
    uint64_t result_at = client->result % client->sizes[SIZE_RESULTS], taken;
    uint32_t attempt = client->event->attempt, kept = fills < ROPEWALK_FILL_CAPACITY ? fills : ROPEWALK_FILL_CAPACITY;
    uint16_t counts[2];
    int64_t now = now_ns();
    memcpy(entry + 8, &client->event->key, 8);
    memcpy(entry + 16, decision->bits, 16);
    memcpy(entry + 32, &attempt, 4);
    memcpy(entry + 36, &flags, 4);
    memcpy(entry + 40, &result_at, 8);
    memcpy(entry + 48, &result_length, 4);
    counts[0] = (uint16_t)kept;
    counts[1] = (uint16_t)(fills - kept < UINT16_MAX ? fills - kept : UINT16_MAX);
    memcpy(entry + 52, counts, 4);
    /* The run kills a program that writes a longer result than allowed. */
    if (result_length <= ROPEWALK_RESULT_CAPACITY)
        memcpy(decision->result + ((uint64_t)result_length + 7) / 8 * 8, client->fills, kept * sizeof *client->fills);
    put(entry, client->sequence);
    client->result += ((uint64_t)result_length + 7) / 8 * 8 + kept * sizeof *client->fills;
    client->results[client->sequence % events] = client->result;
    client->decided = client->sequence;
    client->at += client->length;
    taken = look(client->addresses + TAKEN);
    if (now - client->begun_ns > LONG_NS ||
        client->decided - (client->announced > taken ? client->announced : taken) >= MANY)
        announce(client);
    client->begun_ns = now;
}

void ropewalk_client_decide(struct ropewalk_client *client) {
    const struct ropewalk_decision *said = &client->decision;
    publish(client, said->accept ? FLAG_ACCEPT : 0, said->result_length, said->fill_count);
}

void ropewalk_client_give_up(struct ropewalk_client *client) { publish(client, FLAG_UNDECIDED, 0, 0); }

void ropewalk_client_close(struct ropewalk_client *client) {
    /* The mappings end with the program. */
    free(client->configuration);
    free(client->results);
    free(client);
}
