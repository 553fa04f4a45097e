// AVX-512 with fp32 products: a step is one input, and codes become fp32.
#pragma once

#include "vectors_avx512.h"
#include "weight_only_kernel.h"

namespace convoy {

struct Avx512 : Vectors512 {
    using Weight = __m512;
    using Input = float;
    static constexpr int64_t kStepInputs = 1;
    static constexpr int kBlockRows = 24;
    static constexpr int kBlockTiles = 1;
    static constexpr int kFewTiles[kFewRows] = {8, 4, 4, 4};

    static Weight broadcast(const Input* x) { return _mm512_set1_ps(*x); }

    static Vector multiply_add(Vector sum, Weight weights, Weight inputs) {
        return _mm512_fmadd_ps(weights, inputs, sum);
    }

    static float prepare_row(const WeightOnly& a, int64_t row, int64_t from, int64_t size, Input* to, int64_t stride) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < size; i += 32) {
            const __m512i x = read_inputs(a, row, from + i);
            for (const __m256i half : {_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)}) {
                const __m512 values = from_bfloat16(half);
                sum = _mm512_add_ps(sum, values);
                if (stride == 1) {
                    _mm512_storeu_ps(to, values);
                } else {
                    alignas(64) float each[16];
                    _mm512_store_ps(each, values);
                    for (int j = 0; j < 16; ++j) to[j * stride] = each[j];
                }
                to += 16 * stride;
            }
        }
        return _mm512_reduce_add_ps(sum);
    }
};

// v = q - 8, by look-up. vpermps ignores all but the low four bits of an index.
struct Avx512Bits4 {
    static constexpr int kBits = 4;
    static constexpr int kSteps = 8;
    static constexpr float kZeroFactor = 1.0f, kZeroOffset = -8.0f, kScaleFactor = 1.0f;
    using Codes = __m512i;

    static Codes load(const uint8_t* block) { return _mm512_load_si512(block); }

    static __m512 weight(Codes codes, int step) {
        const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        const unsigned shift = 4 * (step / 2) + 16 * (step % 2);
        return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, shift), table);
    }
};

// v = q - 128.
struct Avx512Bits8 {
    static constexpr int kBits = 8;
    static constexpr int kSteps = 4;
    static constexpr float kZeroFactor = 1.0f, kZeroOffset = -128.0f, kScaleFactor = 1.0f;
    struct Codes {
        __m512i first, second;  // 16-bit lanes with q - 128 in the high byte, for each of two pairs of inputs
    };

    static Codes load(const uint8_t* block) {
        const __m512i stored = _mm512_load_si512(block), zero = _mm512_setzero_si512();
        const __mmask64 negative = _mm512_movepi8_mask(stored);
        const __m512i flipped = _mm512_xor_si512(stored, _mm512_set1_epi8(0x7f));
        const __m512i codes = _mm512_mask_mov_epi8(stored, negative, flipped);
        return {_mm512_unpacklo_epi8(zero, codes), _mm512_unpackhi_epi8(zero, codes)};
    }

    static __m512 weight(Codes codes, int step) {
        const __m512i pair = step < 2 ? codes.first : codes.second;
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(step % 2 ? pair : _mm512_slli_epi32(pair, 16), 24));
    }
};

}  // namespace convoy
