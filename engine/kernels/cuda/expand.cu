// Expands IQ2_XXS experts to F16 rows, 64 times their size: what the grouped product of a prefill chunk reads.
//
// Looking codewords up costs as much for one row of activations as for hundreds, so a chunk pays it once an expert
// here and not once a tile of the product.  Lookups are those of gemv.cu.

typedef unsigned int u32;
typedef unsigned short u16;

#define COPIES 16
#define WARPS 8

__device__ __forceinline__ u32 twice(u16 half) { return half | (u32)half << 16; }

__device__ __forceinline__ float half_value(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ u16 rounded(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Two magnitudes (bytes of `four`, picked by `pick`) times the scale, with the signs of a selector's two nibbles.
__device__ __forceinline__ u32 pair_of(u32 four, u32 pick, u32 scale, u32 signs) {
    u32 value = __byte_perm(four, 0x64646464u, pick);  // 0x6400 + m is the F16 number 1024 + m
    asm("sub.f16x2 %0, %0, %1;" : "+r"(value) : "r"(0x64006400u));
    asm("mul.f16x2 %0, %0, %1;" : "+r"(value) : "r"(scale));
    return value ^ (signs << 13 & 0x8000u) ^ (signs << 25 & 0x80000000u);
}

// The top bits of the sign bytes of rows g and g + 8: byte b of lane t is the scale of group 4 (t % 2) + b of row
// g + 8 (t / 2).
__device__ __forceinline__ u32 scales_of(const uint4 &w0, const uint4 &w1) {
    return (w0.z >> 4 & 0x08080808u) | (w0.w >> 5 & 0x04040404u) | (w1.z >> 6 & 0x02020202u) | (w1.w >> 7 & 0x01010101u);
}

// words [tiles, blocks, 64], d [tiles, blocks, 16] to out F16 [tiles * 16, blocks * 256]; a warp a block of a tile.
extern "C" __global__ void __launch_bounds__(WARPS * 32) expand_iq2(const uint4 *words, const u16 *d, uint4 *out, int blocks,
                                                                    long long items, const u32 *book, const u32 *sign) {
    __shared__ u32 books[256 * COPIES], signs[128 * COPIES];
    for (int i = threadIdx.x; i < 256 * COPIES; i += blockDim.x) books[i] = book[i / COPIES];
    for (int i = threadIdx.x; i < 128 * COPIES; i += blockDim.x) signs[i] = sign[i / COPIES];
    __syncthreads();
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, copy = lane % COPIES;
    long long stride = (long long)gridDim.x * WARPS;
    for (long long item = (long long)blockIdx.x * WARPS + threadIdx.x / 32; item < items; item += stride) {
        long long tile = item / blocks, block = item % blocks;
        uint4 both[2] = {words[item * 64 + lane], words[item * 64 + 32 + lane]};
        u32 minors = scales_of(both[0], both[1]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            uint4 w = both[r];
            float unit = half_value(d[item * 16 + r * 8 + g]) * 8.f;
            u32 minor[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) minor[h] = __shfl_sync(~0u, minors, lane - t + 2 * r + h);
            uint4 *to = out + ((tile * 16 + r * 8 + g) * blocks + block) * 32 + t;
#pragma unroll
            for (int q = 0; q < 8; ++q) {
                u32 index = (q < 4 ? w.x : w.y) >> (8 * (q % 4)) & 255, seven = (q < 4 ? w.z : w.w) >> (8 * (q % 4)) & 127;
                u32 select = books[index * COPIES + copy], minus = signs[seven * COPIES + copy];
                u32 scale = twice(rounded(unit * (float)(2 * (minor[q / 4] >> (8 * (q % 4)) & 15) + 1)));
                u32 low = __byte_perm(0x002b1908u, 0, select), high = __byte_perm(0x002b1908u, 0, select >> 16);
                to[4 * q] = make_uint4(pair_of(low, 0x4140, scale, minus), pair_of(low, 0x4342, scale, minus >> 8),
                                       pair_of(high, 0x4140, scale, minus >> 16), pair_of(high, 0x4342, scale, minus >> 24));
            }
        }
    }
}
