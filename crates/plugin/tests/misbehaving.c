/*
 * Splitters that do what they should not, one after the other, as the bytes of the frames or the configuration tell them.
 * What is built is chosen by macros: VERSION, SIZE, KIND, NO_SPLIT, NO_TABLE; LOADING, what is done while it is loaded; ONCE, a
 * file: what is bad happens only in processes that did not find it when they began.
 */
#include "ropewalk_splitter.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION ROPEWALK_SPLITTER_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(struct ropewalk_splitter)
#endif
#ifndef FILE_TO_WRITE
#define FILE_TO_WRITE "new-file"
#endif
#ifndef KIND
#define KIND ROPEWALK_PLUGIN_SPLITTER
#endif

struct state {
    uint64_t frames;
};

static int is_good; /* nothing bad happens any more */
static jmp_buf long_gone;

static void *nothing(void *argument) { return argument; }

static int starts_a_thread(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL);
}

__attribute__((constructor)) static void loading(void) {
#ifdef ONCE
    is_good = access(ONCE, F_OK) == 0;
#endif
#ifdef LOADING
    switch (LOADING) {
    case 'r': close(open("/proc/self/maps", O_RDONLY)); break;
    case 'o': open(FILE_TO_WRITE, O_CREAT | O_WRONLY, 0600); break;
    case 's': socket(AF_INET, SOCK_STREAM, 0); break;
    case 'f': fork(); break;
    case 'T': starts_a_thread(); break;
    case 'g': /* is silent where four gigabytes are there for it */
        for (int part = 0; part < 4096; part++)
            if (malloc(1 << 20) == NULL)
                abort();
        break;
    case 'd': /* is silent where there is nothing but standard streams, its socket and what it was sent */
        for (int descriptor = 4; descriptor < 1024; descriptor++)
            if (fcntl(descriptor, F_GETFD) >= 0)
                abort();
        break;
    }
#endif
}

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
    if (strcmp(configuration, "open") == 0)
        open("/etc/hostname", O_RDONLY);
    if (setjmp(long_gone) != 0)
        return NULL;
    return calloc(1, sizeof(struct state));
}

static struct ropewalk_piece piece(uint64_t key, uint64_t offset, uint64_t length) {
    struct ropewalk_piece piece = {key, offset, length, ROPEWALK_EVENT, 0};
    return piece;
}

/* Uses up the stack. */
static int deeper(volatile int *above) {
    volatile int room[1000];
    room[0] = *above + 1;
    return room[0] < 0 ? 0 : deeper(room) + room[0];
}

static int writes_where_it_may_not(const uint8_t *frame) {
    uintptr_t page = (uintptr_t)frame & ~(uintptr_t)4095;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
    *(volatile uint8_t *)frame = 'W';
    return 1;
}

static int64_t writes_a_megabyte(void) {
    for (int line = 0; line < 16384; line++)
        fprintf(stderr, "%063d\n", line);
    return 1;
}

/* A frame of two bytes: what is to be done, and a number. Its one piece is the number. */
static int64_t split(void *mine, const uint8_t *frame, size_t length, struct ropewalk_piece *pieces, size_t capacity) {
    struct state *state = mine;
    state->frames++;
    if (length < 2)
        return ROPEWALK_MALFORMED;
    pieces[0] = piece(frame[1], 0, 2);
    if (frame[0] == '.' || is_good)
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
    case 'T': return starts_a_thread() == 0 ? 1 : ROPEWALK_MALFORMED;
    case 'r': return open("/etc/hostname", O_RDONLY) >= 0 ? 1 : ROPEWALK_MALFORMED;
    case 's': return socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 1 : ROPEWALK_MALFORMED;
    case 'v': return execl("/bin/true", "true", NULL);
    case 'K': return kill(getppid(), SIGTERM) == 0 ? 1 : ROPEWALK_MALFORMED;
    case 'i': signal(SIGSYS, SIG_IGN); return open("/etc/hostname", O_RDONLY) >= 0 ? 1 : ROPEWALK_MALFORMED;
    case 'Q': return syscall(SYS_tgkill, getppid(), getppid(), 0) == 0 ? 1 : ROPEWALK_MALFORMED;
    case 'G': return malloc(128 << 20) != NULL ? 1 : ROPEWALK_MALFORMED;
    case 'P': return printf("a line\n") > 0 && fflush(stdout) == 0 ? 1 : ROPEWALK_MALFORMED;
    case 'W': return writes_where_it_may_not(frame);
    case 'S': { int top = 0; return deeper(&top); }
    case 'j': longjmp(long_gone, 1);
    case 'q': exit(0);
    case 't': usleep(2000000); return 1;
    case '!': return writes_a_megabyte();
    case 'b': pieces[0] = piece(1, 1, 1); pieces[1] = piece(2, 0, 1); return 2;
    case 'z': pieces[0] = piece(frame[1], 2, 0); pieces[1] = piece(2, 2, 0); return 2;
    case 'u': pieces[0] = piece(1, UINT64_MAX, UINT64_MAX); return 1;
    case 'U': pieces[0] = piece(1, 1, UINT64_MAX); return 1;
    case 'M': return INT64_MAX;
    case 'N': return INT64_MIN;
    case 'g': for (;;) { char *more = malloc(1 << 20); if (more == NULL) abort(); memset(more, 1, 1 << 20); }
    case '#': pieces[0] = piece(state->frames, 0, 2); return 1;
    case 'I': pieces[0] = piece(getpid(), 0, 2); return 1;
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
