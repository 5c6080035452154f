/* main.c - ptx2c IN.ptx OUT.c: the translator as a program. Exit status 1 with "IN.ptx: line N:
 * ..." when something is not known. */
#include "ptx2c.h"

#include <errno.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: ptx2c IN.ptx OUT.c\n");
        return 2;
    }
    Arena *arena = arena_new();
    size_t n;
    char message[512];
    int status = 1;
    char *ptx = file_read(arena, argv[1], (size_t)1 << 30, &n);
    Text out;
    text_init(&out, arena);
    if (!ptx)
        fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
    else if (!ptx2c(arena, ptx, &out, message, sizeof message))
        fprintf(stderr, "%s: %s\n", argv[1], message);
    else if (!file_write(argv[2], out.at, out.n))
        fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
    else
        status = 0;
    arena_free(arena);
    return status;
}
