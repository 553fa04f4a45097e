#include "weight_only_amx.h"

CONVOY_WEIGHT_ONLY(w8a16, convoy::AmxKernel<convoy::Avx512Bf16Bits8>)
