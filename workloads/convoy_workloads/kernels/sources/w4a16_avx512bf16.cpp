#include "weight_only_avx512bf16.h"

CONVOY_WEIGHT_ONLY(w4a16, convoy::Kernel<convoy::Avx512Bf16, convoy::Avx512Bf16Bits4>)
