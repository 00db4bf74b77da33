// The best scores of a row, lowest place first among equals: the choice of `engine.kernels.ref.index.select`.
//
// Two launches: each chunk of 2,048 scores is narrowed to its best k, then the best of all chunks' candidates are
// chosen.  The k-th largest is found bit by bit, counting over registers; both write in ascending order of place.

typedef unsigned int u32;

#define CHUNK 2048

// Let the next kernel of the chain take its places, then wait for the end of the one before (gemv.cu).
__device__ __forceinline__ void follow() {
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Unsigned integers in the order of the scores; 0 is a score that does not exist.
__device__ __forceinline__ u32 key_of(float score) {
    u32 bits = __float_as_uint(score + 0.f);  // -0 and 0 are equal
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Sum over the block; `turn` alternates, so that one barrier a call is enough.
template <int WARPS>
__device__ __forceinline__ int total_of(int mine, int (*sums)[WARPS], int turn) {
    int lane = threadIdx.x % 32;
    mine = __reduce_add_sync(~0u, mine);
    if (lane == 0) sums[turn & 1][threadIdx.x / 32] = mine;
    __syncthreads();
    return __reduce_add_sync(~0u, lane < WARPS ? sums[turn & 1][lane] : 0);
}

// Sum over the threads before this one.
template <int WARPS>
__device__ __forceinline__ int before_of(int mine, int *sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(~0u, upto, step);
        if (lane >= step) upto += other;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    int base = 0;
    for (int w = 0; w < warp; ++w) base += sums[w];
    return base + upto - mine;
}

// Calls write(rank, i) for each of the k largest keys of the block, in the order of (thread, i).
template <int WARPS, int PER, class Write>
__device__ __forceinline__ int best(const u32 (&key)[PER], int k, Write write) {
    __shared__ int sums[2][WARPS];
    u32 least = 0;
#pragma unroll 1
    for (int bit = 31; bit >= 0; --bit) {
        u32 higher = least | 1u << bit;
        int count = 0;
#pragma unroll
        for (int i = 0; i < PER; ++i) count += key[i] >= higher;
        if (total_of<WARPS>(count, sums, bit) >= k) least = higher;
    }
    int above = 0, equal = 0;
#pragma unroll
    for (int i = 0; i < PER; ++i) above += key[i] > least, equal += key[i] == least && least > 0;
    __syncthreads();
    int first = before_of<WARPS>(above, sums[0]), ties = before_of<WARPS>(equal, sums[1]);
    __syncthreads();
    int room = k - total_of<WARPS>(above, sums, 0);
#pragma unroll
    for (int i = 0; i < PER; ++i) {
        if (key[i] > least) write(first++ + min(ties, room), i);
        else if (key[i] == least && least > 0) {
            if (ties < room) write(first + ties, i);
            ++ties;
        }
    }
    return k - room + min(room, total_of<WARPS>(equal, sums, 1));
}

// scores [M, stride]; keys and candidates [M, chunks, k]; rows of a token are those whose window it has closed.
extern "C" __global__ void __launch_bounds__(256) narrow(const float *scores, int stride, const int *positions, u32 *keys,
                                                         int *candidates, int ratio, int k) {
    follow();
    int row = blockIdx.y, count = (positions[row] + 1) / ratio, start = blockIdx.x * CHUNK;
    if (count <= k || start >= count) return;
    const int PER = CHUNK / 256;
    u32 key[PER];
    int place = start + threadIdx.x * PER;
    const float *from = scores + (size_t)row * stride + place;
#pragma unroll
    for (int i = 0; i < PER; ++i) key[i] = place + i < count ? key_of(from[i]) : 0;
    size_t to = ((size_t)row * gridDim.x + blockIdx.x) * k;
    int kept = best<8, PER>(key, k, [&](int rank, int i) {
        candidates[to + rank] = place + i;
        keys[to + rank] = key[i];
    });
    for (int i = kept + threadIdx.x; i < k; i += blockDim.x) keys[to + i] = 0;
}

// The best of `live` candidates of a row, PER a thread: as few as hold them all.
template <int PER, int MOST>
__device__ __forceinline__ void choose(const u32 *keys, const int *candidates, int *chosen, int live, int k) {
    if (PER < MOST && live > PER * 1024) {
        choose<(PER < MOST ? 2 * PER : PER), MOST>(keys, candidates, chosen, live, k);
        return;
    }
    int begin = threadIdx.x * PER;
    u32 key[PER];
#pragma unroll
    for (int i = 0; i < PER; ++i) key[i] = begin + i < live ? keys[begin + i] : 0;
    best<32, PER>(key, k, [&](int rank, int i) { chosen[rank] = candidates[begin + i]; });
}

// chosen [M, k]; `stride` of keys and candidates is chunks * k, at most 1,024 MOST.
#define CHOOSE(MOST)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) choose_##MOST(const int *positions, const u32 *keys,           \
                                                                     const int *candidates, int *chosen, int stride,  \
                                                                     int ratio, int k) {                              \
        follow();                                                                                                     \
        int row = blockIdx.x, count = (positions[row] + 1) / ratio;                                                   \
        int *out = chosen + (size_t)row * k;                                                                          \
        const int *from = candidates + (size_t)row * stride;                                                          \
        if (count <= CHUNK) {                                                                                         \
            for (int i = threadIdx.x; i < k; i += blockDim.x) out[i] = count <= k ? i : from[i];                      \
            return;                                                                                                   \
        }                                                                                                             \
        int live = min((count + CHUNK - 1) / CHUNK * k, stride);                                                      \
        choose<4, MOST>(keys + (size_t)row * stride, from, out, live, k);                                             \
    }
CHOOSE(4)
CHOOSE(8)
CHOOSE(16)
CHOOSE(32)
CHOOSE(64)
CHOOSE(128)
