/*
 * Runs a program as if the kernel did not know seccomp's or landlock's calls: old_kernel PROGRAM ARGUMENTS.
 * Which of them is chosen by the macros SECCOMP and LANDLOCK.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNKNOWN(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS)

int main(int count, char **arguments) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SECCOMP
        UNKNOWN(SYS_seccomp),
#endif
#ifdef LANDLOCK
        UNKNOWN(SYS_landlock_create_ruleset),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 2;
    execv(arguments[1], arguments + 1);
    return 2;
}
