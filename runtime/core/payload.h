/* payload.h - how initial weights travel in a program's executable: weights.bin is the payload
 * followed by this footer, and it is appended to the executable as it is. The reader opens its own
 * executable
 * (/proc/self/exe), reads the footer from the end, and finds the payload at file size - sizeof
 * footer - bytes. DtrtTensor.file_offset counts from the start of the payload; each entry is
 * aligned to 64. All numbers are little-endian. */
#ifndef DTRT_PAYLOAD_H
#define DTRT_PAYLOAD_H

#include <stdint.h>

#define DTRT_PAYLOAD_MAGIC "DTRTPAY1"

typedef struct {
    uint64_t bytes; /* of the payload, without the footer */
    char magic[8];  /* DTRT_PAYLOAD_MAGIC without its NUL: the last bytes of the file */
} DtrtFooter;

#endif
