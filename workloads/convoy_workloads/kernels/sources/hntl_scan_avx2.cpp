// HNTL search with AVX2. vpmaddubsw would saturate, so the scan multiplies even and odd bytes apart, in 16 bits.
#include <immintrin.h>

#include "hntl_search.h"

namespace {

using hntl::Grain;
using hntl::LANES;
using hntl::Local;

struct Avx2 {
    template <int WIDTH, int QUERIES>
    static void dot(const int16_t* matrix, int64_t pairs, const int16_t* const* inputs, int32_t* const* outputs) {
        for (int q = 0; q < QUERIES; ++q) {
            __m256i sums[2 * WIDTH];
            for (auto& sum : sums) sum = _mm256_setzero_si256();
            for (int64_t pair = 0; pair < pairs; ++pair) {
                int32_t value;
                std::memcpy(&value, inputs[q] + pair * 2, sizeof(value));
                const __m256i input = _mm256_set1_epi32(value);
                for (int w = 0; w < 2 * WIDTH; ++w) {
                    const void* at = matrix + (pair * 2 * WIDTH + w) * 16;
                    const __m256i column = _mm256_loadu_si256(static_cast<const __m256i*>(at));
                    sums[w] = _mm256_add_epi32(sums[w], _mm256_madd_epi16(column, input));
                }
            }
            for (int w = 0; w < 2 * WIDTH; ++w)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(outputs[q] + w * 8), sums[w]);
        }
    }

    template <int QUERIES>
    static void scan(const Grain& grain, Local* locals) {
        constexpr int PARTS = LANES / 8;
        int32_t even[QUERIES][hntl::TILE / 4], odd[QUERIES][hntl::TILE / 4];
        for (int q = 0; q < QUERIES; ++q)
            for (int64_t quad = 0; quad < grain.quads; ++quad) {
                int8_t code[4];
                std::memcpy(code, locals[q].codes + quad, sizeof(code));
                even[q][quad] = paired(code[0], code[2]);
                odd[q][quad] = paired(code[1], code[3]);
            }
        const __m256i low_bytes = _mm256_set1_epi16(0xff);
        for (int64_t block = 0; block < grain.blocks; ++block) {
            const uint8_t* codes = grain.codes + block * grain.quads * 4 * LANES;
            const uint32_t allowed = grain.allowed[block];
            if (!allowed) continue;
            for (int q = 0; q < QUERIES; ++q) {
                __m256i sums[PARTS];
                for (auto& sum : sums) sum = _mm256_set1_epi32(locals[q].start);
                for (int64_t quad = 0; quad < grain.quads; ++quad)
                    for (int p = 0; p < PARTS; ++p) {
                        const void* at = codes + quad * 4 * LANES + p * 32;
                        const __m256i bytes = _mm256_loadu_si256(static_cast<const __m256i*>(at));
                        const __m256i evens = _mm256_and_si256(bytes, low_bytes);
                        const __m256i odds = _mm256_srli_epi16(bytes, 8);
                        sums[p] = _mm256_add_epi32(
                            sums[p], _mm256_add_epi32(_mm256_madd_epi16(evens, _mm256_set1_epi32(even[q][quad])),
                                                      _mm256_madd_epi16(odds, _mm256_set1_epi32(odd[q][quad]))));
                    }
                offer(sums, grain, block, allowed, locals[q]);
            }
        }
    }

    static inline int32_t paired(int8_t first, int8_t second) {
        return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint16_t>(first)) |
                                    static_cast<uint32_t>(static_cast<uint16_t>(second)) << 16);
    }

    static inline void offer(const __m256i (&sums)[LANES / 8], const Grain& grain, int64_t block, uint32_t allowed,
                             Local& local) {
        const float* biases = grain.biases + block * LANES;
        const __m256 threshold = _mm256_set1_ps(local.pool->threshold);
        alignas(64) float values[LANES];
        uint32_t entering = 0;
        for (int p = 0; p < LANES / 8; ++p) {
            const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[p]), _mm256_set1_ps(local.factor));
            const __m256 score = _mm256_add_ps(_mm256_add_ps(product, _mm256_loadu_ps(biases + p * 8)),
                                               _mm256_set1_ps(local.constant));
            _mm256_store_ps(values + p * 8, score);
            const int below = _mm256_movemask_ps(_mm256_cmp_ps(score, threshold, _CMP_LE_OQ));
            entering |= static_cast<uint32_t>(below) << (p * 8);
        }
        entering &= allowed;
        if (entering) hntl::enter(values, entering, grain.first + block * LANES, *local.pool);
    }
};

}  // namespace

CONVOY_EXPORT void convoy_hntl_scan(const HntlScan* arguments, int64_t begin, int64_t end) {
    hntl::run_scan<Avx2>(*arguments, begin, end);
}

CONVOY_EXPORT void convoy_hntl_exact(const HntlExact* arguments, int64_t begin, int64_t end) {
    hntl::run_exact(*arguments, begin, end);
}
