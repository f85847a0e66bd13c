// The sources of the AMX path with emulated tiles, under separate names.

#include "tests/worker/kernel/emulated_tiles.h"

#define kAmxBf16x3Isa kEmulatedAmxBf16x3Isa
#define kAmxFp16Isa kEmulatedAmxFp16Isa
#define kAmxIsa kEmulatedAmxIsa

#include "worker/kernel/cpu/amx/tile_amx.cc"
#include "worker/kernel/cpu/amx/tile_amx_bf16x3.cc"
#include "worker/kernel/cpu/amx/tile_amx_fp16.cc"
