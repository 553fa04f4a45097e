// The product of activations with packed 4-bit or 8-bit weights: arguments, layout and order of work.
//
//   y[m, n] = sum over groups g of s[g, n] * (sum over k in g of q[n, k] * x[m, k]  -  z[g, n] * sum over k in g of x[m, k])
//
// Layout n16k2: a tile holds 16 outputs x one group of inputs. It starts with 16 scales (fp16), 16 zero points
// (u8) and 16 bytes of padding; then follow blocks of 64 bytes with codes. All tiles of 16 outputs follow each
// other, group by group. Seen as 32 lanes of 16 bits, lane 2 * o + p belongs to output o and input p of a pair.
//   4 bits: a block holds 8 inputs. Bits 4j..4j+3 of a lane are the code of pair j.
//   8 bits: a block holds 4 inputs. Byte 16 * (lane / 8) + 8 * j + lane % 8 is the code of pair j, stored as
//           q - 128 for q >= 128, and as 255 - q for smaller q: a sign in bit 7 and a magnitude in bits 0..6.
//
// A group is computed in chunks of at most 128 inputs. For each row and output, the additions inside a chunk run
// in the order of the inputs, and chunks are added in their order. So the bits of a row depend neither on the
// number of rows, nor on the row's place, nor on the split of the outputs among threads.
#pragma once

#include <algorithm>

#include "common.h"

namespace convoy {

constexpr int64_t kTileOutputs = 16;
constexpr int64_t kMetadataBytes = 64;
constexpr int64_t kBlockBytes = 64;
constexpr int64_t kChunkInputs = 128;

enum ElementType : int64_t { kFloat32 = 0, kBfloat16 = 1 };

struct WeightOnly {
    const uint8_t* weights;  // tiles
    const void* inputs;      // [rows, k], each row contiguous
    void* outputs;           // [rows, n], each row contiguous
    void* prepared;          // workspace of rows * padded_k * 4 bytes, aligned to 64
    float* sums;             // workspace of rows * chunks floats
    int64_t rows, n, k, group_size;
    int64_t input_stride, output_stride;  // elements from one row to the next
    int64_t input_type, output_type;      // ElementType
};

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sizes that follow from the arguments, for codes of `Bits` bits.
template <int Bits>
struct Geometry {
    explicit Geometry(const WeightOnly& a)
        : groups(divide_up(a.k, a.group_size)),
          chunks_per_group(divide_up(a.group_size, kChunkInputs)),
          chunks(groups * chunks_per_group),
          padded_k(groups * a.group_size),
          group_size(a.group_size),
          tile_bytes(kMetadataBytes + kTileOutputs * a.group_size * Bits / 8) {}

    const int64_t groups, chunks_per_group, chunks, padded_k, group_size, tile_bytes;

    int64_t chunk_begin(int64_t chunk) const {
        return chunk / chunks_per_group * group_size + chunk % chunks_per_group * kChunkInputs;
    }
    int64_t chunk_size(int64_t chunk) const {
        return std::min(kChunkInputs, group_size - chunk % chunks_per_group * kChunkInputs);
    }
    // The tile that holds a chunk of the 16 outputs number `outputs`.
    const uint8_t* tile(const WeightOnly& a, int64_t outputs, int64_t chunk) const {
        return a.weights + (outputs * groups + chunk / chunks_per_group) * tile_bytes;
    }
    // The first code of a chunk, counted from the start of its tile.
    int64_t code_offset(int64_t chunk) const {
        return kMetadataBytes + chunk % chunks_per_group * (kTileOutputs * kChunkInputs * Bits / 8);
    }
};

// Rows are computed in blocks of at most `most` rows, of nearly equal sizes.
struct RowBlocks {
    RowBlocks(int64_t rows, int64_t most) : rows(rows), count(divide_up(rows, most)) {}
    const int64_t rows, count;
    int64_t begin(int64_t block) const { return block * rows / count; }
    int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }
};

}  // namespace convoy

// Exports the functions of a kernel: the activations' preparation, over blocks of rows, and the product, over groups
// of 16 outputs.
#define CONVOY_WEIGHT_ONLY(name, ...)                                                                      \
    CONVOY_EXPORT void convoy_##name##_prepare(const convoy::WeightOnly* a, int64_t begin, int64_t end) {  \
        __VA_ARGS__::prepare(*a, begin, end);                                                              \
    }                                                                                                      \
    CONVOY_EXPORT int64_t convoy_##name##_row_blocks(const convoy::WeightOnly* a) {                        \
        return __VA_ARGS__::row_blocks(*a).count;                                                          \
    }                                                                                                      \
    CONVOY_EXPORT void convoy_##name(const convoy::WeightOnly* a, int64_t begin, int64_t end) {            \
        __VA_ARGS__::multiply(*a, begin, end);                                                             \
    }
