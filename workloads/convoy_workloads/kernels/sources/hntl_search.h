// The steps of a search, over the primitives of one instruction set:
//   Primitives::dot<TILE, QUERIES>   int16 x int16 -> int32 products of a matrix tile with queries
//   Primitives::scan<QUERIES>        scores of a grain's blocks, passed to a sink where they may enter a pool
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "hntl.h"

namespace hntl {

constexpr int64_t LANES = 32;          // rows of a block, and partial sums of a distance
constexpr int64_t TILE = 64;           // most outputs of a matrix tile
constexpr int64_t GROUP = 4;           // queries that scan a grain together
constexpr int64_t CHUNK = 32;          // queries that share the reads of grains
constexpr float LARGEST = 32767.0f;    // largest component of a quantised input
constexpr float LONGEST = 65000.0f;    // longest quantised input, so that no product with a column overflows
constexpr float UNIT = 1.0f / 16384.0f;  // value of one step of a matrix entry
constexpr float SMALLEST = 1e-30f;     // an input whose components are all smaller counts as zero

inline int64_t rounded_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Adds the lanes in halves, as the numpy twin does.
inline float sum_of_lanes(float* lanes) {
    for (int64_t half = LANES / 2; half; half /= 2)
        for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

inline float squared_distance(const float* a, const float* b, int64_t size) {
    alignas(64) float lanes[LANES] = {};
    int64_t at = 0;
    for (; at + LANES <= size; at += LANES)
        for (int64_t i = 0; i < LANES; ++i) {
            const float difference = a[at + i] - b[at + i];
            lanes[i] += difference * difference;
        }
    for (int64_t i = 0; at + i < size; ++i) {
        const float difference = a[at + i] - b[at + i];
        lanes[i] += difference * difference;
    }
    return sum_of_lanes(lanes);
}

inline float inner_product(const float* a, const float* b, int64_t size) {
    alignas(64) float lanes[LANES] = {};
    int64_t at = 0;
    for (; at + LANES <= size; at += LANES)
        for (int64_t i = 0; i < LANES; ++i) lanes[i] += a[at + i] * b[at + i];
    for (int64_t i = 0; at + i < size; ++i) lanes[i] += a[at + i] * b[at + i];
    return sum_of_lanes(lanes);
}

inline float distance(int64_t metric, const float* a, const float* b, int64_t size) {
    return metric == 0 ? squared_distance(a, b, size) : 0.0f - inner_product(a, b, size);
}

inline float largest_magnitude(const float* values, int64_t size) {
    alignas(64) float lanes[LANES] = {};
    int64_t at = 0;
    const auto enter = [&lanes](int64_t lane, float value) {
        const float magnitude = std::fabs(value);
        lanes[lane] = lanes[lane] < magnitude ? magnitude : lanes[lane];
    };
    for (; at + LANES <= size; at += LANES)
        for (int64_t i = 0; i < LANES; ++i) enter(i, values[at + i]);
    for (int64_t i = 0; at + i < size; ++i) enter(i, values[at + i]);
    float largest = 0.0f;
    for (int64_t i = 0; i < LANES; ++i) largest = std::max(largest, lanes[i]);
    return largest;
}

// Rounds `values` to int16 with the largest scale that the limits above allow. Returns the inverse scale.
inline float quantise(const float* values, int64_t size, float squared_length, int16_t* out) {
    const float largest = largest_magnitude(values, size);
    if (!(largest > SMALLEST)) {
        std::memset(out, 0, static_cast<size_t>(size) * sizeof(int16_t));
        return 0.0f;
    }
    const float scale = std::min(LARGEST / largest, LONGEST / std::sqrt(squared_length));
    for (int64_t i = 0; i < size; ++i) out[i] = static_cast<int16_t>(static_cast<int32_t>(std::rint(values[i] * scale)));
    return 1.0f / scale;
}

// A key orders candidates by score, then by row.
inline uint64_t key_of(float score, uint32_t row) {
    uint32_t bits;
    std::memcpy(&bits, &score, sizeof(bits));
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(bits) << 32 | row;
}

inline float score_of(uint64_t key) {
    uint32_t bits = static_cast<uint32_t>(key >> 32);
    bits = bits & 0x80000000u ? bits & 0x7fffffffu : ~bits;
    float score;
    std::memcpy(&score, &bits, sizeof(score));
    return score;
}

// The best candidates of a query so far. `threshold` is the worst score that may still enter.
struct Pool {
    uint64_t* keys;
    int64_t size;
    int64_t capacity;
    int64_t wanted;
    float threshold;

    void push(float score, int64_t row) { keys[size++] = key_of(score, static_cast<uint32_t>(row)); }

    // Makes room for one more block.
    void reserve() {
        if (size + LANES > capacity) shrink();
    }

    void shrink() {
        if (size <= wanted) return;
        std::nth_element(keys, keys + wanted - 1, keys + size);
        size = wanted;
        threshold = score_of(keys[wanted - 1]);
    }
};

// Puts the rows of a block, whose bits are set in `entering`, into a pool.
inline void enter(const float* scores, uint32_t entering, int64_t first_row, Pool& pool) {
    pool.reserve();
    for (; entering; entering &= entering - 1) {
        const int lane = __builtin_ctz(entering);
        if (scores[lane] <= pool.threshold) pool.push(scores[lane], first_row + lane);
    }
}

// A query as a grain sees it.
struct Local {
    alignas(64) int32_t products[TILE];
    int32_t codes[TILE / 4];  // four int8 coordinates each
    int32_t start;            // what the sum of products begins with, as the rows' codes are offset by 128
    float factor;
    float constant;
    Pool* pool;
};

// A grain's part of the index.
struct Grain {
    const uint8_t* codes;
    const float* biases;
    const uint32_t* allowed;
    int64_t blocks;
    int64_t quads;  // groups of four coordinates
    int64_t first;  // row of the first lane
};

struct Candidate {
    float distance;
    uint32_t order;
    int64_t row;

    bool operator<(const Candidate& other) const {
        return distance < other.distance || (distance == other.distance && order < other.order);
    }
};

// The best results so far, a heap with the worst at its top.
class Results {
public:
    Results(Candidate* place, int64_t wanted) : heap_(place), wanted_(wanted) {}

    void offer(const Candidate& one) {
        if (size_ < wanted_) {
            heap_[size_++] = one;
            std::push_heap(heap_, heap_ + size_);
        } else if (one < heap_[0]) {
            std::pop_heap(heap_, heap_ + size_);
            heap_[size_ - 1] = one;
            std::push_heap(heap_, heap_ + size_);
        }
    }

    void write(float* distances, int64_t* rows) {
        std::sort_heap(heap_, heap_ + size_);
        for (int64_t i = 0; i < wanted_; ++i) {
            distances[i] = i < size_ ? heap_[i].distance : std::numeric_limits<float>::infinity();
            rows[i] = i < size_ ? heap_[i].row : -1;
        }
    }

private:
    Candidate* heap_;
    int64_t wanted_;
    int64_t size_ = 0;
};

inline void prefetch(const float* vector, int64_t size) {
    const char* bytes = reinterpret_cast<const char*>(vector);
    const int64_t length = std::min<int64_t>(size * static_cast<int64_t>(sizeof(float)), 4096);
    for (int64_t i = 0; i < length; i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

// Computes exact distances to chosen rows, for the items begin..end-1. A chunk of queries shares the reads of a
// tile of rows.
inline void search_exactly(const HntlExact& exact, int64_t begin, int64_t end) {
    const int64_t size = exact.dimension, wanted = exact.results;
    std::vector<Candidate> places(static_cast<size_t>(std::min(CHUNK, end - begin) * wanted));
    for (int64_t first = begin; first < end; first += CHUNK) {
        const int64_t items = std::min(CHUNK, end - first);
        std::vector<Results> results;
        for (int64_t i = 0; i < items; ++i) results.emplace_back(&places[static_cast<size_t>(i * wanted)], wanted);
        for (int64_t tile = 0; tile < exact.count; tile += LANES) {
            const int64_t last = std::min(tile + LANES, exact.count);
            for (int64_t i = 0; i < items; ++i)
                for (int64_t at = tile; at < last; ++at) {
                    const int64_t row = exact.chosen ? exact.chosen[at] : at;
                    const float found =
                        distance(exact.metric, exact.queries + (first + i) * size, exact.vectors + row * size, size);
                    results[static_cast<size_t>(i)].offer({found, exact.order[row], row});
                }
        }
        for (int64_t i = 0; i < items; ++i)
            results[static_cast<size_t>(i)].write(exact.distances + (first + i) * wanted,
                                                  exact.rows + (first + i) * wanted);
    }
}

template <class Primitives>
class Search {
public:
    // `items`: queries of the run. Pools may be large, so a few queries get no more than they need.
    Search(const HntlScan& scan, int64_t items)
        : scan_(scan),
          index_(*scan.index),
          pairs_((index_.dimension + 1) / 2),
          lanes_(rounded_up(index_.dims, 16)),
          grain_lanes_(rounded_up(index_.grains, 16)),
          probes_(std::min(scan.probes, index_.grains)),
          wanted_(std::min(scan.candidates, index_.starts[index_.grains])),
          capacity_(std::min(2 * wanted_ + LANES, index_.starts[index_.grains] + LANES)),
          centred_(rounded_up(index_.dimension, 2)),
          inputs_(CHUNK * 2 * pairs_),
          products_(GROUP * rounded_up(index_.frame, TILE)),
          coordinates_(CHUNK * index_.frame),
          to_grains_(grain_lanes_),
          keys_(std::min(CHUNK, items) * capacity_),
          best_(scan.results) {
        pairs_of_grains_.reserve(static_cast<size_t>(CHUNK * probes_));
        nearest_.reserve(static_cast<size_t>(index_.grains));
    }

    void run(int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; at += CHUNK) chunk(at, std::min(at + CHUNK, end));
    }

private:
    struct Probe {
        uint32_t round;  // 0 for the nearest grain of the query, else 1
        uint32_t grain;
        uint32_t query;  // within the chunk
        float distance;
    };

    void chunk(int64_t begin, int64_t end) {
        const int64_t count = end - begin;
        for (int64_t i = 0; i < count; ++i) {
            pools_[i] = {&keys_[i * capacity_], 0, capacity_, wanted_, std::numeric_limits<float>::infinity()};
            lengths_[i] = centre(scan_.queries + (begin + i) * index_.dimension, i);
        }
        for (int64_t i = 0; i < count; i += GROUP) rotate(i, std::min(GROUP, count - i));
        pairs_of_grains_.clear();
        for (int64_t i = 0; i < count; ++i) scan_.scanned[begin + i] = rank(i);
        if (count > 1)
            // Queries that probe the same grain read it together. Each query's nearest grain comes first,
            // because it gives the pool a tight threshold.
            std::sort(pairs_of_grains_.begin(), pairs_of_grains_.end(), [](const Probe& a, const Probe& b) {
                if (a.round != b.round) return a.round < b.round;
                return a.grain != b.grain ? a.grain < b.grain : a.query < b.query;
            });
        const size_t all = pairs_of_grains_.size();
        for (size_t at = 0; at < all;) {
            size_t last = at + 1;
            while (last < all && last - at < GROUP && pairs_of_grains_[last].grain == pairs_of_grains_[at].grain &&
                   pairs_of_grains_[last].round == pairs_of_grains_[at].round)
                ++last;
            probe(&pairs_of_grains_[at], static_cast<int64_t>(last - at));
            at = last;
        }
        for (int64_t i = 0; i < count; ++i) rerank(begin + i, pools_[i]);
    }

    // Subtracts the mean and rounds the query. Returns the squared length.
    float centre(const float* query, int64_t i) {
        const int64_t size = index_.dimension;
        alignas(64) float lanes[LANES] = {};
        float* values = index_.rotation ? centred_.data() : &coordinates_[i * index_.frame];
        for (int64_t j = 0; j < size; ++j) values[j] = query[j] - index_.mean[j];
        int64_t at = 0;
        for (; at + LANES <= size; at += LANES)
            for (int64_t j = 0; j < LANES; ++j) lanes[j] += values[at + j] * values[at + j];
        for (int64_t j = 0; at + j < size; ++j) lanes[j] += values[at + j] * values[at + j];
        const float squared = sum_of_lanes(lanes);
        if (index_.rotation) {
            int16_t* out = &inputs_[i * 2 * pairs_];
            inverse_[i] = quantise(values, size, squared, out) * UNIT;
            if (size & 1) out[size] = 0;
        } else {
            for (int64_t j = size; j < index_.frame; ++j) values[j] = 0.0f;
        }
        return squared;
    }

    // Turns queries into the frame, then rounds their coordinates for the grains.
    void rotate(int64_t first, int64_t count) {
        const int64_t frame = index_.frame;
        const int64_t stride = rounded_up(frame, TILE);
        if (index_.rotation) {
            const int16_t* inputs[GROUP] = {};
            int32_t* outputs[GROUP] = {};
            const int16_t* tile = index_.rotation;
            for (int64_t at = 0; at < frame; at += TILE) {
                const int64_t width = std::min(TILE, frame - at);
                for (int64_t i = 0; i < count; ++i) {
                    inputs[i] = &inputs_[(first + i) * 2 * pairs_];
                    outputs[i] = &products_[i * stride + at];
                }
                dot(tile, pairs_, width, inputs, outputs, count);
                tile += pairs_ * width * 2;
            }
            for (int64_t i = 0; i < count; ++i)
                for (int64_t j = 0; j < frame; ++j)
                    coordinates_[(first + i) * frame + j] =
                        static_cast<float>(products_[i * stride + j]) * inverse_[first + i];
        }
        for (int64_t i = first; i < first + count; ++i) {
            const float* values = &coordinates_[i * frame];
            alignas(64) float lanes[LANES] = {};
            for (int64_t j = 0; j < frame; ++j) lanes[j % LANES] += values[j] * values[j];
            local_inverse_[i] = quantise(values, frame, sum_of_lanes(lanes), inputs_of_grains(i)) * UNIT;
        }
    }

    int16_t* inputs_of_grains(int64_t i) { return &grain_inputs_[static_cast<size_t>(i * index_.frame)]; }

    // Lists the nearest grains of a query. Returns their number of rows.
    int64_t rank(int64_t i) {
        const float* values = &coordinates_[i * index_.frame];
        constexpr int64_t STEP = 64;
        for (int64_t at = 0; at < grain_lanes_; at += STEP) {
            const int64_t width = std::min(STEP, grain_lanes_ - at);
            alignas(64) float sums[STEP] = {};
            const float* column = index_.centroids + at;
            if (width == STEP)
                for (int64_t j = 0; j < index_.frame; ++j, column += grain_lanes_)
                    for (int64_t g = 0; g < STEP; ++g) sums[g] += values[j] * column[g];
            else
                for (int64_t j = 0; j < index_.frame; ++j, column += grain_lanes_)
                    for (int64_t t = 0; t < width; t += 16)
                        for (int64_t g = 0; g < 16; ++g) sums[t + g] += values[j] * column[t + g];
            for (int64_t g = 0; g < width; ++g)
                to_grains_[at + g] = (scan_.centroid_norms[at + g] + lengths_[i]) - 2.0f * sums[g];
        }
        nearest_.clear();
        for (int64_t g = 0; g < index_.grains; ++g)
            if (to_grains_[g] < std::numeric_limits<float>::infinity())
                nearest_.push_back(key_of(to_grains_[g], static_cast<uint32_t>(g)));
        const int64_t found = std::min<int64_t>(probes_, static_cast<int64_t>(nearest_.size()));
        std::partial_sort(nearest_.begin(), nearest_.begin() + found, nearest_.end());
        int64_t rows = 0;
        for (int64_t r = 0; r < found; ++r) {
            const uint32_t grain = static_cast<uint32_t>(nearest_[r]);
            pairs_of_grains_.push_back({r ? 1u : 0u, grain, static_cast<uint32_t>(i), to_grains_[grain]});
            rows += index_.starts[grain + 1] - index_.starts[grain];
        }
        return rows;
    }

    // Projects up to GROUP queries into a grain, and scans the grain for them.
    void probe(const Probe* probes, int64_t count) {
        const int64_t grain = probes[0].grain;
        const int64_t pairs = index_.frame / 2;
        const int16_t* inputs[GROUP] = {};
        int32_t* outputs[GROUP] = {};
        for (int64_t i = 0; i < count; ++i) {
            inputs[i] = inputs_of_grains(probes[i].query);
            outputs[i] = locals_[i].products;
        }
        dot(index_.bases + grain * pairs * lanes_ * 2, pairs, lanes_, inputs, outputs, count);
        for (int64_t i = 0; i < count; ++i) localise(locals_[i], probes[i]);
        const int64_t first = index_.blocks[grain];
        const int64_t blocks = index_.blocks[grain + 1] - first;
        const Grain view{index_.codes + first * index_.dims * LANES, index_.biases + first * LANES,
                         scan_.allowed + first, blocks, index_.dims / 4, index_.starts[grain]};
        switch (count) {
            case 1: Primitives::template scan<1>(view, locals_); break;
            case 2: Primitives::template scan<2>(view, locals_); break;
            case 3: Primitives::template scan<3>(view, locals_); break;
            default: Primitives::template scan<4>(view, locals_); break;
        }
    }

    // Rounds a query's coordinates in a grain to int8.
    void localise(Local& local, const Probe& probe) {
        const float* offsets = index_.offsets + probe.grain * lanes_;
        const float inverse = local_inverse_[probe.query];
        alignas(64) float values[TILE];
        for (int64_t j = 0; j < index_.dims; ++j)
            values[j] = static_cast<float>(local.products[j]) * inverse - offsets[j];
        const float largest = largest_magnitude(values, index_.dims);
        const bool zero = !(largest > SMALLEST);
        const float scale = zero ? 0.0f : 127.0f / largest;
        int8_t codes[TILE] = {};
        int32_t sum = 0;
        for (int64_t j = 0; j < index_.dims; ++j) {
            const int32_t code = static_cast<int32_t>(std::rint(values[j] * scale));
            codes[j] = static_cast<int8_t>(code);
            sum += code;
        }
        static_assert(sizeof(codes) == sizeof(local.codes), "all codes are copied");
        std::memcpy(local.codes, codes, sizeof(codes));
        local.start = -128 * sum;
        local.factor = zero ? 0.0f : (-2.0f / scale) * index_.scales[probe.grain];
        local.constant = probe.distance;
        local.pool = &pools_[probe.query];
    }

    void dot(const int16_t* matrix, int64_t pairs, int64_t width, const int16_t* const* inputs,
             int32_t* const* outputs, int64_t count) {
        switch (width / 16) {
            case 1: dots<1>(matrix, pairs, inputs, outputs, count); break;
            case 2: dots<2>(matrix, pairs, inputs, outputs, count); break;
            case 3: dots<3>(matrix, pairs, inputs, outputs, count); break;
            default: dots<4>(matrix, pairs, inputs, outputs, count); break;
        }
    }

    template <int WIDTH>
    void dots(const int16_t* matrix, int64_t pairs, const int16_t* const* inputs, int32_t* const* outputs,
              int64_t count) {
        switch (count) {
            case 1: Primitives::template dot<WIDTH, 1>(matrix, pairs, inputs, outputs); break;
            case 2: Primitives::template dot<WIDTH, 2>(matrix, pairs, inputs, outputs); break;
            case 3: Primitives::template dot<WIDTH, 3>(matrix, pairs, inputs, outputs); break;
            default: Primitives::template dot<WIDTH, 4>(matrix, pairs, inputs, outputs); break;
        }
    }

    // Computes the exact distances of the pool.
    void rerank(int64_t item, Pool& pool) {
        constexpr int64_t AHEAD = 4;
        const int64_t size = index_.dimension;
        const float* query = scan_.queries + item * size;
        pool.shrink();
        const auto row = [&pool](int64_t i) { return static_cast<int64_t>(static_cast<uint32_t>(pool.keys[i])); };
        for (int64_t i = 0; i < std::min(AHEAD, pool.size); ++i) prefetch(index_.vectors + row(i) * size, size);
        Results results(best_.data(), scan_.results);
        for (int64_t i = 0; i < pool.size; ++i) {
            if (i + AHEAD < pool.size) prefetch(index_.vectors + row(i + AHEAD) * size, size);
            const float* vector = index_.vectors + row(i) * size;
            results.offer({distance(index_.metric, query, vector, size), index_.order[row(i)], row(i)});
        }
        results.write(scan_.distances + item * scan_.results, scan_.rows + item * scan_.results);
    }

    const HntlScan& scan_;
    const HntlIndex& index_;
    const int64_t pairs_, lanes_, grain_lanes_, probes_, wanted_, capacity_;
    std::vector<float> centred_;
    std::vector<int16_t> inputs_;
    std::vector<int32_t> products_;
    std::vector<float> coordinates_;
    std::vector<int16_t> grain_inputs_ = std::vector<int16_t>(static_cast<size_t>(CHUNK * index_.frame));
    std::vector<float> to_grains_;
    std::vector<uint64_t> keys_;
    std::vector<Candidate> best_;
    std::vector<Probe> pairs_of_grains_;
    std::vector<uint64_t> nearest_;
    Pool pools_[CHUNK];
    Local locals_[GROUP];
    float lengths_[CHUNK];
    float inverse_[CHUNK];
    float local_inverse_[CHUNK];
};

template <class Primitives>
void run_scan(const HntlScan& scan, int64_t begin, int64_t end) {
    try {
        Search<Primitives>(scan, end - begin).run(begin, end);
    } catch (const std::bad_alloc&) {
        std::fill(scan.scanned + begin, scan.scanned + end, -1);
    }
}

inline void run_exact(const HntlExact& exact, int64_t begin, int64_t end) {
    try {
        search_exactly(exact, begin, end);
    } catch (const std::bad_alloc&) {
        std::fill(exact.rows + begin * exact.results, exact.rows + end * exact.results, -2);
    }
}

}  // namespace hntl
