#include "attention/sharding/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/mask/mask.h"
#include "attention/spec/interval.h"
#include "base/error.h"

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

namespace {

using RangesOfRank = std::vector<std::vector<RowRange>>;

// Keeps ranges canonical: extends the last plain range if `rows` continue it.
void Append(Interval rows, std::vector<RowRange>* ranges) {
  const int64_t count = rows.length();
  if (count == 0) return;
  if (!ranges->empty() && ranges->back().count == 1 &&
      ranges->back().begin + ranges->back().block == rows.begin) {
    ranges->back().block += count;
    ranges->back().stride = ranges->back().block;
    return;
  }
  ranges->push_back({rows.begin, count, count, 1});
}

// Cuts `piece` into `parts` of whole granules, counted from its begin. The first (granules mod
// parts) parts get one granule more.
std::vector<Interval> Cut(Interval piece, int64_t parts, int64_t granule) {
  const int64_t rows = piece.length();
  const int64_t units = rows / granule + (rows % granule != 0 ? 1 : 0);
  const int64_t base = units / parts, more = units % parts;
  std::vector<Interval> cut;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = i * base + std::min(i, more);
    const int64_t last = first + base + (i < more ? 1 : 0);
    cut.push_back({piece.begin + std::min(rows, first * granule),
                   piece.begin + std::min(rows, last * granule)});
  }
  return cut;
}

void Contiguous(Interval piece, const PlanOptions& options, RangesOfRank* out) {
  const std::vector<Interval> blocks = Cut(piece, options.world_size, options.granule);
  for (int32_t rank = 0; rank < options.world_size; ++rank) Append(blocks[rank], &(*out)[rank]);
}

// Rank r gets the r-th block from the head and the r-th from the tail. Under a causal mask this
// pairs blocks of little work with blocks of much.
void Zigzag(Interval piece, const PlanOptions& options, RangesOfRank* out) {
  const int32_t world = options.world_size;
  const std::vector<Interval> blocks = Cut(piece, int64_t{2} * world, options.granule);
  for (int32_t rank = 0; rank < world; ++rank) {
    Append(blocks[rank], &(*out)[rank]);
    Append(blocks[2 * world - 1 - rank], &(*out)[rank]);
  }
}

// The last stripe may be shorter.
void Striped(Interval piece, const PlanOptions& options, RangesOfRank* out) {
  const int64_t rows = piece.length();
  const int64_t full = rows / options.stripe, world = options.world_size;
  if (world == 1) return Append(piece, &(*out)[0]);
  for (int64_t rank = 0; rank < world; ++rank) {
    const int64_t count = full / world + (rank < full % world ? 1 : 0);
    if (count == 0) continue;
    (*out)[rank].push_back(
        {piece.begin + rank * options.stripe, options.stripe, world * options.stripe, count});
  }
  Append({piece.begin + full * options.stripe, piece.end}, &(*out)[full % world]);
}

// The rows of a rank run sequence by sequence.
void ZigzagPerSequence(const std::vector<int64_t>& lengths, const PlanOptions& options,
                       RangesOfRank* out) {
  int64_t begin = 0;
  PlanOptions unrounded = options;
  // Multiples counted from a sequence's begin are not multiples of the packed tensor.
  unrounded.granule = 1;
  for (const int64_t length : lengths) {
    Zigzag({begin, begin + length}, unrounded, out);
    begin += length;
  }
}

// Cuts both tensors together, by the work of their blocks.
void ByArea(const AttentionSpec& spec, const PlanOptions& options, RangesOfRank* q,
            RangesOfRank* kv) {
  const std::vector<AreaBlock> blocks = PartitionByArea(spec, options.world_size);
  const std::vector<int32_t> ranks = AssignByArea(blocks, options.world_size);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Append(blocks[i].q, &(*q)[ranks[i]]);
    Append(blocks[i].k, &(*kv)[ranks[i]]);
  }
}

RangesOfRank Deal(const std::vector<int64_t>& lengths, const PlanOptions& options) {
  RangesOfRank out(options.world_size);
  int64_t rows = 0;
  for (const int64_t length : lengths) rows += length;
  switch (options.layout) {
    case Layout::kContiguous:
      Contiguous({0, rows}, options, &out);
      break;
    case Layout::kZigzag:
      Zigzag({0, rows}, options, &out);
      break;
    case Layout::kStriped:
      Striped({0, rows}, options, &out);
      break;
    default:
      ZigzagPerSequence(lengths, options, &out);
  }
  return out;
}

// Moves each cut down to a multiple of the granule, except the end of the tensor. Sequences may end
// at any row.
void RoundCuts(int64_t rows, int64_t granule, RangesOfRank* ranges_of_rank) {
  const auto round = [&](int64_t cut) { return cut == rows ? rows : cut - cut % granule; };
  for (std::vector<RowRange>& ranges : *ranges_of_rank) {
    std::vector<RowRange> rounded;
    for (const RowRange& range : ranges) {
      Append({round(range.begin), round(range.begin + range.block)}, &rounded);
    }
    ranges = std::move(rounded);
  }
}

absl::Status CheckOptions(const PlanOptions& options) {
  constexpr char kReason[] = "INVALID_EXECUTION";
  if (options.world_size < 1) {
    return InvalidField(kReason, "execution.world_size", "must be at least 1");
  }
  if (options.granule < 1) return InvalidField(kReason, "granule", "must be at least 1");
  const bool striped = options.layout == Layout::kStriped;
  if (striped && (options.stripe < 1 || options.stripe % options.granule != 0)) {
    return InvalidField(
        kReason, "execution.stripe",
        absl::StrCat("must be a positive multiple of the granule of ", options.granule, " rows"));
  }
  if (options.layout == Layout::kAuto) {
    return InvalidField(kReason, "execution.layout", "auto must be resolved before a plan is made");
  }
  return absl::OkStatus();
}

}  // namespace

int32_t StripeOf(const AttentionSpec& spec) {
  if (!spec.deterministic) return 1;
  constexpr int64_t kStripes = 64;
  const int64_t tiles = std::max(spec.q_rows(), spec.kv_rows()) / (kStripes * kFoldTile) + 1;
  return static_cast<int32_t>(std::min<int64_t>(tiles, 1 << 20) * kFoldTile);
}

absl::StatusOr<ShardPlan> MakeShardPlan(const AttentionSpec& spec, const PlanOptions& options) {
  if (absl::Status checked = CheckOptions(options); !checked.ok()) return checked;
  std::vector<int64_t> q_lengths, kv_lengths;
  for (const Sequence& sequence : spec.sequences) {
    q_lengths.push_back(sequence.q_len);
    kv_lengths.push_back(sequence.kv_len);
  }
  RangesOfRank q(options.world_size), kv(options.world_size);
  if (options.layout == Layout::kByArea) {
    ByArea(spec, options, &q, &kv);
  } else {
    q = Deal(q_lengths, options);
    kv = Deal(kv_lengths, options);
  }
  if (options.layout == Layout::kByArea || options.layout == Layout::kZigzagPerSequence) {
    RoundCuts(spec.q_rows(), options.granule, &q);
    RoundCuts(spec.kv_rows(), options.granule, &kv);
  }
  ShardPlan plan;
  plan.world_size = options.world_size;
  plan.layout = options.layout;
  plan.granule = options.granule;
  for (int32_t rank = 0; rank < options.world_size; ++rank) {
    plan.shards.push_back({rank, RowMap(std::move(q[rank])), RowMap(std::move(kv[rank]))});
  }
  return plan;
}

}  // namespace annulus
