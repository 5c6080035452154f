/* order.h - an order of first runs that needs less memory than the graph's. Internal to the room.
 */
#ifndef DTRC_ORDER_H
#define DTRC_ORDER_H

#include "problem.h"

typedef struct {
    NodeId *node;        /* for problem_new; views that cost nothing are left out */
    uint64_t peak, over; /* without recomputation: largest byte sum of the arena; bytes over the
                            capacity, summed over positions */
} Order;

/* The order of p itself, the order of list scheduling, and what local search makes of p's order. */
Order order_base(Arena *a, const Problem *p, uint64_t capacity);
Order order_list(Arena *a, const Problem *p, uint64_t capacity);
Order order_search(Arena *a, const Problem *p, uint64_t capacity);

/* An order under which plans can be cheaper than under p's, as far as bounds tell; NULL: none was
 * found, or it is proven that none pays. capacity: bytes of the arena. */
NodeId *order_find(Arena *a, const Problem *p, uint64_t capacity);

#endif
