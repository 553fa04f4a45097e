// Parts of an instruction set of weight_only_kernel.h that all sets with 512-bit vectors share.
#pragma once

#include <immintrin.h>

#include "weight_only.h"

namespace convoy {

struct Vectors512 {
    using Vector = __m512;

    static Vector zero() { return _mm512_setzero_ps(); }

    static Vector fold(Vector total, Vector sum, Vector scales, Vector zeros, float inputs) {
        return _mm512_fmadd_ps(scales, _mm512_fnmadd_ps(zeros, _mm512_set1_ps(inputs), sum), total);
    }

    static Vector scales(const uint8_t* from, float factor) {
        const __m256i half = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
        return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(factor));
    }

    static Vector zeros(const uint8_t* from, float factor, float offset) {
        const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
        const __m512 codes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        return _mm512_fmadd_ps(codes, _mm512_set1_ps(factor), _mm512_set1_ps(offset));
    }

    static __mmask32 mask(int64_t count) {
        return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1u;
    }

    // Rounds to the nearest bfloat16, ties to even, as torch does.
    static __m256i to_bfloat16(__m512 x) {
        const __m512i bits = _mm512_castps_si512(x);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        const __m512i found = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(found, 16));
    }

    static __m512 from_bfloat16(__m256i x) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
    }

    // Reads 32 activations from index `at` as bfloat16. Those behind the end of the row are zero.
    static __m512i read_inputs(const WeightOnly& a, int64_t row, int64_t at) {
        const __mmask32 inside = mask(a.k - at);
        const int64_t first = row * a.input_stride + at;
        if (a.input_type == kBfloat16)
            return _mm512_maskz_loadu_epi16(inside, static_cast<const uint16_t*>(a.inputs) + first);
        const float* from = static_cast<const float*>(a.inputs) + first;
        const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(inside), from);
        const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(inside >> 16), from + 16);
        return _mm512_inserti64x4(_mm512_castsi256_si512(to_bfloat16(low)), to_bfloat16(high), 1);
    }

    static void store(const WeightOnly& a, int64_t row, int64_t outputs, Vector y) {
        const int64_t first = row * a.output_stride + outputs * kTileOutputs;
        const auto inside = static_cast<__mmask16>(mask(std::min(a.n - outputs * kTileOutputs, kTileOutputs)));
        if (a.output_type == kBfloat16)
            _mm256_mask_storeu_epi16(static_cast<uint16_t*>(a.outputs) + first, inside, to_bfloat16(y));
        else
            _mm512_mask_storeu_ps(static_cast<float*>(a.outputs) + first, inside, y);
    }
};

}  // namespace convoy
