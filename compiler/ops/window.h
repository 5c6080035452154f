/* window.h - what conv.c and pool.c share of geometry.c; private to the ops room. */
#ifndef DTRC_OPS_WINDOW_H
#define DTRC_OPS_WINDOW_H

#include "family.h"

/* Geometry of node n over image shape x (the forward input) and weight shape w (NULL: a pool).
 * False with expected and found in *why (memory from a). bias and relu are left false. */
bool window_geometry(const Node *n, const Shape *x, const Shape *w, Geometry *out, Arena *a,
                     const char **why);
/* Shape of the forward output. */
Shape window_output(const Geometry *q);
/* ", .in = {..}, .out = {..}, .k = .." for an initialiser of DtrtConv or DtrtPool. */
void window_fields(Text *t, const Geometry *q);

#endif
