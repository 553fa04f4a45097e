// AVX2 with fp32 products: a step is one input, codes become fp32, and two registers hold 16 outputs.
#pragma once

#include <immintrin.h>

#include "weight_only_kernel.h"

namespace convoy {

struct Avx2 {
    struct Vector {
        __m256 low, high;
    };
    using Weight = Vector;
    using Input = float;
    static constexpr int64_t kStepInputs = 1;
    static constexpr int kBlockRows = 6;
    static constexpr int kBlockTiles = 1;
    static constexpr int kFewTiles[kFewRows] = {4, 2, 2, 1};

    static Vector zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }

    static Weight broadcast(const Input* x) {
        const __m256 same = _mm256_broadcast_ss(x);
        return {same, same};
    }

    static Vector multiply_add(Vector sum, Weight weights, Weight inputs) {
        return {_mm256_fmadd_ps(weights.low, inputs.low, sum.low), _mm256_fmadd_ps(weights.high, inputs.high, sum.high)};
    }

    static Vector fold(Vector total, Vector sum, Vector scales, Vector zeros, float inputs) {
        const __m256 x = _mm256_set1_ps(inputs);
        return {_mm256_fmadd_ps(scales.low, _mm256_fnmadd_ps(zeros.low, x, sum.low), total.low),
                _mm256_fmadd_ps(scales.high, _mm256_fnmadd_ps(zeros.high, x, sum.high), total.high)};
    }

    static Vector scales(const uint8_t* from, float factor) {
        const auto* half = reinterpret_cast<const __m128i*>(from);
        const __m256 all = _mm256_set1_ps(factor);
        return {_mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128(half)), all),
                _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128(half + 1)), all)};
    }

    static Vector zeros(const uint8_t* from, float factor, float offset) {
        const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
        return {moved(bytes, factor, offset), moved(_mm_srli_si128(bytes, 8), factor, offset)};
    }

    static void store(const WeightOnly& a, int64_t row, int64_t outputs, Vector y) {
        alignas(32) float each[kTileOutputs];
        _mm256_store_ps(each, y.low);
        _mm256_store_ps(each + 8, y.high);
        const int64_t first = row * a.output_stride + outputs * kTileOutputs;
        const int64_t count = std::min(a.n - outputs * kTileOutputs, kTileOutputs);
        for (int64_t i = 0; i < count; ++i) {
            if (a.output_type == kBfloat16)
                static_cast<uint16_t*>(a.outputs)[first + i] = to_bfloat16(each[i]);
            else
                static_cast<float*>(a.outputs)[first + i] = each[i];
        }
    }

    static float prepare_row(const WeightOnly& a, int64_t row, int64_t from, int64_t size, Input* to, int64_t stride) {
        // Eight partial sums, as vectors would have them, are faster than one.
        float sums[8] = {};
        for (int64_t i = 0; i < size; ++i) {
            const float x = from + i < a.k ? read_input(a, row * a.input_stride + from + i) : 0.0f;
            to[i * stride] = x;
            sums[i % 8] += x;
        }
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }

private:
    static __m256 moved(__m128i bytes, float factor, float offset) {
        const __m256 codes = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        return _mm256_fmadd_ps(codes, _mm256_set1_ps(factor), _mm256_set1_ps(offset));
    }

    // Rounds to the nearest bfloat16, ties to even, as torch does.
    static uint16_t to_bfloat16(float x) {
        const auto bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(x))));
        if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
        return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }

    static float read_input(const WeightOnly& a, int64_t at) {
        const uint16_t bits = a.input_type == kBfloat16 ? static_cast<const uint16_t*>(a.inputs)[at]
                                                        : to_bfloat16(static_cast<const float*>(a.inputs)[at]);
        return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(uint32_t{bits} << 16))));
    }
};

// v = q - 8. The code goes into the mantissa of 2^23.
struct Avx2Bits4 {
    static constexpr int kBits = 4;
    static constexpr int kSteps = 8;
    static constexpr float kZeroFactor = 1.0f, kZeroOffset = -8.0f, kScaleFactor = 1.0f;
    using Codes = const __m256i*;

    static Codes load(const uint8_t* block) { return reinterpret_cast<Codes>(block); }

    static Avx2::Weight weight(Codes codes, int step) {
        const int shift = 4 * (step / 2) + 16 * (step % 2);
        return {value(_mm256_load_si256(codes), shift), value(_mm256_load_si256(codes + 1), shift)};
    }

private:
    static __m256 value(__m256i codes, int shift) {
        const __m256i code = _mm256_and_si256(_mm256_srli_epi32(codes, shift), _mm256_set1_epi32(15));
        const __m256i mantissa = _mm256_or_si256(code, _mm256_set1_epi32(0x4b000000));
        return _mm256_sub_ps(_mm256_castsi256_ps(mantissa), _mm256_set1_ps(8388608.0f + 8.0f));
    }
};

// v = q - 128.
struct Avx2Bits8 {
    static constexpr int kBits = 8;
    static constexpr int kSteps = 4;
    static constexpr float kZeroFactor = 1.0f, kZeroOffset = -128.0f, kScaleFactor = 1.0f;
    using Codes = const __m256i*;

    static Codes load(const uint8_t* block) { return reinterpret_cast<Codes>(block); }

    static Avx2::Weight weight(Codes codes, int step) {
        return {value(_mm256_load_si256(codes), step), value(_mm256_load_si256(codes + 1), step)};
    }

private:
    static __m256 value(__m256i stored, int step) {
        const __m256i zero = _mm256_setzero_si256();
        const __m256i negative = _mm256_and_si256(_mm256_cmpgt_epi8(zero, stored), _mm256_set1_epi8(0x7f));
        const __m256i codes = _mm256_xor_si256(stored, negative);
        // 16-bit lanes with q - 128 in the high byte.
        const __m256i pair = step < 2 ? _mm256_unpacklo_epi8(zero, codes) : _mm256_unpackhi_epi8(zero, codes);
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(step % 2 ? pair : _mm256_slli_epi32(pair, 16), 24));
    }
};

}  // namespace convoy
