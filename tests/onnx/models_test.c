/* models_test.c - whole models. Every trace case of tests/data/traces must import and give
 * initializers the roles that its trace.json states. With DTRC_MODELS=DIR in the environment also
 * DIR/traces, and DIR/graphs: models of real size without their weights. */
#include "model.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <string.h>

static cJSON *read_json(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    static char text[1 << 22];
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return cJSON_Parse(text);
}

/* param and frozen differ by the user's options only. */
static bool role_fits(Role r, const char *want) {
    if (!strcmp(want, "param") || !strcmp(want, "frozen")) return r == ROLE_PARAM;
    if (!strcmp(want, "buffer")) return r == ROLE_BUFFER;
    return r == ROLE_CONST;
}

static void check_roles(const Graph *g, const cJSON *trace, const char *model) {
    const cJSON *r;
    cJSON_ArrayForEach(r, cJSON_GetObjectItem(trace, "roles")) {
        ValueId v = value_named(g, r->string);
        bool fits = v != NO_ID && role_fits(g->value[v].role, r->valuestring);
        if (!fits)
            fprintf(stderr, "%s: %s is %s, expected %s\n", model, r->string,
                    v == NO_ID ? "absent" : role_name(g->value[v].role), r->valuestring);
        CHECK(fits);
        if (v != NO_ID) CHECK(g->value[v].data != NULL);
    }
}

/* The output of the graph must have the shape of forward0. */
static void check_output(const Graph *g, const cJSON *trace) {
    const cJSON *dims = cJSON_GetObjectItem(cJSON_GetObjectItem(trace, "forward0"), "shape");
    const Shape *s = &g->value[g->output[0]].shape;
    if (!dims || g->noutput != 1) return;
    CHECK_EQ(s->rank, cJSON_GetArraySize(dims));
    for (int k = 0; k < (int)s->rank; k++)
        CHECK_EQ(s->dim[k], cJSON_GetArrayItem(dims, k)->valueint);
}

static int64_t batch_of(const cJSON *trace) {
    const cJSON *input = cJSON_GetObjectItem(trace, "inputs")->child;
    return cJSON_GetArrayItem(cJSON_GetObjectItem(input, "shape"), 0)->valueint;
}

static Imported import_file(const char *path, const OnnxOptions *o) {
    Imported i = {.a = arena_new()};
    diag_init(&i.d, i.a, NULL);
    i.g = onnx_import(i.a, &i.d, path, o, &i.info);
    return i;
}

static void check_import(Imported *i) {
    if (!i->g) fprintf(stderr, "%s", i->d.log.at);
    CHECK(i->g != NULL);
    if (i->g) CHECK(ir_verify(&i->d, i->g));
}

static void trace_case(const char *folder, const char *model) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/trace.json", folder, model);
    cJSON *trace = read_json(path);
    if (!trace) return;
    OnnxOptions o = {.batch = batch_of(trace), .dropout = true, .need_weights = true};
    snprintf(path, sizeof path, "%s/%s/model.onnx", folder, model);
    Imported i = import_file(path, &o);
    check_import(&i);
    if (i.g) {
        check_roles(i.g, trace, model);
        check_output(i.g, trace);
    }
    imported_free(&i);
    cJSON_Delete(trace);
}

static void graph_case(const char *folder, const char *file) {
    char path[4096], model[256];
    size_t n = strlen(file);
    if (n < 6 || n > sizeof model || strcmp(file + n - 5, ".onnx") != 0) return;
    snprintf(model, sizeof model, "%.*s", (int)(n - 5), file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    DimBinding t = {"T", 16};
    OnnxOptions o = {.batch = 2, .dim = &t, .ndim = 1, .dropout = true};
    Imported i = import_file(path, &o);
    check_import(&i);
    if (i.g) CHECK(i.info.missing_bytes > 0);
    imported_free(&i);
}

/* Number of entries; 0 when the folder is not there. */
static int each(const char *folder, void (*run)(const char *folder, const char *name)) {
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') run(folder, e->d_name), n++;
    if (d) closedir(d);
    return n;
}

int main(void) {
    CHECK(each("tests/data/traces", trace_case) > 0);
    const char *more = getenv("DTRC_MODELS");
    char folder[4096];
    if (more) {
        snprintf(folder, sizeof folder, "%s/traces", more);
        each(folder, trace_case);
        snprintf(folder, sizeof folder, "%s/graphs", more);
        each(folder, graph_case);
    }
    return test_end();
}
