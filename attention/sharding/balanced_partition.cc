#include "attention/sharding/balanced_partition.h"

#include <algorithm>
#include <numeric>

#include "attention/mask/mask.h"

namespace annulus {
namespace {

// Measures lengths as fractions of all queries and of all keys; the larger fraction counts.
class Shares {
 public:
  Shares(const AttentionSpec& spec, int64_t units)
      : units_(units), q_rows_(spec.q_rows()), k_rows_(spec.kv_rows()) {}

  // The number of pieces, of at most one unit each, that some rows need; at least one.
  int64_t Pieces(int64_t q, int64_t k) const {
    return std::max<int64_t>(1, std::max(Units(q, q_rows_), Units(k, k_rows_)));
  }

 private:
  int64_t Units(int64_t rows, int64_t all) const {
    return all == 0 ? 0
                    : static_cast<int64_t>((static_cast<__int128>(rows) * units_ + all - 1) / all);
  }

  int64_t units_, q_rows_, k_rows_;
};

Interval Part(Interval rows, int64_t i, int64_t parts) {
  return {rows.begin + rows.length() * i / parts, rows.begin + rows.length() * (i + 1) / parts};
}

}  // namespace

std::vector<AreaBlock> PartitionByArea(const AttentionSpec& spec, int32_t world_size) {
  const Shares shares(spec, kBlocksPerRank * world_size);
  std::vector<AreaBlock> blocks;
  AreaBlock open;  // Collects short sequences.
  const auto close = [&] {
    if (open.q.length() + open.k.length() > 0) blocks.push_back(open);
    open.q.begin = open.q.end;
    open.k.begin = open.k.end;
  };
  for (const Sequence& sequence : spec.sequences) {
    const Interval q{open.q.end, open.q.end + sequence.q_len};
    const Interval k{open.k.end, open.k.end + sequence.kv_len};
    const int64_t pieces = shares.Pieces(q.length(), k.length());
    if (shares.Pieces(q.end - open.q.begin, k.end - open.k.begin) > 1) close();
    open.q.end = q.end;
    open.k.end = k.end;
    if (pieces == 1) continue;
    for (int64_t i = 0; i < pieces; ++i) {
      const AreaBlock block{Part(q, i, pieces), Part(k, i, pieces), 0};
      if (block.q.length() + block.k.length() > 0) blocks.push_back(block);
    }
    open.q.begin = q.end;
    open.k.begin = k.end;
  }
  close();
  const MaskMap mask(spec);
  const Interval keys{0, spec.kv_rows()};
  for (AreaBlock& block : blocks) {
    mask.ForEachClass(0, spec.q_heads, [&](int32_t head, int32_t count) {
      block.area += mask.Area(head, block.q, keys) * count;
    });
  }
  return blocks;
}

std::vector<int32_t> AssignByArea(const std::vector<AreaBlock>& blocks, int32_t world_size) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].area > blocks[b].area; });
  // Half as many blocks again as the mean: this keeps rows, and so memory, about even.
  const size_t room = (3 * blocks.size() / 2 + world_size - 1) / world_size + 1;
  std::vector<size_t> count(world_size, 0);
  std::vector<int64_t> area(world_size, 0), rows(world_size, 0);
  std::vector<int32_t> rank_of(blocks.size());
  for (const size_t i : order) {
    int32_t least = -1;
    for (int32_t rank = 0; rank < world_size; ++rank) {
      if (count[rank] == room) continue;
      if (least < 0 || area[rank] < area[least] ||
          (area[rank] == area[least] && rows[rank] < rows[least])) {
        least = rank;
      }
    }
    rank_of[i] = least;
    ++count[least];
    area[least] += blocks[i].area;
    rows[least] += blocks[i].q.length() + blocks[i].k.length();
  }
  return rank_of;
}

}  // namespace annulus
