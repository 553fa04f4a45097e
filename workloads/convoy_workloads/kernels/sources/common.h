// What all kernels share: the export macro and the signature of a kernel function.
#pragma once

// GCC 12 warns about the undefined values that its own headers of intrinsics start from.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <cstdint>

#define CONVOY_EXPORT extern "C" __attribute__((visibility("default")))

// A kernel computes the items begin..end-1 of its output. Each item has the same bits for every split of the
// items, so the number of threads changes no result.
using convoy_kernel = void (*)(const void* arguments, int64_t begin, int64_t end);
