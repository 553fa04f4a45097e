#include "weight_only_avx512.h"

CONVOY_WEIGHT_ONLY(w4a16, convoy::Kernel<convoy::Avx512, convoy::Avx512Bits4>)
