// bf16 by AVX-512's products of pairs; other types as on AVX-512. Compiled for AVX512-BF16: call
// only after isa_dispatch.h has checked the CPU.
#include "worker/kernel/cpu/isa/bf16_finish-inl.h"
#include "worker/kernel/cpu/isa/bf16_pairs-inl.h"
#include "worker/kernel/cpu/isa/bf16_softmax-inl.h"
#include "worker/kernel/cpu/isa/tile_functions-inl.h"
#include "worker/kernel/cpu/isa/unpacked_bf16_pairs-inl.h"

namespace annulus {
namespace {

constexpr TileIsa MakeAvx512Bf16Isa() {
  TileIsa isa = {};
  isa.name = "avx512bf16";
  isa.lanes = Avx512::kLanes;
  isa.panel = kPanel<Bf16Pairs>;
  isa.tiles = 1;
  isa.parts = 1;
  isa.pack_keys = PackKeyPairs<kPanel<Bf16Pairs>>;
  isa.pack_values = PackValuePairs<kPanel<Bf16Pairs>>;
  isa.pack_queries = PackQueryPairs;
  isa.score = ScorePairs;
  isa.change_scores = ChangeScores<Avx512>;
  isa.softmax = SoftmaxAmx<Whole>;
  isa.drop_weights = DropWeights<Avx512>;
  isa.accumulate = AccumulatePairs;
  isa.accumulate_row = AccumulateRowPairs;
  isa.attend_rows = AttendUnpackedPairs;
  isa.unpacked_pairs = true;
  isa.few_slots = kFewSlots;
  isa.gradients = &kPairGradients;
  isa.finish_row = FinishRowAmx;
  isa.fp32 = isa.fp16 = &kAvx512Isa;
  return isa;
}

}  // namespace

const TileIsa kAvx512Bf16Isa = MakeAvx512Bf16Isa();

}  // namespace annulus
