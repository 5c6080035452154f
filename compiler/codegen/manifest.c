/* manifest.c - manifest.json: what a program folder holds and where it came from. */
#include "gen.h"

static void pair(Text *t, const char *key, const char *value) {
    text_add(t, "  \"%s\": ", key);
    text_json(t, value ? value : "");
    text_str(t, ",\n");
}

static void number(Text *t, const char *key, uint64_t value) {
    text_add(t, "  \"%s\": %llu,\n", key, (unsigned long long)value);
}

static void print_tensor(const Gen *g, Text *t, uint32_t i) {
    const Value *v = &g->g->value[g->tensor[i]];
    text_str(t, "    {\"name\": ");
    text_json(t, v->name);
    text_add(t, ", \"role\": \"%s\", \"dtype\": \"%s\", \"shape\": %s", role_name(v->role),
             dtype_name(v->dtype), shape_str(t->arena, &v->shape));
    text_add(t, ", \"offset\": %llu, \"bytes\": %llu}%s\n", (unsigned long long)g->tensor_offset[i],
             (unsigned long long)g->c->storage_bytes[v->storage], i + 1 < g->ntensor ? "," : "");
}

void cg_print_manifest(Gen *g, Text *t) {
    const Plan *p = g->p;
    text_str(t, "{\n");
    pair(t, "command", g->o->command);
    pair(t, "model", g->o->model);
    pair(t, "model_sha256", g->o->model_sha256);
    pair(t, "target", target_name(g->o->target));
    pair(t, "loss", train_loss_str(g->a, &g->o->loss));
    pair(t, "optimizer", train_optimizer_str(g->a, &g->o->opt));
    pair(t, "init", g->o->init);
    number(t, "seed", g->o->seed);
    number(t, "threads", (uint64_t)g->c->threads);
    pair(t, "planner", p->planner);
    number(t, "budget_bytes", p->budget);
    number(t, "persistent_bytes", p->persistent_bytes);
    number(t, "arena_bytes", p->arena_bytes);
    number(t, "planned_peak_bytes", p->persistent_bytes + p->arena_bytes);
    number(t, "base_cost_ns", p->base_ns);
    number(t, "planned_cost_ns", p->cost_ns);
    number(t, "recomputed_runs", p->recomputed_runs);
    number(t, "evictions", p->evictions);
    number(t, "weights_bytes", g->payload_bytes);
    text_str(t, "  \"tensors\": [\n");
    for (uint32_t i = 0; i < g->ntensor; i++) print_tensor(g, t, i);
    text_str(t, "  ]\n}\n");
}
