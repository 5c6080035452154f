/* test.h - checks for unit tests. A failed check prints where and goes on; test_end gives the exit
 * status. */
#ifndef DTRC_TEST_H
#define DTRC_TEST_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_failed, test_checks;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        test_checks++;                                                                             \
        if (!(x)) {                                                                                \
            test_failed++;                                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #x);                        \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        test_checks++;                                                                             \
        if (a_ != b_) {                                                                            \
            test_failed++;                                                                         \
            fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #a, a_, b_); \
        }                                                                                          \
    } while (0)
#define CHECK_NEAR(a, b, tol)                                                                      \
    do {                                                                                           \
        double a_ = (a), b_ = (b);                                                                 \
        test_checks++;                                                                             \
        if (!(fabs(a_ - b_) <= (tol))) {                                                           \
            test_failed++;                                                                         \
            fprintf(stderr, "%s:%d: %s is %.9g, expected %.9g\n", __FILE__, __LINE__, #a, a_, b_); \
        }                                                                                          \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        test_checks++;                                                                             \
        if (strcmp(a_, b_)) {                                                                      \
            test_failed++;                                                                         \
            fprintf(stderr, "%s:%d: got\n%s\nexpected\n%s\n", __FILE__, __LINE__, a_, b_);         \
        }                                                                                          \
    } while (0)

/* A fixed sequence (linear congruential, constants of Knuth, TAOCP vol. 2, 3.3.4; the high bits are
 * the good ones). Set the state to start another one. */
static uint64_t test_random_state = 1;
static inline uint64_t test_random(void) {
    return test_random_state = test_random_state * 6364136223846793005u + 1442695040888963407u;
}
static inline double test_uniform(double lo, double hi) {
    return lo + (hi - lo) * ((double)(test_random() >> 11) * 0x1p-53);
}

static inline int test_end(void) {
    if (test_failed) fprintf(stderr, "%d of %d checks failed\n", test_failed, test_checks);
    return test_failed || !test_checks;
}

#endif
