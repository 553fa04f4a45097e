// The arguments of the kernels of HNTL vector search. hntl.py describes each field and holds the numpy twin.
//
// All steps have defined bits: integer products, and fp32 sums in a fixed order without fused multiply-add.
// So every instruction set, every number of threads and the numpy twin give the same results.
#pragma once

#include "common.h"

struct HntlIndex {
    int64_t dimension;  // inputs of a vector
    int64_t frame;      // global coordinates, a multiple of 16
    int64_t dims;       // local coordinates, a multiple of 4, at most 64
    int64_t grains;
    int64_t metric;  // 0: squared Euclidean distance; 1: negative inner product
    const float* mean;            // [dimension]
    const int16_t* rotation;      // [tiles][ceil(dimension / 2)][outputs of the tile][2]; null: no rotation
    const float* centroids;       // [frame][grains rounded up to 16]
    const int16_t* bases;         // [grains][frame / 2][dims rounded up to 16][2]
    const float* offsets;         // [grains][dims rounded up to 16]
    const float* scales;          // [grains]
    const int64_t* starts;        // [grains + 1], first row of each grain
    const int64_t* blocks;        // [grains + 1], first block of each grain
    const uint8_t* codes;         // [blocks][dims / 4][32][4]
    const float* biases;          // [blocks][32]
    const float* vectors;         // [rows][dimension]
    const uint32_t* order;        // [rows], rank of each row's id
};

struct HntlScan {
    const HntlIndex* index;
    const float* centroid_norms;  // [grains rounded up to 16]; infinite: the grain is not probed
    const uint32_t* allowed;      // [blocks], a bit for each row that may be returned
    const float* queries;         // [items][dimension]
    int64_t probes;
    int64_t candidates;
    int64_t results;
    float* distances;  // [items][results], infinite where there is no result
    int64_t* rows;     // [items][results], -1 where there is no result
    int64_t* scanned;  // [items], rows of the probed grains; -1 if there was no memory
};

struct HntlExact {
    int64_t dimension;
    int64_t metric;
    int64_t count;          // rows to compare
    const int64_t* chosen;  // [count], the rows; null: all rows from 0 to count - 1
    const float* vectors;   // [rows][dimension]
    const uint32_t* order;  // [rows]
    const float* queries;   // [items][dimension]
    int64_t results;
    float* distances;  // [items][results]
    int64_t* rows;     // [items][results]
};
