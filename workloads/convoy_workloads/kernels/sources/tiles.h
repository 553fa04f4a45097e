// The tile registers of AMX. The build flag CONVOY_EMULATE_TILES replaces them by arrays, so that the code around
// them can be tested on a CPU without AMX.
//
// GCC 12 declares neither that a tile operation reads or writes memory, nor all of the configuration's bytes. So a
// barrier stands before each operation that reads memory, and behind each that writes it: without them, the compiler
// drops the stores that fill the configuration and the buffers.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "common.h"

namespace convoy {

struct alignas(64) TileConfiguration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, int64_t count) {
        row_bytes[tile] = 64;
        rows[tile] = static_cast<uint8_t>(count);
    }
};
static_assert(sizeof(TileConfiguration) == 64);

inline void barrier(const void* read) { asm volatile("" ::"r"(read) : "memory"); }

#ifdef CONVOY_EMULATE_TILES

struct EmulatedTiles {
    TileConfiguration configuration;
    uint8_t bytes[8][16][64];
};
inline thread_local EmulatedTiles tiles;

inline void load_configuration(const TileConfiguration& from) { tiles = {from, {}}; }
inline void release_tiles() {}
inline void zero_tile(int tile) { std::memset(tiles.bytes[tile], 0, sizeof tiles.bytes[tile]); }
inline void load_tile(int tile, const void* from, int64_t stride) {
    for (int row = 0; row < tiles.configuration.rows[tile]; ++row)
        std::memcpy(tiles.bytes[tile][row], static_cast<const uint8_t*>(from) + row * stride, 64);
}
inline void store_tile(int tile, void* to, int64_t stride) {
    for (int row = 0; row < tiles.configuration.rows[tile]; ++row)
        std::memcpy(static_cast<uint8_t*>(to) + row * stride, tiles.bytes[tile][row], 64);
}
inline float bfloat16_in(const uint8_t* row, int place) {
    uint16_t half;
    std::memcpy(&half, row + 2 * place, 2);
    const uint32_t bits = uint32_t{half} << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
// As the processor does: even and odd inputs have sums of their own, which are added at the end.
inline void multiply_tiles(int to, int left, int right) {
    for (int row = 0; row < tiles.configuration.rows[left]; ++row)
        for (int column = 0; column < 16; ++column) {
            float sums[2] = {};
            for (int step = 0; step < 16; ++step)
                for (int odd = 0; odd < 2; ++odd)
                    sums[odd] += bfloat16_in(tiles.bytes[left][row], 2 * step + odd) *
                                 bfloat16_in(tiles.bytes[right][step], 2 * column + odd);
            float value;
            std::memcpy(&value, tiles.bytes[to][row] + 4 * column, 4);
            value += sums[0] + sums[1];
            std::memcpy(tiles.bytes[to][row] + 4 * column, &value, 4);
        }
}

#define CONVOY_TILE_ZERO(tile) convoy::zero_tile(tile)
#define CONVOY_TILE_LOAD(tile, from, stride) convoy::load_tile(tile, from, stride)
#define CONVOY_TILE_STORE(tile, to, stride) convoy::store_tile(tile, to, stride)
#define CONVOY_TILE_MULTIPLY(to, left, right) convoy::multiply_tiles(to, left, right)

#else

inline void load_configuration(const TileConfiguration& from) {
    barrier(&from);
    _tile_loadconfig(&from);
}
inline void release_tiles() { _tile_release(); }

// Macros, because the number of a tile is part of the instruction.
#define CONVOY_TILE_ZERO(tile) _tile_zero(tile)
#define CONVOY_TILE_LOAD(tile, from, stride)   \
    do {                                       \
        convoy::barrier(from);                 \
        _tile_loadd(tile, from, stride);       \
    } while (false)
#define CONVOY_TILE_STORE(tile, to, stride)    \
    do {                                       \
        _tile_stored(tile, to, stride);        \
        convoy::barrier(to);                   \
    } while (false)
#define CONVOY_TILE_MULTIPLY(to, left, right) _tile_dpbf16ps(to, left, right)

#endif

}  // namespace convoy
