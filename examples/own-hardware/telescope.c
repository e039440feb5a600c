/*
 * A detector under run control: it sends one fragment for each trigger.
 *
 *     cc -std=c99 -O2 -I bindings/c -o telescope examples/own-hardware/telescope.c bindings/c/ropewalk_source.c
 *     ./telescope --control 127.0.0.1:5100 --source 2
 *
 * Settings: trigger = "127.0.0.1:5101" (the trigger line, line.h), size = 256 (bytes of each fragment). Ends with
 * Ctrl-C.
 */
#define _POSIX_C_SOURCE 200809L
#include "line.h"
#include "ropewalk_source.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_PAYLOAD 65536

struct telescope {
    int line;
    size_t size, filled;
    unsigned char bytes[4096 * TRIGGER_BYTES];
};

static volatile sig_atomic_t is_over = 0;

static void end(int number)
{
    (void)number;
    is_over = 1;
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints, *addresses;
    int one = -1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &addresses) != 0)
        return -1;
    one = socket(addresses->ai_family, addresses->ai_socktype, addresses->ai_protocol);
    if (one >= 0 && connect(one, addresses->ai_addr, addresses->ai_addrlen) < 0) {
        close(one);
        one = -1;
    }
    freeaddrinfo(addresses);
    return one;
}

static const char *configure(void *mine, const char *settings)
{
    struct telescope *telescope = mine;
    const char *size = strstr(settings, "size = "), *trigger = strstr(settings, "trigger = \"");
    char host[64], port[16];
    telescope->size = size == NULL ? 256 : (size_t)atol(size + 7);
    if (telescope->size > MOST_PAYLOAD)
        return "size: at most 65536 bytes";
    if (trigger == NULL || sscanf(trigger + 11, "%63[^:\"]:%15[0-9]", host, port) != 2)
        return "trigger = \"HOST:PORT\" is missing in the settings";
    if (telescope->line >= 0)
        close(telescope->line);
    telescope->filled = 0;
    telescope->line = connect_to(host, port);
    if (telescope->line < 0)
        return "no trigger there: is its program running?";
    fcntl(telescope->line, F_SETFL, fcntl(telescope->line, F_GETFL) | O_NONBLOCK);
    return NULL;
}

/* Sends a fragment for each received trigger; returns whether there were any. */
static int read_out(struct telescope *telescope, struct ropewalk_source *source)
{
    static unsigned char payload[MOST_PAYLOAD];
    size_t at = 0;
    ssize_t count;
    if (telescope->line < 0)
        return 0;
    count = recv(telescope->line, telescope->bytes + telescope->filled, sizeof telescope->bytes - telescope->filled, 0);
    if (count <= 0)
        return 0;
    telescope->filled += (size_t)count;
    while (telescope->filled - at >= TRIGGER_BYTES) {
        uint64_t event = number_at(telescope->bytes + at), time_ns = number_at(telescope->bytes + at + 8);
        memset(payload, (int)(event & 0xff), telescope->size);
        ropewalk_source_send(source, event, time_ns, payload, (uint32_t)telescope->size);
        at += TRIGGER_BYTES;
    }
    telescope->filled -= at;
    memmove(telescope->bytes, telescope->bytes + at, telescope->filled);
    return 1;
}

int main(int count, char **arguments)
{
    static struct telescope telescope;
    const char *control = "127.0.0.1:5100", *id = "2", *name = "telescope";
    struct ropewalk_source_callbacks callbacks = {configure, NULL, NULL, NULL, NULL, NULL, NULL};
    struct ropewalk_source *source;
    int index, was_busy = 0;
    for (index = 1; index + 1 < count; index += 2) {
        if (strcmp(arguments[index], "--control") == 0)
            control = arguments[index + 1];
        else if (strcmp(arguments[index], "--source") == 0)
            id = arguments[index + 1];
        else if (strcmp(arguments[index], "--name") == 0)
            name = arguments[index + 1];
    }
    signal(SIGINT, end);
    signal(SIGTERM, end);
    telescope.line = -1;
    source = ropewalk_source_open(control, (uint32_t)atoi(id), name, ROPEWALK_CLOCK_UTC, "example 1", &callbacks,
                                  &telescope);
    if (source == NULL) {
        perror("ropewalk_source_open");
        return 1;
    }
    /* After triggers, look for the next ones at once; a stop is answered when the fragment of the last event was sent. */
    while (!is_over && ropewalk_source_poll(source, was_busy ? 0 : 1) == 0)
        was_busy = read_out(&telescope, source);
    ropewalk_source_close(source);
    return 0;
}
