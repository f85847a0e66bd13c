#include "worker/kernel/block_sections.h"

#include "attention/spec/dtype.h"

namespace annulus {
namespace {

Section SectionIf(bool has, int64_t offset, int64_t head_bytes) {
  return has ? Section{offset, head_bytes} : Section{};
}

}  // namespace

Sections SectionsOf(const BlockLayout& layout, const Block& block) {
  constexpr int64_t kFloat = 4, kBf16 = 2;
  const BlockKind kind = block.kind;
  const int32_t heads = block.head_end - block.head_begin;
  const int64_t second = layout.SecondOffset(kind, heads), third = layout.ThirdOffset(kind, heads);
  const int64_t fourth = layout.FourthOffset(kind, heads);
  const int64_t fifth = layout.FifthOffset(kind, heads);
  const int64_t element = BytesPerElement(layout.dtype());
  const int64_t dim = layout.head_dim(), value_dim = layout.value_dim();
  const Section dims{0, dim * element};
  switch (kind) {
    case BlockKind::kQ:
    case BlockKind::kDqOut:
      return {{dims}, 1};
    case BlockKind::kKv:
    case BlockKind::kDkvOut:
      return {{dims, {second, value_dim * element}}, 2};
    case BlockKind::kQGrad:
      return {{{dims,
                {second, value_dim * element},
                {third, kFloat},
                {fourth, kFloat},
                SectionIf(layout.lse_rest(kind), fifth, kFloat)}},
              size_t{layout.lse_rest(kind) ? 5u : 4u}};
    case BlockKind::kPartial:
      return {{{{0, value_dim * kFloat}, {second, kFloat}, {third, kFloat}}}, 3};
    case BlockKind::kBf16Partial:
      return {{{{0, value_dim * kBf16}, {second, kFloat}, {third, kFloat}}}, 3};
    case BlockKind::kDq:
      return {{{{0, dim * kFloat}}}, 1};
    case BlockKind::kDkv:
      return {{{{0, dim * kFloat}, {second, value_dim * kFloat}}}, 2};
    case BlockKind::kDSinkOut:
      return {{{{0, kFloat}}}, 1};
    case BlockKind::kDBias:
      return {{{{0, layout.pairs().width * kFloat}}}, 1};
    case BlockKind::kOut: {
      const int64_t out = BytesPerElement(layout.out_dtype());
      return {{{{0, value_dim * out},
                {second, kFloat},
                SectionIf(layout.max_logit(), third, kFloat),
                SectionIf(layout.lse_rest(kind), fourth, kFloat),
                SectionIf(layout.rounds_d_out(), fifth, value_dim * kFloat)}},
              5};
    }
    case BlockKind::kPairs:
      break;
  }
  return {};
}

SectionPlace PlaceOf(const BlockLayout& layout, const BlockView& view, int index) {
  if (view.apart != nullptr) return (*view.apart)[index];
  const BlockKind kind = view.block.kind;
  const int32_t heads = view.block.head_end - view.block.head_begin;
  return {view.data + layout.SectionOffset(kind, heads, index), layout.RowBytes(kind, heads)};
}

BlockRows RowsOf(const BlockLayout& layout, const BlockView& view) {
  BlockRows rows{&view, SectionsOf(layout, view.block), {}};
  for (size_t s = 0; s < rows.sections.size(); ++s)
    rows.places[s] = PlaceOf(layout, view, static_cast<int>(s));
  return rows;
}

}  // namespace annulus
