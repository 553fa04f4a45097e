// AVX-512 with bfloat16 dot products (vdpbf16ps): a step is a pair of inputs, and codes become bfloat16 by table
// look-ups. The tables hold values around zero, so that sums stay small where zero points are in the middle.
#pragma once

#include "vectors_avx512.h"
#include "weight_only_kernel.h"

namespace convoy {

struct Avx512Bf16 : Vectors512 {
    using Weight = __m512i;
    using Input = uint32_t;
    static constexpr int64_t kStepInputs = 2;
    static constexpr int kBlockRows = 12;
    static constexpr int kBlockTiles = 2;
    static constexpr int kFewTiles[kFewRows] = {8, 4, 4, 4};

    static Weight broadcast(const Input* x) { return _mm512_set1_epi32(static_cast<int>(*x)); }

    static Vector multiply_add(Vector sum, Weight weights, Weight inputs) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(weights), reinterpret_cast<__m512bh>(inputs));
    }

    static float prepare_row(const WeightOnly& a, int64_t row, int64_t from, int64_t size, Input* to, int64_t stride) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < size; i += 32, to += 16 * stride) {
            const __m512i x = read_inputs(a, row, from + i);
            sum = multiply_add(sum, x, _mm512_set1_epi16(0x3f80));
            if (stride == 1) {
                _mm512_storeu_si512(to, x);
            } else {
                alignas(64) Input pairs[16];
                _mm512_store_si512(pairs, x);
                for (int j = 0; j < 16; ++j) to[j * stride] = pairs[j];
            }
        }
        return _mm512_reduce_add_ps(sum);
    }
};

constexpr uint16_t bfloat16_of_integer(int value) {
    // Exact for |value| < 256.
    if (value == 0) return 0;
    unsigned magnitude = value < 0 ? -value : value, exponent = 127 + 7;
    while (magnitude < 128) {
        magnitude <<= 1;
        --exponent;
    }
    return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) | exponent << 7 | (magnitude & 127));
}

struct Tables {
    alignas(64) uint16_t nibble[32] = {};  // q - 8, twice
    alignas(64) uint8_t low[128] = {};     // 2 m + 1 for magnitudes m: low bytes
    alignas(64) uint8_t high[128] = {};    // and high bytes
    constexpr Tables() {
        for (int i = 0; i < 32; ++i) nibble[i] = bfloat16_of_integer(i % 16 - 8);
        for (int i = 0; i < 128; ++i) {
            low[i] = static_cast<uint8_t>(bfloat16_of_integer(2 * i + 1) & 255);
            high[i] = static_cast<uint8_t>(bfloat16_of_integer(2 * i + 1) >> 8);
        }
    }
};

inline constexpr Tables kTables;

// v = q - 8. vpermw ignores all but the low five bits of an index, so only a shift comes before each look-up.
struct Avx512Bf16Bits4 {
    static constexpr int kBits = 4;
    static constexpr int kSteps = 4;
    static constexpr float kZeroFactor = 1.0f, kZeroOffset = -8.0f, kScaleFactor = 1.0f;
    using Codes = __m512i;

    static Codes load(const uint8_t* block) { return _mm512_load_si512(block); }

    static __m512i weight(Codes codes, int step) {
        const __m512i table = _mm512_load_si512(kTables.nibble);
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4 * step), table);
    }
};

// v = 2 q - 255: an odd number of eight bits and a sign, so exact in bfloat16. The look-up of the 7-bit magnitude
// gives the low and the high byte of 64 codes at a time.
struct Avx512Bf16Bits8 {
    static constexpr int kBits = 8;
    static constexpr int kSteps = 2;
    static constexpr float kZeroFactor = 2.0f, kZeroOffset = -255.0f, kScaleFactor = 0.5f;
    struct Codes {
        __m512i low, high;
    };

    static Codes load(const uint8_t* block) {
        const __m512i codes = _mm512_load_si512(block);
        const __m512i low = look_up(kTables.low, codes), high = look_up(kTables.high, codes);
        const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
        return {low, _mm512_ternarylogic_epi64(high, codes, sign, 0xf8)};  // high | (codes & sign)
    }

    static __m512i weight(Codes codes, int step) {
        return step == 0 ? _mm512_unpacklo_epi8(codes.low, codes.high) : _mm512_unpackhi_epi8(codes.low, codes.high);
    }

private:
    static __m512i look_up(const uint8_t* table, __m512i codes) {
        return _mm512_permutex2var_epi8(_mm512_load_si512(table), codes, _mm512_load_si512(table + 64));
    }
};

}  // namespace convoy
