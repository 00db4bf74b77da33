// Packed-weight products for 1 to 32 rows: what a decode step or a verify step reads weights with.
//
// One warp multiplies 16 weight rows by 8 activation columns per matrix instruction (m16n8k32, int8), so a
// step's cost hardly depends on how many of the 8 columns are in use, and a column's bits never depend on the
// others.  Activations come as 16-bit integers with one scale a 256 values, split in two int8 halves: products
// with Q8_0 codes, IQ2_XXS magnitudes and Q2_K codes are exact integers, rounding happens only where scales
// enter, in a fixed order.  F16 weights meet activations split in two F16 halves.
//
// Weights lie in the order of reading (engine/kernels/layouts.py); lane t of a quad owns values 8 t .. 8 t + 7 of a
// 32-value step, which is free to choose as long as both operands agree.  Compiled at first use without any header.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#define WARPS 8
#define TILE 16   // weight rows of a warp
#define COLS 8    // columns of one matrix instruction: activation rows of a dense product
#define PAIRS 4   // routed activation rows: four high halves and their four low halves make eight columns
#define AHEAD 4   // blocks of a slice that are fetched before their inputs are there
#define TEAM 4    // warps that share a routed tile: each has its part of the inner width
#define GROUPS 256 // of a step, at most
#define COLUMN 20 // floats from a pair's partial sums to the next's: four lanes of a quad meet in no bank

__device__ __forceinline__ float half_value(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ void mma_s8(int (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same from zero; saves setting the sums to zero first.
__device__ __forceinline__ void mma_s8_first(int (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

__device__ __forceinline__ void mma_f16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Dependent launches: the next kernel may take the places that this one leaves free, and this one reads what the one
// before it wrote only after `follow`.  What never changes, weights and tables, is fetched before.
__device__ __forceinline__ void release() {
    asm volatile("griddepcontrol.launch_dependents;");
}

__device__ __forceinline__ void follow() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Bring `bytes`, a multiple of 128, on their way into the second-level cache; a warp does it together.
__device__ __forceinline__ void fetch(const void *at, int bytes) {
    for (int i = threadIdx.x % 32 * 128; i < bytes; i += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" :: "l"((const char *)at + i));
}

// Activations of one launch; a column without a row repeats the last one and is thrown away.
struct Input {
    const uint4 *ints;    // [rows, K / 8]: eight high int8, eight low int8; value = scale (256 high + low)
    const float *scales;  // [rows, K / 256]
    const uint4 *halves;  // [rows, K / 8, 2]: eight high F16, eight low F16
    int rows;

    __device__ __forceinline__ int row(int column) const { return min(column, rows - 1); }
};

// Weights are read once: keep them out of the way of what is read again.
__device__ __forceinline__ uint4 stream16(const void *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

__device__ __forceinline__ uint2 stream8(const void *at) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
    return v;
}

__device__ __forceinline__ float part_of(const u32 (&pairs)[4], int step) {
    return half_value((u16)(pairs[step / 2] >> (16 * (step % 2))));
}

// What one warp reads of one 256-value block of a Q8_0 tile: chunks of rows g, then g + 8, two steps each.
struct BlockQ8 {
    uint4 w[2][4];
    uint4 d0, d1;

    __device__ __forceinline__ void load(const char *codes, const u16 *scales, size_t at) {
        int lane = threadIdx.x % 32;
        const char *from = codes + at * 4096 + lane * 16;
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
            for (int p = 0; p < 4; ++p) w[r][p] = stream16(from + (r * 4 + p) * 512);
        const uint4 *d = (const uint4 *)(scales + at * 128) + lane / 4;
        d0 = d[0];
        d1 = d[8];
    }

    template <int NT>
    __device__ __forceinline__ void multiply(float (&acc)[NT][4], size_t width, int block, const Input &x) const {
        int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const u32 e0[4] = {d0.x, d0.y, d0.z, d0.w}, e1[4] = {d1.x, d1.y, d1.z, d1.w};
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            int column = x.row(n * COLS + g), even = x.row(n * COLS + 2 * t), odd = x.row(n * COLS + 2 * t + 1);
            const uint4 *xs = x.ints + (size_t)column * (width / 8) + block * 32 + t;
            float s0 = x.scales[(size_t)even * (width / 256) + block];
            float s1 = x.scales[(size_t)odd * (width / 256) + block];
            float part[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                uint4 b = xs[4 * s], v0 = w[0][s / 2], v1 = w[1][s / 2];
                u32 a0 = s % 2 ? v0.z : v0.x, a2 = s % 2 ? v0.w : v0.y, a1 = s % 2 ? v1.z : v1.x, a3 = s % 2 ? v1.w : v1.y;
                int high[4], low[4];
                mma_s8_first(high, a0, a1, a2, a3, b.x, b.y);
                mma_s8_first(low, a0, a1, a2, a3, b.z, b.w);
                float f0 = part_of(e0, s), f1 = part_of(e1, s);
                part[0] += f0 * (float)(high[0] * 256 + low[0]);
                part[1] += f0 * (float)(high[1] * 256 + low[1]);
                part[2] += f1 * (float)(high[2] * 256 + low[2]);
                part[3] += f1 * (float)(high[3] * 256 + low[3]);
            }
            acc[n][0] += s0 * part[0];
            acc[n][1] += s1 * part[1];
            acc[n][2] += s0 * part[2];
            acc[n][3] += s1 * part[3];
        }
    }
};

// Half a 256-value block of an F16 tile: four steps.
struct BlockF16 {
    uint4 w[4][2];

    __device__ __forceinline__ void load(const u16 *values, size_t at, int half) {
        const u16 *from = values + at * 4096 + half * 2048 + threadIdx.x % 32 * 8;
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int r = 0; r < 2; ++r) w[s][r] = stream16(from + (s * 2 + r) * 256);
    }

    template <int NT>
    __device__ __forceinline__ void multiply(float (&acc)[NT][4], size_t width, int block, int half, const Input &x) const {
        int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            int column = x.row(n * COLS + g);
            const uint4 *xs = x.halves + ((size_t)column * (width / 8) + block * 32 + half * 16 + t) * 2;
#pragma unroll
            for (int s = 0; s < 4; ++s) {
                uint4 high = xs[8 * s], low = xs[8 * s + 1];
                uint4 v0 = w[s][0], v1 = w[s][1];
                mma_f16(acc[n], v0.x, v1.x, v0.y, v1.y, high.x, high.y);
                mma_f16(acc[n], v0.z, v1.z, v0.w, v1.w, high.z, high.w);
                mma_f16(acc[n], v0.x, v1.x, v0.y, v1.y, low.x, low.y);
                mma_f16(acc[n], v0.z, v1.z, v0.w, v1.w, low.z, low.w);
            }
        }
    }
};

// A matrix of a dense launch: rows in tiles of 16, each tile's inner width cut in `cuts` slices of whole blocks.
struct Dense {
    const void *weight;   // Q8_0 codes or F16 values
    const u16 *scales;    // Q8_0 alone
    float *out;           // [rows, stride]
    int tiles, width, cuts, stride;
};

// Blocks follow each other in memory; the next one is under way while this one is multiplied.
template <int NT>
__device__ __forceinline__ void slice_q8(float (&acc)[NT][4], const Dense &m, size_t at, int begin, int blocks, const Input &x) {
    const char *codes = (const char *)m.weight;
    BlockQ8 now, next;
    now.load(codes, m.scales, at + begin);
    fetch(codes + (at + begin) * 4096, min(blocks, AHEAD) * 4096);
    fetch(m.scales + (at + begin) * 128, min(blocks, AHEAD) * 256);
    follow();
    for (int b = begin; b < begin + blocks; ++b) {
        if (NT == 1 && b + 1 < begin + blocks) next.load(codes, m.scales, at + b + 1);
        now.multiply<NT>(acc, m.width, b, x);
        if (NT == 1) now = next;
        else if (b + 1 < begin + blocks) now.load(codes, m.scales, at + b + 1);
    }
}

template <int NT>
__device__ __forceinline__ void slice_f16(float (&acc)[NT][4], const Dense &m, size_t at, int begin, int blocks, const Input &x) {
    const u16 *values = (const u16 *)m.weight;
    BlockF16 first, second;
    first.load(values, at + begin, 0);
    fetch(values + (at + begin) * 4096, min(blocks, AHEAD) * 8192);
    follow();
    for (int b = begin; b < begin + blocks; ++b) {
        second.load(values, at + b, 1);
        first.multiply<NT>(acc, m.width, b, 0, x);
        if (b + 1 < begin + blocks) first.load(values, at + b + 1, 0);
        second.multiply<NT>(acc, m.width, b, 1, x);
    }
}

template <int NT, bool F16>
__device__ void dense_tiles(const Dense &m, const Input &x, int first_tile, float (*partial)[COLS * TILE]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    int side = WARPS / m.cuts, tile = first_tile + warp / m.cuts, blocks = m.width / 256 / m.cuts;
    float acc[NT][4] = {};
    if (tile < m.tiles) {
        size_t at = (size_t)tile * (m.width / 256);
        int begin = (warp % m.cuts) * blocks;
        if (F16) slice_f16<NT>(acc, m, at, begin, blocks, x);
        else slice_q8<NT>(acc, m, at, begin, blocks, x);
    }
    int t = lane % 4;
#pragma unroll
    for (int n = 0; n < NT; ++n) {
        __syncthreads();
        partial[warp][(2 * t) * TILE + g] = acc[n][0];
        partial[warp][(2 * t + 1) * TILE + g] = acc[n][1];
        partial[warp][(2 * t) * TILE + g + 8] = acc[n][2];
        partial[warp][(2 * t + 1) * TILE + g + 8] = acc[n][3];
        __syncthreads();
        for (int i = threadIdx.x; i < side * COLS * TILE; i += WARPS * 32) {
            int which = i / (COLS * TILE), column = n * COLS + i / TILE % COLS, mine = first_tile + which;
            if (mine >= m.tiles || column >= x.rows) continue;
            float sum = 0.f;
            for (int c = 0; c < m.cuts; ++c) sum += partial[which * m.cuts + c][i % (COLS * TILE)];
            m.out[(size_t)column * m.stride + mine * TILE + i % TILE] = sum;
        }
    }
}

// Blocks of a dense launch: first those of the Q8_0 matrix, then those of the F16 matrix; either may have none.
template <int NT>
__device__ __forceinline__ void dense_body(const Dense &q8, const Dense &f16, const Input &x) {
    __shared__ float partial[WARPS][COLS * TILE];
    int side = WARPS / q8.cuts, blocks = (q8.tiles + side - 1) / side;
    release();
    if ((int)blockIdx.x < blocks) dense_tiles<NT, false>(q8, x, blockIdx.x * side, partial);
    else dense_tiles<NT, true>(f16, x, (blockIdx.x - blocks) * (WARPS / f16.cuts), partial);
}

#define DENSE(NT)                                                                                              \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) dense_##NT(                                    \
        const void *q_weight, const u16 *q_scales, float *q_out, int q_tiles, int q_width, int q_cuts,         \
        int q_stride, const void *h_weight, float *h_out, int h_tiles, int h_width, int h_cuts, int h_stride,  \
        const uint4 *ints, const float *scales, const uint4 *halves, int rows) {                               \
        Dense q8 = {q_weight, q_scales, q_out, q_tiles, q_width, q_cuts, q_stride};                            \
        Dense f16 = {h_weight, 0, h_out, h_tiles, h_width, h_cuts, h_stride};                                  \
        Input x = {ints, scales, halves, rows};                                                                \
        dense_body<NT>(q8, f16, x);                                                                            \
    }
DENSE(1)
DENSE(2)
DENSE(4)

// One matrix a group, each with its own activations: ints [groups, rows, K / 8], out [rows, groups * N].
#define GROUPED(NT)                                                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) grouped_##NT(                                   \
        const char *codes, const u16 *d, float *out, int tiles, int width, int cuts, const uint4 *ints,         \
        const float *scales, int rows) {                                                                        \
        __shared__ float partial[WARPS][COLS * TILE];                                                           \
        release();                                                                                              \
        size_t group = blockIdx.y, first = group * tiles * TILE;                                                \
        Dense m = {codes + first * width, d + first * (width / 32), out + first, tiles, width, cuts,            \
                   (int)(gridDim.y * tiles * TILE)};                                                            \
        Input x = {ints + group * rows * (width / 8), scales + group * rows * (width / 256), 0, rows};          \
        dense_tiles<NT, false>(m, x, blockIdx.x * (WARPS / cuts), partial);                                     \
    }
GROUPED(1)
GROUPED(2)
GROUPED(4)

// ---------------------------------------------------------------------------------------------------------
// Routed experts.  `active` names the expert of each group of the step, `counts` its (row, slot) pairs, 1 to 4, and
// `pairs` [groups, 4] which; pair = row * used + slot.  An expert with more pairs has several groups.  Column c of an
// instruction is the high half of pair c, column 4 + c its low half: half the work of two instructions.  Columns
// without a pair repeat row 0 and are thrown away.

struct Routed {
    const int *active, *counts, *pairs, *total;
    int used;  // experts of a row
};

// Groups of a step as every warp of a block needs them; a column without a pair repeats the first one.
struct Plan {
    int active[GROUPS], live[GROUPS], pair[GROUPS][PAIRS];

    __device__ __forceinline__ void fill(const Routed &r, int room) {
        for (int i = threadIdx.x; i < room; i += blockDim.x) {
            active[i] = r.active[i], live[i] = r.counts[i];
#pragma unroll
            for (int c = 0; c < PAIRS; ++c) pair[i][c] = r.pairs[i * PAIRS + (c < r.counts[i] ? c : 0)];
        }
    }
};

__device__ __forceinline__ u32 permuted(u32 a, u32 b, u32 selector) {
    u32 d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

__device__ __forceinline__ void mma_u8(int (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// What one warp reads of one 256-value block of a Q2_K tile, rows g and g + 8.
struct BlockDown {
    uint4 w[2];
    uint2 n[2];  // scales and minima of the eight sub-blocks of this lane's parity
    u32 e[2];    // d, dmin

    __device__ __forceinline__ void load(const uint4 *words, const u8 *minors, const u32 *d, size_t at) {
        int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const uint4 *from = words + at * 64 + lane;
        w[0] = stream16(from), w[1] = stream16(from + 32);
        const u8 *row = minors + at * 256 + g * 16 + 8 * (t / 2);
        n[0] = *(const uint2 *)row, n[1] = *(const uint2 *)(row + 128);
        const u32 *own = d + at * 16 + g;
        e[0] = own[0], e[1] = own[8];
    }

    // Minima of one row as two F16 pairs: 0x6400 + n is the number 1024 + n; the difference is exact.
    __device__ __forceinline__ static void minima(u32 &low, u32 &high, const uint2 &n, int t) {
        u32 four = (t % 2 ? n.y : n.x) >> 4 & 0x0f0f0f0fu;
        low = permuted(four, 0x64646464u, 0x4140), high = permuted(four, 0x64646464u, 0x4342);
        asm("sub.f16x2 %0, %0, %1;" : "+r"(low) : "r"(0x64006400u));
        asm("sub.f16x2 %0, %0, %1;" : "+r"(high) : "r"(0x64006400u));
    }

    // Exact sums of scale * code * x, those of every second four values four times as large as they stand in their
    // bytes, and of minimum * (sum of x).  `s` and `m` are the scales of the lane's two columns for each.
    __device__ __forceinline__ void multiply(float (&acc)[4], const uint2 *xs, uint2 part, const float (&s)[2],
                                             const float (&m)[2]) const {
        const u32 ONE = 0x03030303u, FOUR = 0x0c0c0c0cu;
        int t = threadIdx.x % 4, one[4] = {0, 0, 0, 0}, four[4] = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            uint2 x0 = xs[16 * j], x1 = xs[16 * j + 8];
            u32 a[2], b[2], c[2], e[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                u32 word = j == 0 ? w[r].x : j == 1 ? w[r].y : j == 2 ? w[r].z : w[r].w, next = word >> 4;
                u32 scales = (j < 2 ? n[r].x : n[r].y) & 0x0f0f0f0fu;
                u32 k0 = permuted(scales, 0, 0x4440 | 2 * j % 4), k1 = permuted(scales, 0, 0x4441 | 2 * j % 4);
                a[r] = (word & ONE) * k0, b[r] = (next & ONE) * k1;
                c[r] = (word & FOUR) * k0, e[r] = (next & FOUR) * k1;
            }
            mma_u8(one, a[0], a[1], b[0], b[1], x0.x, x1.x);
            mma_u8(four, c[0], c[1], e[0], e[1], x0.y, x1.y);
        }
        u32 b0, b1, b2, b3;
        minima(b0, b2, n[0], t), minima(b1, b3, n[1], t);
        float least[4] = {0.f, 0.f, 0.f, 0.f};
        mma_f16(least, b0, b1, b2, b3, part.x, part.y);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float d = half_value((u16)e[i / 2]), low = half_value((u16)(e[i / 2] >> 16));
            acc[i] += d * s[i % 2] * (float)(4 * one[i] + four[i]) - low * m[i % 2] * least[i];
        }
    }
};

// Leave a warp's sums [PAIRS, TILE] where its team can read them; high and low halves lie two lanes apart.
__device__ __forceinline__ void leave(float *part, const float (&acc)[4]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float sum = acc[i] + __shfl_xor_sync(~0u, acc[i], 2);
        if (t < 2) part[(2 * t + i % 2) * COLUMN + i / 2 * 8 + g] = sum;
    }
}

// Blocks of the down launch: first the shared expert's tiles (Q8_0, inputs behind the pairs), then the routed ones.
// Inputs [pairs + rows]; out [pairs + rows, hidden]; sums [pairs, K / 256, 2, 16] F16, high part then low part.
template <int NT>
__device__ __forceinline__ void down_body(const Dense &shared, const Input &own, const uint4 *words, const u8 *minors,
                                          const u32 *d, float *out, int width, int hidden, const uint4 *ints,
                                          const float *scales, const uint2 *sums, const Routed &r) {
    __shared__ float whole[WARPS][COLS * TILE], partial[WARPS / TEAM][2][TEAM][PAIRS * COLUMN];
    __shared__ Plan plan;
    int side = WARPS / shared.cuts, dense = (shared.tiles + side - 1) / side;
    release();
    if ((int)blockIdx.x < dense) {
        dense_tiles<NT, false>(shared, own, blockIdx.x * side, whole);
        return;
    }
    follow();
    plan.fill(r, own.rows * r.used);
    int lane = threadIdx.x % 32, t = lane % 4, place = __shfl_sync(~0u, threadIdx.x / 32, 0), warp = place % TEAM;
    int team = place / TEAM, stride = (gridDim.x - dense) * (WARPS / TEAM);
    int blocks = width / 256, tiles = hidden / TILE, mine = (blocks + TEAM - 1) / TEAM, items = *r.total * tiles;
    int begin = min(warp * mine, blocks), end = min(begin + mine, blocks), b = begin, turn = 0;
    int item = (blockIdx.x - dense) * (WARPS / TEAM) + team;
    bool busy = begin < end;
    u32 inverse = 0xffffffffu / tiles + 1;  // exact for every item: items * tiles is far below 2^32
    float unit = t < 2 ? 64.f : 0.25f;      // 256 / 4 of the high half, 1 / 4 of the low one
    float acc[4] = {0.f, 0.f, 0.f, 0.f};
    __syncthreads();
    auto fetch = [&](BlockDown &block, int of, int at) {
        int slot = __umulhi(of, inverse);
        block.load(words, minors, d, (size_t)(u32)((plan.active[slot] * tiles + of - slot * tiles) * blocks + at));
    };
    // Brings what this warp will read of an item on its way into the second-level cache: codes, scales, super-scales.
    auto promise = [&](int of) {
        int slot = __umulhi(of, inverse), count = end - begin;
        size_t from = (size_t)(u32)((plan.active[slot] * tiles + of - slot * tiles) * blocks + begin);
#pragma unroll 1
        for (int i = lane; i < count * 8 + count * 5 / 2; i += 32) {
            int rest = i - count * 8, last = rest - count * 2;
            const char *at = rest < 0   ? (const char *)(words + from * 64) + i * 128
                             : last < 0 ? (const char *)minors + from * 256 + rest * 128
                                        : (const char *)(d + from * 16) + last * 128;
            asm volatile("prefetch.global.L2 [%0];" :: "l"(at));
        }
    };
    // Multiplies block `now` of the item and brings the next one on its way; false behind the last.
    auto work = [&](const BlockDown &now, BlockDown &next) {
        bool last = b + 1 >= end;
        int then = last ? item + stride : item, following = last ? begin : b + 1, slot = __umulhi(item, inverse);
        if (busy && then < items) fetch(next, then, following);
        if (b == begin && item + stride < items) promise(item + stride);
        const int *rows = plan.pair[slot];
        if (busy) {
            u32 at = rows[lane / 4 % PAIRS] * blocks + b;
            const uint2 *xs = (const uint2 *)(ints + (size_t)at * 32 + t) + lane / 16;
            float s0 = scales[rows[2 * (t % 2)] * blocks + b], s1 = scales[rows[2 * (t % 2) + 1] * blocks + b];
            const float codes[2] = {s0 * unit, s1 * unit}, minima[2] = {s0 * 32768.f, s1 * 32768.f};  // the unit of sums
            now.multiply(acc, xs, sums[(size_t)at * 8 + lane / 16 * 4 + t], codes, minima);
        }
        if (last) {
            leave(partial[team][turn & 1][warp], acc);
            asm volatile("bar.sync %0, %1;" :: "r"(team + 1), "n"(TEAM * 32) : "memory");
            if (warp == turn % TEAM) {  // the other half of `partial` is free: all have read it before arriving here
                int tile = item - slot * tiles;
#pragma unroll 1
                for (int column = lane / TILE; column < plan.live[slot]; column += 2) {
                    const float *from = &partial[team][turn & 1][0][column * COLUMN + lane % TILE];
                    float sum = 0.f;
#pragma unroll
                    for (int w = 0; w < TEAM; ++w) sum += from[w * PAIRS * COLUMN];
                    out[(size_t)rows[column] * hidden + tile * TILE + lane % TILE] = sum;
                }
            }
            ++turn;
#pragma unroll
            for (int i = 0; i < 4; ++i) acc[i] = 0.f;
        }
        item = then, b = following;
        return item < items;
    };
    if (item >= items) return;
    BlockDown first, second;
    if (busy) fetch(first, item, b);
    while (work(first, second) && work(second, first)) {}
}

#define DOWN(NT)                                                                                                \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) routed_down_##NT(                               \
        const char *codes, const u16 *code_scales, int cuts, int rows, const uint4 *words, const u8 *minors,    \
        const u32 *d, float *out, int width, int hidden, const uint4 *ints, const float *scales,                \
        const uint2 *sums, const int *active, const int *counts, const int *pairs, const int *total, int used) {\
        size_t own = (size_t)rows * used;                                                                       \
        Dense shared = {codes, code_scales, out + own * hidden, hidden / TILE, width, cuts, hidden};            \
        Input x = {ints + own * (width / 8), scales + own * (width / 256), 0, rows};                            \
        Routed r = {active, counts, pairs, total, used};                                                        \
        down_body<NT>(shared, x, words, minors, d, out, width, hidden, ints, scales, sums, r);                  \
    }
DOWN(1)
DOWN(2)
DOWN(4)

// The yardstick: reads the same bytes with 16-byte loads and keeps nothing; waits as late as it can.
extern "C" __global__ void __launch_bounds__(256) read_bytes(const uint4 *data, long long count, u32 *out) {
    release();
    u32 seen = 0;
    long long step = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        uint4 a = stream16(data + i), b = stream16(data + i + step), c = stream16(data + i + 2 * step), e = stream16(data + i + 3 * step);
        seen ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ e.x ^ e.y ^ e.z ^ e.w;
    }
    for (; i < count; i += step) {
        uint4 a = stream16(data + i);
        seen ^= a.x ^ a.y ^ a.z ^ a.w;
    }
    follow();
    if (seen == 0x5eed1234u) *out = seen;
}
