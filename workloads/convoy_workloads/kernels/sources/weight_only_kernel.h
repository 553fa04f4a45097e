// The loops of weight_only.h, for vectors of an instruction set `Isa` and codes of a `Format`.
//
// Isa:    Vector (16 fp32 sums), Weight (16 outputs of one step), Input (one row's part of a step), kStepInputs,
//         kBlockRows and kBlockTiles (register blocking with many rows), kFewTiles (with one to four rows), and
//         functions zero, broadcast, multiply_add, fold, scales, zeros, store and prepare_row.
// Format: kBits, kSteps (steps in a block of 64 bytes), Codes, load, weight, kZeroFactor, kZeroOffset,
//         kScaleFactor: a weight's value is v = kZeroFactor * q + kZeroOffset, and w = kScaleFactor * s * (v - v(z)).
#pragma once

#include "weight_only.h"

namespace convoy {

constexpr int64_t kPanelRows = 240;  // rows for which a tile is unpacked once; their sums fit into the L1 cache
constexpr int64_t kFewRows = 4;
constexpr int64_t kPrefetchBytes = 512;        // with few rows; more was slower with eight streams of tiles
constexpr int64_t kPrefetchBytesOfMany = 2048;  // with many rows: the next tile

template <class Isa, class Format>
struct Kernel {
    using Vector = typename Isa::Vector;
    using Weight = typename Isa::Weight;
    using Input = typename Isa::Input;
    using Sizes = Geometry<Format::kBits>;
    static constexpr int64_t kBlockInputs = Format::kSteps * Isa::kStepInputs;
    static constexpr int64_t kMaxSteps = kChunkInputs / Isa::kStepInputs;
    static_assert(kBlockInputs * Format::kBits * kTileOutputs / 8 == kBlockBytes);

    struct Metadata {
        explicit Metadata(const uint8_t* tile)
            : scales(Isa::scales(tile, Format::kScaleFactor)),
              zeros(Isa::zeros(tile + 2 * kTileOutputs, Format::kZeroFactor, Format::kZeroOffset)) {}
        Vector scales, zeros;
    };

    static RowBlocks row_blocks(const WeightOnly& a) {
        return RowBlocks(a.rows, a.rows <= kFewRows ? kFewRows : Isa::kBlockRows);
    }

    // Writes the activations of the row blocks begin..end-1 as [step][row of the block], and the sums of each chunk.
    static void prepare(const WeightOnly& a, int64_t begin, int64_t end) {
        const Sizes sizes(a);
        const RowBlocks blocks = row_blocks(a);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = blocks.begin(block), count = blocks.size(block);
            Input* to = inputs(a, sizes, first);
            float* sums = a.sums + first * sizes.chunks;
            for (int64_t row = 0; row < count; ++row) {
                for (int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
                    const int64_t from = sizes.chunk_begin(chunk), size = sizes.chunk_size(chunk);
                    sums[chunk * count + row] =
                        Isa::prepare_row(a, first + row, from, size, to + from / Isa::kStepInputs * count + row, count);
                }
            }
        }
    }

    // Computes the outputs 16 * begin .. 16 * end - 1.
    static void multiply(const WeightOnly& a, int64_t begin, int64_t end) {
        switch (a.rows) {
            case 0: return;
            case 1: return few<1, Isa::kFewTiles[0]>(a, begin, end);
            case 2: return few<2, Isa::kFewTiles[1]>(a, begin, end);
            case 3: return few<3, Isa::kFewTiles[2]>(a, begin, end);
            case 4: return few<4, Isa::kFewTiles[3]>(a, begin, end);
            default: return many<Isa::kBlockTiles>(a, begin, end);
        }
    }

private:
    static Input* inputs(const WeightOnly& a, const Sizes& sizes, int64_t row) {
        return static_cast<Input*>(a.prepared) + row * (sizes.padded_k / Isa::kStepInputs);
    }

    // One to four rows: weights go from the packed form into registers and are used at once. T tiles at a time
    // give enough independent sums to hide the latency of the additions.
    template <int R, int T>
    static void few(const WeightOnly& a, int64_t begin, int64_t end) {
        for (; end - begin >= T; begin += T) few_tiles<R, T>(a, begin);
        if constexpr (T > 1) {
            if (begin < end) few<R, T / 2>(a, begin, end);
        }
    }

    template <int R, int T>
    static void few_tiles(const WeightOnly& a, int64_t outputs) {
        const Sizes sizes(a);
        const Input* x = inputs(a, sizes, 0);
        Vector total[R][T];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) total[r][t] = Isa::zero();
        for (int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
            const uint8_t* tile = sizes.tile(a, outputs, chunk);
            const int64_t next = sizes.groups * sizes.tile_bytes;
            const uint8_t* codes = tile + sizes.code_offset(chunk);
            Vector sum[R][T];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) sum[r][t] = Isa::zero();
            const int64_t blocks = sizes.chunk_size(chunk) / kBlockInputs;
            for (int64_t block = 0; block < blocks; ++block) {
                typename Format::Codes loaded[T];
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    loaded[t] = Format::load(codes + t * next);
                    __builtin_prefetch(codes + t * next + kPrefetchBytes);
                }
#pragma GCC unroll 8
                for (int step = 0; step < Format::kSteps; ++step) {
                    Weight row[R];
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) row[r] = Isa::broadcast(x + step * R + r);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t) {
                        const Weight weight = Format::weight(loaded[t], step);
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r) sum[r][t] = Isa::multiply_add(sum[r][t], weight, row[r]);
                    }
                }
                codes += kBlockBytes;
                x += Format::kSteps * R;
            }
            const float* sums = a.sums + chunk * R;
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const Metadata metadata(tile + t * next);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    total[r][t] = Isa::fold(total[r][t], sum[r][t], metadata.scales, metadata.zeros, sums[r]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) Isa::store(a, r, outputs + t, total[r][t]);
    }

    // Many rows: T tiles of a chunk are unpacked once, and then used by all blocks of rows of a panel.
    template <int T>
    static void many(const WeightOnly& a, int64_t begin, int64_t end) {
        const RowBlocks blocks = row_blocks(a);
        for (; end - begin >= T; begin += T)
            for (int64_t block = 0; block < blocks.count; block += kPanelRows / Isa::kBlockRows)
                panel<T>(a, begin, blocks, block, std::min(block + kPanelRows / Isa::kBlockRows, blocks.count));
        if constexpr (T > 1) {
            if (begin < end) many<T / 2>(a, begin, end);
        }
    }

    template <int T>
    static void panel(const WeightOnly& a, int64_t outputs, const RowBlocks& blocks, int64_t first, int64_t last) {
        const Sizes sizes(a);
        const int64_t row = blocks.begin(first), rows = blocks.begin(last) - row;
        const int64_t next = sizes.groups * sizes.tile_bytes;
        alignas(64) Weight unpacked[T * kMaxSteps];
        alignas(64) Vector total[kPanelRows * T];
        for (int64_t i = 0; i < rows * T; ++i) total[i] = Isa::zero();
        for (int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
            const uint8_t* tile = sizes.tile(a, outputs, chunk);
            const int64_t steps = sizes.chunk_size(chunk) / Isa::kStepInputs;
            unpack<T>(tile + sizes.code_offset(chunk), next, steps / Format::kSteps, unpacked);
            const int64_t step = sizes.chunk_begin(chunk) / Isa::kStepInputs;
            for (int64_t block = first; block < last; ++block) {
                const int64_t begin = blocks.begin(block), count = blocks.size(block);
                const Input* x = inputs(a, sizes, begin) + step * count;
                const float* sums = a.sums + begin * sizes.chunks + chunk * count;
                by_rows<Isa::kBlockRows, T>(count, unpacked, steps, x, tile, next, sums, total + (begin - row) * T);
            }
        }
        for (int64_t r = 0; r < rows; ++r)
            for (int t = 0; t < T; ++t) Isa::store(a, row + r, outputs + t, total[r * T + t]);
    }

    // Writes the weights of T tiles as [step][tile].
    template <int T>
    static void unpack(const uint8_t* codes, int64_t next, int64_t blocks, Weight* to) {
        for (int64_t block = 0; block < blocks; ++block) {
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const auto loaded = Format::load(codes + t * next + block * kBlockBytes);
                __builtin_prefetch(codes + t * next + block * kBlockBytes + kPrefetchBytesOfMany);
#pragma GCC unroll 8
                for (int step = 0; step < Format::kSteps; ++step)
                    to[(block * Format::kSteps + step) * T + t] = Format::weight(loaded, step);
            }
        }
    }

    template <int R, int T>
    static void by_rows(int64_t rows, const Weight* unpacked, int64_t steps, const Input* x, const uint8_t* tile,
                        int64_t next, const float* sums, Vector* total) {
        if (rows == R) return rows_of_chunk<R, T>(unpacked, steps, x, tile, next, sums, total);
        if constexpr (R > 1) by_rows<R - 1, T>(rows, unpacked, steps, x, tile, next, sums, total);
    }

    template <int R, int T>
    static void rows_of_chunk(const Weight* unpacked, int64_t steps, const Input* x, const uint8_t* tile, int64_t next,
                              const float* sums, Vector* total) {
        Vector sum[R][T];
#pragma GCC unroll 32
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sum[r][t] = Isa::zero();
        for (int64_t step = 0; step < steps; ++step) {
            Weight weight[T];
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) weight[t] = unpacked[step * T + t];
#pragma GCC unroll 32
            for (int r = 0; r < R; ++r) {
                const Weight row = Isa::broadcast(x + step * R + r);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) sum[r][t] = Isa::multiply_add(sum[r][t], weight[t], row);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const Metadata metadata(tile + t * next);
#pragma GCC unroll 32
            for (int r = 0; r < R; ++r)
                total[r * T + t] = Isa::fold(total[r * T + t], sum[r][t], metadata.scales, metadata.zeros, sums[r]);
        }
    }
};

}  // namespace convoy
