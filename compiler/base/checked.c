/* checked.c - arithmetic on sizes that come from files and users: overflow is an answer, never a
 * wrapped number. Also byte sizes as people write them. */
#include "base.h"

bool checked_mul(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

bool checked_add(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool digits(const char **s, uint64_t *out) {
    if (**s < '0' || **s > '9') return false;
    for (*out = 0; **s >= '0' && **s <= '9'; ++*s) {
        TRY(checked_mul(*out, 10, out));
        TRY(checked_add(*out, (uint64_t)(**s - '0'), out));
    }
    return true;
}

/* Millionths after the point; later digits are cut. */
static bool fraction(const char **s, uint64_t *out) {
    if (**s < '0' || **s > '9') return false;
    *out = 0;
    for (uint64_t unit = 100000; **s >= '0' && **s <= '9'; ++*s, unit /= 10)
        *out += unit * (uint64_t)(**s - '0');
    return true;
}

static uint64_t unit_of(char c) {
    switch (c) {
    case 'K':
    case 'k': return (uint64_t)1 << 10;
    case 'M':
    case 'm': return (uint64_t)1 << 20;
    case 'G':
    case 'g': return (uint64_t)1 << 30;
    case 'T':
    case 't': return (uint64_t)1 << 40;
    default: return 0;
    }
}

bool parse_bytes(const char *s, uint64_t *out) {
    uint64_t whole, part = 0;
    TRY(digits(&s, &whole));
    bool point = *s == '.';
    if (point) {
        s++;
        TRY(fraction(&s, &part));
    }
    uint64_t unit = unit_of(*s);
    if (unit) s++;
    if (*s || (point && !unit)) return false;
    if (!unit) unit = 1;
    TRY(checked_mul(whole, unit, out));
    return checked_add(*out, part * unit / 1000000, out); /* part < 2^20, unit <= 2^40 */
}

char *format_bytes(char *buf, uint64_t bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    uint32_t u = 0;
    while (x >= 1024 && u < 6) x /= 1024, u++;
    snprintf(buf, 32, u ? "%.2f %s" : "%.0f %s", x, unit[u]);
    return buf;
}
