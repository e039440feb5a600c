/*
 * Splitters that do what they should not, one after the other, as the bytes of the frames or the configuration tell them.
 * What is built is chosen by macros: VERSION, SIZE, KIND, NO_SPLIT, NO_TABLE.
 */
#include "ropewalk_splitter.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION ROPEWALK_SPLITTER_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(struct ropewalk_splitter)
#endif
#ifndef KIND
#define KIND ROPEWALK_PLUGIN_SPLITTER
#endif

struct state {
    uint64_t frames;
    char once[256]; /* a file: what is bad happens only while it is not there */
};

static void *create(const char *configuration, char *error, size_t capacity) {
    if (strcmp(configuration, "crash") == 0)
        abort();
    if (strcmp(configuration, "refuse") == 0) {
        snprintf(error, capacity, "it wants to hear something else than \"%s\"", configuration);
        return NULL;
    }
    if (strcmp(configuration, "hang") == 0)
        for (;;)
            pause();
    struct state *state = calloc(1, sizeof *state);
    if (strncmp(configuration, "once:", 5) == 0)
        snprintf(state->once, sizeof state->once, "%s", configuration + 5);
    return state;
}

static struct ropewalk_piece piece(uint64_t key, uint64_t offset, uint64_t length) {
    struct ropewalk_piece piece = {key, offset, length, ROPEWALK_EVENT, 0};
    return piece;
}

/* Whether what is bad is to happen: always, or only the first time. */
static int is_bad(struct state *state) {
    if (state->once[0] == 0)
        return 1;
    int file = open(state->once, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file >= 0)
        close(file);
    return file >= 0;
}

/* A frame of two bytes: what is to be done, and a number. Its one piece is the number. */
static int64_t split(void *mine, const uint8_t *frame, size_t length, struct ropewalk_piece *pieces, size_t capacity) {
    struct state *state = mine;
    state->frames++;
    if (length < 2)
        return ROPEWALK_MALFORMED;
    pieces[0] = piece(frame[1], 0, 2);
    if (frame[0] == '.' || !is_bad(state))
        return 1;
    switch (frame[0]) {
    case 'c': abort();
    case 'e': _exit(0);
    case 'h': for (;;) pause();
    case 'w': *(volatile uint8_t *)frame = 'w'; return 1;
    case 'o': pieces[0] = piece(1, 1, length); return 1;
    case 'l': pieces[1] = piece(2, 1, 1); return 2;
    case 'm': return (int64_t)capacity + 1;
    case 'k': pieces[0].kind = 9; return 1;
    case 'x': for (int descriptor = 0; descriptor < 1024; descriptor++) close(descriptor); return 1;
    case 'f': return fork() >= 0 ? 1 : ROPEWALK_MALFORMED;
    case 'g': for (;;) { char *more = malloc(1 << 20); if (more == NULL) abort(); memset(more, 1, 1 << 20); }
    case '#': pieces[0] = piece(state->frames, 0, 2); return 1;
    case 'p': pieces[0] = piece(geteuid(), 0, 2); return 1;
    default: return ROPEWALK_MALFORMED;
    }
}

static const char *error(void *state) {
    (void)state;
    return "it did not like the frame";
}

static const struct ropewalk_splitter splitter = {
    {KIND, VERSION, SIZE, 0, "misbehaving 0.1"},
    create,
#ifdef NO_SPLIT
    NULL,
#else
    split,
#endif
    error,
    free,
};

#ifndef NO_TABLE
const struct ropewalk_plugin *ropewalk_plugin(void) { return (const struct ropewalk_plugin *)&splitter; }
#endif
