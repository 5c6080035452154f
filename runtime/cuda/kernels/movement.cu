// calls: dtrt_transpose dtrt_concat dtrt_slice dtrt_slice_add dtrt_slice_grad dtrt_pad_grad
/* movement.cu - copies between two strided boxes, and transposed tiles. */

template <typename T, typename I>
static __device__ __forceinline__ void copy_items(const CuWalk &w, T *to, const T *from) {
    const I step = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < (I)w.total; i += step) {
        int64_t at, source;
        walk_at(w, i, at, source);
        to[at] = from[source];
    }
}
#define COPY(name, T)                                                                              \
    extern "C" __global__ void name(const __grid_constant__ CuWalk w, T *to, const T *from) {      \
        copy_items<T, unsigned>(w, to, from);                                                      \
    }                                                                                              \
    extern "C" __global__ void name##_big(const __grid_constant__ CuWalk w, T *to,                 \
                                          const T *from) {                                         \
        copy_items<T, int64_t>(w, to, from);                                                       \
    }
COPY(walk_copy1, uint8_t)
COPY(walk_copy4, uint32_t)
COPY(walk_copy8, uint2)
COPY(walk_copy16, uint4)
#undef COPY

template <typename I>
static __device__ __forceinline__ void add_items(const CuWalk &w, float *to, const float *from) {
    const I step = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < (I)w.total; i += step) {
        int64_t at, source;
        walk_at(w, i, at, source);
        to[at] += from[source];
    }
}
extern "C" __global__ void walk_add(const __grid_constant__ CuWalk w, float *to,
                                    const float *from) {
    add_items<unsigned>(w, to, from);
}
extern "C" __global__ void walk_add_big(const __grid_constant__ CuWalk w, float *to,
                                        const float *from) {
    add_items<int64_t>(w, to, from);
}

/* Tiles of 32 x 32: rows of them are contiguous in `from`, columns in `to`. The padding keeps the
 * transposed reads of shared memory on different banks. */
template <typename T>
static __device__ __forceinline__ void move_tiles(const CuTiles &q, T *to, const T *from) {
    __shared__ T tile[32][33];
    const int x = threadIdx.x & 31, y = threadIdx.x >> 5;
    for (unsigned t = blockIdx.x; t < q.total; t += gridDim.x) {
        int64_t out, in;
        const unsigned slab = divide(t, q.by_tiles), rest = t - slab * q.tiles;
        const unsigned down = divide(rest, q.by_across), right = rest - down * q.across;
        walk_at(q.slabs, slab, out, in);
        const int64_t i0 = (int64_t)down * 32, j0 = (int64_t)right * 32;
        for (int r = y; r < 32; r += 8)
            if (i0 + x < q.height && j0 + r < q.width)
                tile[r][x] = from[in + i0 + x + (j0 + r) * q.from];
        __syncthreads();
        for (int r = y; r < 32; r += 8)
            if (i0 + r < q.height && j0 + x < q.width)
                to[out + (i0 + r) * q.to + j0 + x] = tile[x][r];
        __syncthreads();
    }
}
extern "C" __global__ void move_tiles1(const __grid_constant__ CuTiles q, uint8_t *to,
                                       const uint8_t *from) {
    move_tiles<uint8_t>(q, to, from);
}
extern "C" __global__ void move_tiles4(const __grid_constant__ CuTiles q, uint32_t *to,
                                       const uint32_t *from) {
    move_tiles<uint32_t>(q, to, from);
}
extern "C" __global__ void move_tiles8(const __grid_constant__ CuTiles q, uint64_t *to,
                                       const uint64_t *from) {
    move_tiles<uint64_t>(q, to, from);
}
