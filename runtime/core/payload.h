/* payload.h - how initial weights ride in a trainer's executable file. The compiler appends the bytes of
 * weights.bin and then one footer of 40 bytes, little-endian, that ends the file:
 *
 *     bytes  0..7   magic "dtrcWGT1"
 *     bytes  8..11  version (1)
 *     bytes 12..15  CRC-32 (zlib's) of the payload
 *     bytes 16..23  offset of the payload from the start of the file
 *     bytes 24..31  length of the payload
 *     bytes 32..39  first 8 bytes of DtrtProgram.model_sha256 as text
 *
 * DtrtTensor.file_offset counts from the start of the payload; compilers align entries to 64 bytes. The
 * runtime reads through /proc/self/exe with pread and never maps the payload. */
#ifndef DTRT_PAYLOAD_H
#define DTRT_PAYLOAD_H

#include <stdint.h>

#define DTRT_PAYLOAD_MAGIC "dtrcWGT1"
#define DTRT_PAYLOAD_VERSION 1

typedef struct {
    char magic[8];
    uint32_t version, crc;
    uint64_t offset, length;
    char model[8];
} DtrtFooter;

_Static_assert(sizeof(DtrtFooter) == 40, "the footer's layout is a file format");

#endif
