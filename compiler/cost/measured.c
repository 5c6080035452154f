/* measured.c - opening the JSON files of this room: profiles and device files. They come from
 * anywhere: size and number of values are bounded before cJSON sees them, and every number is
 * checked for its range (NaN and infinity are in none). */
#include "measured.h"

#include <errno.h>
#include <string.h>

enum {
    FILE_BYTES = 32 << 20, /* 20,000 nodes with long names are 5 MB */
    FILE_VALUES = 1 << 20  /* cJSON takes about 100 bytes for each */
};

cJSON *json_open(Arena *a, Diag *d, const char *file, const char *format) {
    Place at = {.file = file};
    size_t n, values = 1;
    char *text = file_read(a, file, FILE_BYTES, &n);
    if (!text) {
        diag_error(d, at, "cannot read the file: %s", strerror(errno));
        return NULL;
    }
    for (size_t i = 0; i < n; i++) values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    cJSON *root = values <= FILE_VALUES ? cJSON_ParseWithLength(text, n) : NULL;
    if (!root) {
        diag_error(d, at,
                   values > FILE_VALUES ? "more than %d values: expected a %s file"
                                        : "not JSON (limit %d values): expected a %s file",
                   FILE_VALUES, format);
        return NULL;
    }
    const char *f = json_string(root, "format");
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(root, "version");
    if (f && !strcmp(f, format) && cJSON_IsNumber(v) && v->valuedouble == 1) return root;
    diag_error(d, at, "expected \"format\": \"%s\" and \"version\": 1", format);
    cJSON_Delete(root);
    return NULL;
}

const char *json_string(const cJSON *object, const char *key) {
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(j) ? j->valuestring : NULL;
}

bool json_number(Diag *d, const char *file, const cJSON *object, const char *key, double lo,
                 double hi, double *out) {
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(object, key);
    Place at = {.file = file};
    if (!cJSON_IsNumber(j)) return diag_error(d, at, "expected a number for \"%s\"", key);
    *out = j->valuedouble;
    if (*out >= lo && *out <= hi) return true;
    return diag_error(d, at, "\"%s\" is %g: expected a number from %g to %g", key, *out, lo, hi);
}
