/* measured.h - what the files of this room share: the roofline, and JSON that comes from outside.
 */
#ifndef DTRC_MEASURED_H
#define DTRC_MEASURED_H

#include "cost.h"

#include <cjson/cJSON.h>

typedef struct {
    double ns;       /* without factor and fixed part */
    bool arithmetic; /* bounds it, not the bytes */
    bool product;    /* a convolution or matrix product */
} Roofline;

double cost_bytes_moved(const Graph *g, const Cost *c, const Node *n); /* read and written */
Roofline cost_roofline(const Graph *g, const Cost *c, const Node *n, const Device *device);

/* The file as JSON with the given "format" and "version": 1. NULL after reporting. The caller
 * deletes it. */
cJSON *json_open(Arena *a, Diag *d, const char *file, const char *format);
/* A number from lo to hi under a key. False after reporting; absent ones are reported too. */
bool json_number(Diag *d, const char *file, const cJSON *object, const char *key, double lo,
                 double hi, double *out);
/* A string under a key, or NULL. */
const char *json_string(const cJSON *object, const char *key);

#endif
