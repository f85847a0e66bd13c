#ifndef ANNULUS_TESTS_WORKER_KERNEL_BLOCK_NUMBERS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_BLOCK_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/spec/dtype.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/block_sections.h"

namespace annulus {

// A block as numbers. Sections: 0 is q, k, sum, out, dq or dk; 1 is v, d_out, max, lse or dv; 2 is
// weight, max_logit or lse; 3 is delta, or lse_rest of kOut; 4 is lse_rest of kQGrad or d_out of
// kOut.
class BlockNumbers {
 public:
  BlockNumbers(const BlockLayout& layout, const BlockView& view) : layout_(layout), view_(view) {}

  std::vector<double> Read(int64_t row, int32_t head, int section) const {
    std::vector<float> floats(Count(section));
    ConvertToFp32(Type(section), At(row, head, section), floats.size(), floats.data());
    return {floats.begin(), floats.end()};
  }
  void Write(int64_t row, int32_t head, int section, const std::vector<double>& values) const {
    const std::vector<float> floats(values.begin(), values.end());
    ConvertFromFp32(Type(section), floats.data(), floats.size(), At(row, head, section));
  }
  const Block& block() const { return view_.block; }
  int sections() const {
    switch (block().kind) {
      case BlockKind::kQ:
      case BlockKind::kDq:
      case BlockKind::kDqOut:
      case BlockKind::kDSinkOut:
      case BlockKind::kDBias:
        return 1;
      case BlockKind::kPartial:
      case BlockKind::kBf16Partial:
        return 3;
      case BlockKind::kQGrad:
        return 4;
      default:
        return 2;
    }
  }

 private:
  DataType Type(int section) const {
    const BlockKind kind = block().kind;
    if (kind == BlockKind::kQ || kind == BlockKind::kKv || kind == BlockKind::kDqOut ||
        kind == BlockKind::kDkvOut || (kind == BlockKind::kQGrad && section < 2)) {
      return layout_.dtype();
    }
    if (kind == BlockKind::kBf16Partial && section == 0) return DataType::kBf16;
    if (kind == BlockKind::kOut && section == 0) return layout_.out_dtype();
    return DataType::kFp32;
  }
  size_t Count(int section) const {
    const BlockKind kind = block().kind;
    if (kind == BlockKind::kDBias) return layout_.pairs().width;
    if (kind == BlockKind::kOut && section == 4) return layout_.value_dim();
    if (kind == BlockKind::kPartial || kind == BlockKind::kBf16Partial || kind == BlockKind::kOut)
      return section == 0 ? layout_.value_dim() : 1;
    if (section >= 2 || kind == BlockKind::kDSinkOut) return 1;
    return section == 0 ? layout_.head_dim() : layout_.value_dim();
  }
  std::byte* At(int64_t row, int32_t head, int section) const {
    const Block& b = block();
    const SectionPlace place = PlaceOf(layout_, view_, section);
    const int64_t head_bytes =
        static_cast<int64_t>(Count(section)) * BytesPerElement(Type(section));
    return place.first + (row - b.row_begin) * place.stride + (head - b.head_begin) * head_bytes;
  }

  const BlockLayout& layout_;
  const BlockView& view_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_BLOCK_NUMBERS_H_
