#include "weight_only_avx2.h"

CONVOY_WEIGHT_ONLY(w8a16, convoy::Kernel<convoy::Avx2, convoy::Avx2Bits8>)
