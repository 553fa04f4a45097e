// HNTL search with AVX-512 and VNNI: vpdpwssd projects queries, vpdpbusd scans blocks of 32 rows.
#include <immintrin.h>

#include "hntl_search.h"

namespace {

using hntl::Grain;
using hntl::LANES;
using hntl::Local;

inline __m512i broadcast(const void* four_bytes) {
    int32_t value;
    std::memcpy(&value, four_bytes, sizeof(value));
    return _mm512_set1_epi32(value);
}

constexpr __mmask16 ALL = 0xffff;  // gcc 12 warns of the form without a mask

struct Avx512Vnni {
    template <int WIDTH, int QUERIES>
    static void dot(const int16_t* matrix, int64_t pairs, const int16_t* const* inputs, int32_t* const* outputs) {
        // Few sums at a time would wait for each other, so one query adds even and odd pairs apart.
        constexpr int CHAINS = QUERIES == 1 ? 2 : 1;
        __m512i sums[CHAINS][QUERIES][WIDTH];
        for (int c = 0; c < CHAINS; ++c)
            for (int q = 0; q < QUERIES; ++q)
                for (int w = 0; w < WIDTH; ++w) sums[c][q][w] = _mm512_setzero_si512();
        int64_t pair = 0;
        for (; pair + CHAINS <= pairs; pair += CHAINS)
            for (int c = 0; c < CHAINS; ++c) step<WIDTH, QUERIES>(matrix, pair + c, inputs, sums[c]);
        for (; pair < pairs; ++pair) step<WIDTH, QUERIES>(matrix, pair, inputs, sums[0]);
        for (int q = 0; q < QUERIES; ++q)
            for (int w = 0; w < WIDTH; ++w) {
                __m512i sum = sums[0][q][w];
                for (int c = 1; c < CHAINS; ++c) sum = _mm512_add_epi32(sum, sums[c][q][w]);
                _mm512_storeu_si512(outputs[q] + w * 16, sum);
            }
    }

    template <int WIDTH, int QUERIES>
    static inline void step(const int16_t* matrix, int64_t pair, const int16_t* const* inputs,
                            __m512i (&sums)[QUERIES][WIDTH]) {
        __m512i columns[WIDTH];
        for (int w = 0; w < WIDTH; ++w) columns[w] = _mm512_loadu_si512(matrix + (pair * WIDTH + w) * 32);
        for (int q = 0; q < QUERIES; ++q) {
            const __m512i input = broadcast(inputs[q] + pair * 2);
            for (int w = 0; w < WIDTH; ++w) sums[q][w] = _mm512_dpwssd_epi32(sums[q][w], columns[w], input);
        }
    }

    template <int QUERIES>
    static void scan(const Grain& grain, Local* locals) {
        constexpr int CHAINS = QUERIES == 1 ? 2 : 1;
        const uint8_t* codes = grain.codes;
        for (int64_t block = 0; block < grain.blocks; ++block) {
            const uint32_t allowed = grain.allowed[block];
            if (!allowed) {
                codes += grain.quads * 128;
                continue;
            }
            __m512i sums[CHAINS][QUERIES][2];
            for (int q = 0; q < QUERIES; ++q) {
                sums[0][q][0] = sums[0][q][1] = _mm512_set1_epi32(locals[q].start);
                for (int c = 1; c < CHAINS; ++c) sums[c][q][0] = sums[c][q][1] = _mm512_setzero_si512();
            }
            int64_t quad = 0;
            for (; quad + CHAINS <= grain.quads; quad += CHAINS)
                for (int c = 0; c < CHAINS; ++c, codes += 128) add<QUERIES>(codes, locals, quad + c, sums[c]);
            for (; quad < grain.quads; ++quad, codes += 128) add<QUERIES>(codes, locals, quad, sums[0]);
            for (int q = 0; q < QUERIES; ++q) {
                __m512i low = sums[0][q][0], high = sums[0][q][1];
                for (int c = 1; c < CHAINS; ++c) {
                    low = _mm512_add_epi32(low, sums[c][q][0]);
                    high = _mm512_add_epi32(high, sums[c][q][1]);
                }
                offer(low, high, grain, block, allowed, locals[q]);
            }
        }
    }

    template <int QUERIES>
    static inline void add(const uint8_t* codes, const Local* locals, int64_t quad, __m512i (&sums)[QUERIES][2]) {
        const __m512i low = _mm512_loadu_si512(codes), high = _mm512_loadu_si512(codes + 64);
        for (int q = 0; q < QUERIES; ++q) {
            const __m512i query = broadcast(locals[q].codes + quad);
            sums[q][0] = _mm512_dpbusd_epi32(sums[q][0], low, query);
            sums[q][1] = _mm512_dpbusd_epi32(sums[q][1], high, query);
        }
    }

    static inline __m512 score(__m512i sum, const float* biases, const Local& local) {
        const __m512 product = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(ALL, sum), _mm512_set1_ps(local.factor));
        return _mm512_add_ps(_mm512_add_ps(product, _mm512_loadu_ps(biases)), _mm512_set1_ps(local.constant));
    }

    static inline void offer(__m512i low, __m512i high, const Grain& grain, int64_t block, uint32_t allowed,
                             Local& local) {
        const float* biases = grain.biases + block * LANES;
        const __m512 scores[2] = {score(low, biases, local), score(high, biases + 16, local)};
        const __m512 threshold = _mm512_set1_ps(local.pool->threshold);
        const uint32_t first = _mm512_cmp_ps_mask(scores[0], threshold, _CMP_LE_OQ);
        const uint32_t second = _mm512_cmp_ps_mask(scores[1], threshold, _CMP_LE_OQ);
        uint32_t entering = (first | second << 16) & allowed;
        if (!entering) return;
        alignas(64) float values[LANES];
        _mm512_store_ps(values, scores[0]);
        _mm512_store_ps(values + 16, scores[1]);
        hntl::enter(values, entering, grain.first + block * LANES, *local.pool);
    }
};

}  // namespace

CONVOY_EXPORT void convoy_hntl_scan(const HntlScan* arguments, int64_t begin, int64_t end) {
    hntl::run_scan<Avx512Vnni>(*arguments, begin, end);
}

CONVOY_EXPORT void convoy_hntl_exact(const HntlExact* arguments, int64_t begin, int64_t end) {
    hntl::run_exact(*arguments, begin, end);
}
