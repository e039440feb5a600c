/* A filter's program that tries what it may not do, at its first event. It keeps every event if it could do nothing of that. */
#define _DEFAULT_SOURCE
#include "ropewalk_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* What it could do of all that, bit by bit. */
static unsigned tries(const char *directory, uint64_t memory) {
    char path[4096];
    struct sockaddr_in address = {0};
    struct rlimit core;
    int death = 0, socket_of_ip = socket(AF_INET, SOCK_STREAM, 0);
    unsigned done = 0;
    void *much = malloc(memory + 1);
    snprintf(path, sizeof path, "%s/written", directory);
    done |= open(path, O_WRONLY | O_CREAT, 0600) >= 0 ? 1 : 0;
    snprintf(path, sizeof path, "%s/there", directory);
    done |= open(path, O_WRONLY) >= 0 ? 2 : 0;
    done |= open(path, O_RDONLY) < 0 ? 4 : 0;
    done |= unlink(path) == 0 ? 8 : 0;
    done |= ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0 ? 16 : 0;
    done |= much != NULL ? 32 : 0;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    done |= bind(socket_of_ip, (struct sockaddr *)&address, sizeof address) == 0 || errno != EACCES ? 64 : 0;
    done |= prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 ? 128 : 0;
    done |= prctl(PR_GET_PDEATHSIG, &death) != 0 || death != SIGKILL ? 256 : 0;
    done |= getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0 ? 512 : 0;
    free(much);
    return done;
}

int main(void) {
    struct ropewalk_client *client = ropewalk_client_open();
    const struct ropewalk_event *event;
    struct ropewalk_decision *decision;
    unsigned done;
    if (client == NULL || ropewalk_client_ready(client) != 0)
        return 1;
    done = tries(ropewalk_client_configuration(client), ropewalk_client_memory(client));
    if (done != 0)
        fprintf(stderr, "it could do what it may not: %x\n", done);
    while ((event = ropewalk_client_next(client, &decision)) != NULL) {
        decision->accept = done == 0;
        ropewalk_client_decide(client);
    }
    ropewalk_client_close(client);
    return 0;
}
