/* process.c - runs another program to its end. */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

int process_run(char *const argv[], const char *out, const char *err) {
    extern char **environ;
    posix_spawn_file_actions_t fa;
    pid_t pid;
    int status, flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, out, flags, 0666);
    if (!strcmp(out, err))
        posix_spawn_file_actions_adddup2(&fa, 1, 2);
    else
        posix_spawn_file_actions_addopen(&fa, 2, err, flags, 0666);
    int why = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    if (why) {
        errno = why;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
