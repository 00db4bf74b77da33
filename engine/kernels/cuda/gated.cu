// Gated unit of the routed experts of a decode or verify step: IQ2_XXS gate and up, each read once a step.
//
// What binds it is not bytes but the integer pipe, which on Hopper takes two cycles an instruction: a codeword of eight
// weights has about 14 cycles where memory keeps up.  So an index is one byte permute (a table entry lies 256 bytes from
// the next, and every lane has its own copy, in its own bank), signs are looked up by bytes, and adding goes through the
// multiplier, which has time.  Activations, exactness and columns are those of gemv.cu.

typedef unsigned int u32;
typedef unsigned short u16;

#define TEAM 8     // warps that share a tile: each has its part of the inner width
#define TEAMS 2    // of a block
#define TILE 16    // weight rows of a tile, and as many of its up matrix
#define PAIRS 4    // of a group: four high halves and their four low halves make eight columns
#define GROUPS 256 // at most, of a step
#define COLUMN 20  // floats from a pair's partial sums to the next's: four lanes of a quad meet in no bank
#define PART (2 * PAIRS * COLUMN)

__device__ __forceinline__ float half_value(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// From zero; columns 0 .. 3 of the result are high halves, 4 .. 7 low ones.
__device__ __forceinline__ void mma_s8(int (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

__device__ __forceinline__ uint4 stream16(const void *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

__device__ __forceinline__ u32 permuted(u32 a, u32 b, u32 selector) {
    u32 d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

// (a & b) | c
__device__ __forceinline__ u32 masked_or(u32 a, u32 b, u32 c) {
    u32 d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// 1 and the magnitudes in registers that the compiler knows nothing about, so that it leaves the multiplier its work and
// does not make the constant anew for every permute.
struct Hidden {
    u32 one, plus;

    __device__ __forceinline__ u32 sum(u32 a, u32 b) const {
        u32 d;
        asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(one), "r"(b));
        return d;
    }
};

// Groups of a step as every warp of the block needs them; a column without a pair repeats the first one.
struct Plan {
    int active[GROUPS], live[GROUPS];
    int pair[GROUPS][PAIRS], row[GROUPS][PAIRS];
};

// Entry i: 32 copies of codeword i's byte selectors, then 32 of sign byte i's (whose top bit says nothing).
struct Shared {
    u32 table[256][64];
    float partial[TEAMS][2][TEAM][PART];
    Plan plan;
};

// Byte `at` of `word` times 256, plus the lane's place within an entry: one instruction.
__device__ __forceinline__ u32 place_of(u32 word, u32 copy, int at) { return permuted(word, copy, 0x5504 | at << 4); }

__device__ __forceinline__ u32 selector(const char *table, const uint4 &w, int step, u32 copy, const Hidden &f) {
    u32 book = *(const u32 *)(table + place_of(step < 4 ? w.x : w.y, copy, step % 4));
    u32 sign = *(const u32 *)(table + 128 + place_of(step < 4 ? w.z : w.w, copy, step % 4));
    return f.sum(book, sign);
}

// One step of a tile: exact sums of magnitude, sign and 2 s + 1 times one half of x.
__device__ __forceinline__ void step_of(int (&half)[4], const char *table, const uint4 &w0, const uint4 &w1, u32 k0, u32 k1,
                                        int step, const uint2 &x, u32 copy, const Hidden &f) {
    const u32 PLUS = f.plus, MINUS = 0x00d5e7f8u;  // bytes 8, 25, 43 and their negatives
    u32 a = selector(table, w0, step, copy, f), b = selector(table, w1, step, copy, f);
    u32 a0 = permuted(PLUS, MINUS, a), a2 = permuted(PLUS, MINUS, a >> 16);
    u32 a1 = permuted(PLUS, MINUS, b), a3 = permuted(PLUS, MINUS, b >> 16);
    int c[4];
    mma_s8(c, a0, a1, a2, a3, x.x, x.y);
    int s0 = permuted(k0, 0, 0x4440 | step % 4), s1 = permuted(k1, 0, 0x4440 | step % 4);
    half[0] += s0 * c[0], half[1] += s0 * c[1], half[2] += s1 * c[2], half[3] += s1 * c[3];
}

// What one warp reads of one block of a gate tile and its up tile.
struct Block {
    uint4 w[4];  // gate rows g and g + 8, up rows g and g + 8
    u16 d[4];

    __device__ __forceinline__ void load(const uint4 *words, const u16 *scales, size_t gate, size_t up) {
        int lane = threadIdx.x % 32, g = lane / 4;
        const uint4 *first = words + gate * 64 + lane, *second = words + up * 64 + lane;
        w[0] = stream16(first), w[1] = stream16(first + 32), w[2] = stream16(second), w[3] = stream16(second + 32);
        const u16 *d0 = scales + gate * 16 + g, *d1 = scales + up * 16 + g;
        d[0] = d0[0], d[1] = d0[8], d[2] = d1[0], d[3] = d1[8];
    }

    // The top bits of all sign bytes: byte b holds the scales of step 4 (t % 2) + b of row g + 8 (t / 2), gate's above
    // up's.
    __device__ __forceinline__ u32 minors() const {
        u32 all = w[0].z & 0x80808080u;
        all = masked_or(w[0].w >> 1, 0x40404040u, all);
        all = masked_or(w[1].z >> 2, 0x20202020u, all);
        all = masked_or(w[1].w >> 3, 0x10101010u, all);
        all = masked_or(w[2].z >> 4, 0x08080808u, all);
        all = masked_or(w[2].w >> 5, 0x04040404u, all);
        all = masked_or(w[3].z >> 6, 0x02020202u, all);
        return masked_or(w[3].w >> 7, 0x01010101u, all);
    }

    // Adds the block to the sums of gate and up; `x` are this lane's halves of its column, s0 and s1 the scales of its
    // two columns of the result.
    __device__ __forceinline__ void multiply(float (&gate)[4], float (&up)[4], const char *table, const uint2 *x, float s0,
                                             float s1, u32 copy, const Hidden &f) const {
        const u32 FIELD = 0x1e1e1e1eu, ONE = 0x01010101u;
        u32 all = minors(), k[2][4];  // 2 s + 1 of gate and up, each of rows g and g + 8, each in two words of four steps
        int quad = threadIdx.x % 32 & 28;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            u32 part = __shfl_sync(~0u, all, quad | j);
            k[0][j] = masked_or(part >> 3, FIELD, ONE), k[1][j] = masked_or(part << 1, FIELD, ONE);
        }
        int half[2][4] = {};
#pragma unroll
        for (int s = 0; s < 8; ++s) {
            uint2 b = x[8 * s];
            step_of(half[0], table, w[0], w[1], k[0][s / 4], k[0][2 + s / 4], s, b, copy, f);
            step_of(half[1], table, w[2], w[3], k[1][s / 4], k[1][2 + s / 4], s, b, copy, f);
        }
        scaled(gate, half[0], half_value(d[0]), half_value(d[1]), s0, s1);
        scaled(up, half[1], half_value(d[2]), half_value(d[3]), s0, s1);
    }

    __device__ __forceinline__ static void scaled(float (&acc)[4], const int (&half)[4], float d0, float d1, float s0,
                                                  float s1) {
        acc[0] += d0 * s0 * (float)half[0];
        acc[1] += d0 * s1 * (float)half[1];
        acc[2] += d1 * s0 * (float)half[2];
        acc[3] += d1 * s1 * (float)half[3];
    }
};

__device__ __forceinline__ float glu(float gate, float up, float limit) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
    return gate / (1.f + __expf(-gate)) * up;
}

// Leave a warp's sums where its team can read them.  High and low halves lie two lanes apart; lanes t = 0, 1 put gate's
// together, lanes t = 2, 3 up's.
__device__ __forceinline__ void leave(float *part, const float (&gate)[4], const float (&up)[4]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float *to = part + (t / 2) * PAIRS * COLUMN + 2 * (t % 2) * COLUMN + g;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float other = __shfl_xor_sync(~0u, t < 2 ? up[i] : gate[i], 2);
        to[i % 2 * COLUMN + i / 2 * 8] = (t < 2 ? gate[i] : up[i]) + other;
    }
}

__device__ __forceinline__ void plan_of(Plan &plan, const int *active, const int *counts, const int *pairs, int room,
                                        int used) {
    for (int i = threadIdx.x; i < room; i += blockDim.x) {
        int live = counts[i];
        plan.active[i] = active[i];
        plan.live[i] = live;
        int first = pairs[i * PAIRS];
#pragma unroll
        for (int c = 0; c < PAIRS; ++c) {
            int pair = c < live ? pairs[i * PAIRS + c] : first;
            plan.pair[i][c] = pair;
            plan.row[i][c] = pair / used;
        }
    }
}

// Unit of every (row, slot) pair: words [E, 2 F / 16, K / 256, 64], gate rows first; out [pairs, F].  `room` is how many
// groups there may be, `one` 1.
extern "C" __global__ void __launch_bounds__(TEAM * TEAMS * 32, 1) routed_up(
    const uint4 *words, const u16 *d, float *out, int width, int inner, float limit, const uint4 *ints,
    const float *scales, const float *weight, const u32 *book, const u32 *sign, const int *active, const int *counts,
    const int *pairs, const int *total, int used, int room, int one) {
    extern __shared__ uint4 dynamic[];
    Shared &shared = *(Shared *)dynamic;
    int lane = threadIdx.x % 32, t = lane % 4, place = __shfl_sync(~0u, threadIdx.x / 32, 0);
    int warp = place % TEAM, team = place / TEAM;
    asm volatile("griddepcontrol.launch_dependents;");
    for (int i = threadIdx.x; i < 256 * 16; i += blockDim.x) {
        u32 value = i % 16 < 8 ? book[i / 16] : sign[i / 16 % 128];
        ((uint4 *)shared.table)[i] = make_uint4(value, value, value, value);
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int blocks = width / 256, tiles = inner / TILE, items = *total * tiles;
    plan_of(shared.plan, active, counts, pairs, room, used);
    __syncthreads();
    const char *table = (const char *)shared.table;
    const Plan &plan = shared.plan;
    const Hidden hidden = {(u32)one, 0x002b1908u + (lane >> 5 * one)};
    int mine = (blocks + TEAM - 1) / TEAM, begin = min(warp * mine, blocks), end = min(begin + mine, blocks);
    bool busy = begin < end;
    int stride = gridDim.x * TEAMS, item = blockIdx.x * TEAMS + team, b = begin, turn = 0;
    u32 inverse = 0xffffffffu / tiles + 1;  // exact for every item: items * tiles is far below 2^32
    size_t other = (size_t)tiles * blocks;
    const char *halves = (const char *)(ints + t) + lane / 16 * 8;
    float unit = t < 2 ? 32.f : 0.125f;  // 256 / 8 of the high half, 1 / 8 of the low one
    float gate[4] = {0.f, 0.f, 0.f, 0.f}, up[4] = {0.f, 0.f, 0.f, 0.f};
    auto fetch = [&](Block &block, int of, int at) {
        int slot = __umulhi(of, inverse);
        size_t from = (size_t)(u32)((plan.active[slot] * 2 * tiles + of - slot * tiles) * blocks + at);
        block.load(words, d, from, from + other);
    };
    // Multiplies block `now` of the item and brings the next one on its way; false behind the last.
    auto work = [&](const Block &now, Block &next) {
        bool last = b + 1 >= end;
        int then = last ? item + stride : item, following = last ? begin : b + 1;
        if (busy && then < items) fetch(next, then, following);
        int slot = __umulhi(item, inverse);
        if (busy) {
            const int *rows = plan.row[slot];
            const uint2 *x = (const uint2 *)(halves + (size_t)(u32)(rows[lane / 4 % PAIRS] * blocks + b) * 512);
            float s0 = scales[rows[2 * (t % 2)] * blocks + b] * unit, s1 = scales[rows[2 * (t % 2) + 1] * blocks + b] * unit;
            now.multiply(gate, up, table, x, s0, s1, lane * 4, hidden);
        }
        if (last) {
            leave(shared.partial[team][turn & 1][warp], gate, up);
            asm volatile("bar.sync %0, %1;" :: "r"(team + 1), "n"(TEAM * 32) : "memory");
            if (warp == turn % TEAM) {  // the other half of `partial` is free: all have read it before arriving here
                int tile = item - slot * tiles;
#pragma unroll 1
                for (int column = lane / TILE; column < plan.live[slot]; column += 2) {
                    const float *from = &shared.partial[team][turn & 1][0][column * COLUMN + lane % TILE];
                    float first = 0.f, second = 0.f;
#pragma unroll
                    for (int w = 0; w < TEAM; ++w) first += from[w * PART], second += from[w * PART + PAIRS * COLUMN];
                    int pair = plan.pair[slot][column];
                    out[(size_t)pair * inner + tile * TILE + lane % TILE] = weight[pair] * glu(first, second, limit);
                }
            }
            ++turn;
#pragma unroll
            for (int i = 0; i < 4; ++i) gate[i] = up[i] = 0.f;
        }
        item = then, b = following;
        return item < items;
    };
    Block first, second;
    if (item >= items) return;
    if (busy) fetch(first, item, b);
    while (work(first, second) && work(second, first)) {}
}
