/* types.cuh - what headers of C would give the kernels: NVRTC has none. First in the text. */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT32_MAX 0x7fffffff
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
