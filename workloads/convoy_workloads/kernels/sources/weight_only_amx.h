// AMX: two blocks of up to 16 rows times two packed tiles of 16 outputs, with bfloat16 products. The unpacked
// weights of 32 inputs are one tile register as they are. All numbers of rows run here, also a single one, because
// the additions inside a tile have another order than those of vdpbf16ps, and a row must keep its bits.
#pragma once

#include "tiles.h"
#include "weight_only_avx512bf16.h"

namespace convoy {

template <class Format>
struct AmxKernel {
    using Sizes = Geometry<Format::kBits>;
    using Vector = __m512;
    static constexpr int64_t kRows = 16, kTileInputs = 32, kPanelBlocks = 14;
    static constexpr int64_t kMaxSteps = kChunkInputs / 2;

    static RowBlocks row_blocks(const WeightOnly& a) { return RowBlocks(a.rows, kRows); }

    // Writes the activations of the row blocks begin..end-1 as [32 inputs][row of the block], and the sums of chunks.
    static void prepare(const WeightOnly& a, int64_t begin, int64_t end) {
        const Sizes sizes(a);
        const RowBlocks blocks = row_blocks(a);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = blocks.begin(block), count = blocks.size(block);
            float* sums = a.sums + first * sizes.chunks;
            for (int64_t row = 0; row < count; ++row) {
                for (int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
                    const int64_t from = sizes.chunk_begin(chunk), size = sizes.chunk_size(chunk);
                    __m512 sum = _mm512_setzero_ps();
                    for (int64_t i = from; i < from + size; i += kTileInputs) {
                        const __m512i x = Vectors512::read_inputs(a, first + row, i);
                        sum = Avx512Bf16::multiply_add(sum, x, _mm512_set1_epi16(0x3f80));
                        _mm512_storeu_si512(inputs(a, sizes, first) + i * count + row * kTileInputs, x);
                    }
                    sums[chunk * count + row] = _mm512_reduce_add_ps(sum);
                }
            }
        }
    }

    // Computes the outputs 16 * begin .. 16 * end - 1. Configures the tiles anew, because other libraries of this
    // thread configure them too.
    static void multiply(const WeightOnly& a, int64_t begin, int64_t end) {
        const RowBlocks blocks = row_blocks(a);
        for (int64_t outputs = begin; outputs < end; outputs += 2)
            for (int64_t block = 0; block < blocks.count; block += kPanelBlocks)
                panel(a, outputs, outputs + 1 < end, blocks, block, std::min(block + kPanelBlocks, blocks.count));
        release_tiles();
    }

private:
    static uint16_t* inputs(const WeightOnly& a, const Sizes& sizes, int64_t row) {
        return static_cast<uint16_t*>(a.prepared) + row * sizes.padded_k;
    }

    static void panel(const WeightOnly& a, int64_t outputs, bool two, const RowBlocks& blocks, int64_t first,
                      int64_t last) {
        const Sizes sizes(a);
        const int64_t row = blocks.begin(first), rows = blocks.begin(last) - row;
        // The last of an odd number of tiles is computed twice, and stored once.
        const int64_t next = two ? sizes.groups * sizes.tile_bytes : 0;
        alignas(64) __m512i unpacked[2 * kMaxSteps];
        alignas(64) Vector total[kPanelBlocks * kRows * 2];
        for (int64_t i = 0; i < rows * 2; ++i) total[i] = _mm512_setzero_ps();
        for (int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
            const uint8_t* tile = sizes.tile(a, outputs, chunk);
            const int64_t steps = sizes.chunk_size(chunk) / 2;
            for (int t = 0; t < 2; ++t) unpack(tile + sizes.code_offset(chunk) + t * next, steps, unpacked + t);
            for (int64_t block = first; block < last; block += 2)
                pair_of_blocks(a, sizes, blocks, block, block + 1 < last, chunk, steps, unpacked, tile, next,
                               total + (blocks.begin(block) - row) * 2);
        }
        for (int64_t r = 0; r < rows; ++r)
            for (int t = 0; t < (two ? 2 : 1); ++t) Vectors512::store(a, row + r, outputs + t, total[2 * r + t]);
    }

    // Writes the weights of a tile, with those of the other tile between them.
    static void unpack(const uint8_t* codes, int64_t steps, __m512i* to) {
        for (int64_t block = 0; block < steps / Format::kSteps; ++block) {
            const auto loaded = Format::load(codes + block * kBlockBytes);
#pragma GCC unroll 8
            for (int step = 0; step < Format::kSteps; ++step)
                to[2 * (block * Format::kSteps + step)] = Format::weight(loaded, step);
        }
    }

    static void pair_of_blocks(const WeightOnly& a, const Sizes& sizes, const RowBlocks& blocks, int64_t block,
                               bool two, int64_t chunk, int64_t steps, const __m512i* unpacked, const uint8_t* tile,
                               int64_t next, Vector* total) {
        const int64_t begin = sizes.chunk_begin(chunk), first = blocks.begin(block);
        const int64_t upper = blocks.size(block), lower = two ? blocks.size(block + 1) : 1;
        const uint16_t* x0 = inputs(a, sizes, first) + begin * upper;
        const uint16_t* x1 = two ? inputs(a, sizes, first + upper) + begin * lower : x0;
        TileConfiguration configuration;
        for (int t : {0, 1, 4}) configuration.set(t, upper);
        for (int t : {2, 3, 5}) configuration.set(t, lower);
        for (int t : {6, 7}) configuration.set(t, kRows);
        load_configuration(configuration);
        CONVOY_TILE_ZERO(0);
        CONVOY_TILE_ZERO(1);
        CONVOY_TILE_ZERO(2);
        CONVOY_TILE_ZERO(3);
        for (int64_t step = 0; step < steps; step += kRows) {
            CONVOY_TILE_LOAD(6, unpacked + 2 * step, 128);
            CONVOY_TILE_LOAD(7, unpacked + 2 * step + 1, 128);
            CONVOY_TILE_LOAD(4, x0 + 2 * step * upper, 64);
            CONVOY_TILE_MULTIPLY(0, 4, 6);
            CONVOY_TILE_MULTIPLY(1, 4, 7);
            if (two) {
                CONVOY_TILE_LOAD(5, x1 + 2 * step * lower, 64);
                CONVOY_TILE_MULTIPLY(2, 5, 6);
                CONVOY_TILE_MULTIPLY(3, 5, 7);
            }
        }
        alignas(64) Vector sums[2 * kRows * 2];
        CONVOY_TILE_STORE(0, sums, 128);
        CONVOY_TILE_STORE(1, sums + 1, 128);
        if (two) {
            CONVOY_TILE_STORE(2, sums + 2 * upper, 128);
            CONVOY_TILE_STORE(3, sums + 2 * upper + 1, 128);
        }
        for (int t = 0; t < 2; ++t) {
            const Vector scales = Vectors512::scales(tile + t * next, Format::kScaleFactor);
            const Vector zeros = Vectors512::zeros(tile + t * next + 2 * kTileOutputs, Format::kZeroFactor, Format::kZeroOffset);
            for (int64_t r = 0; r < upper + (two ? lower : 0); ++r) {
                const float own = r < upper ? a.sums[first * sizes.chunks + chunk * upper + r]
                                            : a.sums[(first + upper) * sizes.chunks + chunk * lower + r - upper];
                total[2 * r + t] = Vectors512::fold(total[2 * r + t], sums[2 * r + t], scales, zeros, own);
            }
        }
    }
};

}  // namespace convoy
