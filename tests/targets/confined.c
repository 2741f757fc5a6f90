/* A process under a seccomp filter that lets everything pass, for SECONDS.
 *
 * usage: confined SECONDS
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 3;
    puts("ready");
    fflush(stdout);
    sleep(argc > 1 ? (unsigned)atoi(argv[1]) : 1);
    return 0;
}
