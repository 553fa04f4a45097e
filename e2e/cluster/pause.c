/* Process 1 of a pod's sandbox: holds the pod's namespaces, collects orphans, ends at once when told to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void collect(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction end = {.sa_handler = leave}, child = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &end, NULL) || sigaction(SIGTERM, &end, NULL) || sigaction(SIGCHLD, &child, NULL))
        return EXIT_FAILURE;
    for (;;)
        pause();
}
