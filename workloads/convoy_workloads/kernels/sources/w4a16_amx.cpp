#include "weight_only_amx.h"

CONVOY_WEIGHT_ONLY(w4a16, convoy::AmxKernel<convoy::Avx512Bf16Bits4>)
