#include "tests/attention/schedule/drift.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/schedule/model/block_layout.h"
#include "base/status_macros.h"
#include "tests/attention/schedule/drift_expected.h"
#include "tests/attention/schedule/drift_numbers.h"

namespace annulus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Wire {
  std::deque<std::pair<int32_t, Transfer>> sends, receives;  // Step, transfer.
  int64_t rows_moved = 0;                                    // For the first pair.
};

class Group {
 public:
  Group(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
        const std::vector<ArenaPlan>& placements, uint64_t seed)
      : built_(built),
        expected_(built),
        ranks_(ranks),
        placements_(placements),
        layout_(built.spec),
        random_(seed) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      arenas_.emplace_back(placements[r].arena_bytes / 4, std::nan(""));
      states_.emplace_back();
      for (const int32_t input : ranks[r].inputs) FillInput(r, input);
    }
  }

  absl::Status Run() {
    while (true) {
      const std::vector<Event> events = Possible();
      if (events.empty()) break;
      RETURN_IF_ERROR(Do(events[random_() % events.size()]));
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (states_[r].step < Steps(r))
        return absl::InternalError(absl::StrCat("rank ", r, " stuck"));
    }
    return CompareOutputs();
  }

 private:
  struct State {
    int32_t step = 0;
    bool running = false;
    size_t next_task = 0;
    int32_t transfers_left = 0;
  };
  struct Event {
    enum class Kind { kStart, kTask, kEnd, kRow } kind;
    int32_t rank = 0, peer = 0;
  };

  int32_t Steps(int32_t r) const { return static_cast<int32_t>(ranks_[r].steps.size()); }
  const Step& StepOf(int32_t r) const { return ranks_[r].steps[states_[r].step]; }
  const Block& BlockOf(int32_t r, int32_t buffer) const { return ranks_[r].buffers[buffer]; }

  // The number at (row, section, head) of a buffer. With dim 1, a head has one number in each
  // section.
  double& At(int32_t r, int32_t buffer, int64_t row, int section, int32_t head) {
    const Block& block = BlockOf(r, buffer);
    const int32_t heads = block.head_end - block.head_begin;
    const int64_t offset = section == 0   ? 0
                           : section == 1 ? layout_.SecondOffset(block.kind, heads)
                           : section == 2 ? layout_.ThirdOffset(block.kind, heads)
                                          : layout_.FourthOffset(block.kind, heads);
    const int64_t bytes = placements_[r].slots[buffer].offset +
                          (row - block.row_begin) * layout_.RowBytes(block.kind, heads) + offset;
    return arenas_[r].at(bytes / 4 + head - block.head_begin);
  }

  // Like At, for a bias gradient, by columns.
  double& ColumnAt(int32_t r, int32_t buffer, int64_t row, int32_t head, int64_t column) {
    const Block& block = BlockOf(r, buffer);
    const int32_t heads = block.head_end - block.head_begin;
    const int64_t bytes = placements_[r].slots[buffer].offset +
                          (row - block.row_begin) * layout_.RowBytes(block.kind, heads);
    return arenas_[r].at(bytes / 4 + (head - block.head_begin) * width() + column);
  }
  int64_t width() const { return layout_.pairs().width; }
  bool bias_of_all_heads() const { return layout_.pairs().bias_heads == 1; }

  void FillInput(int32_t r, int32_t buffer) {
    const Block& block = BlockOf(r, buffer);
    const Shard& shard = built_.plan.shards[block.shard];
    const bool keys = block.kind == BlockKind::kKv;
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      const int64_t global = keys ? shard.kv_rows.Global(row) : shard.q_rows.Global(row);
      for (int section = 0; section < SectionsOf(block.kind); ++section) {
        for (int32_t h = block.head_begin; h < block.head_end; ++h) {
          At(r, buffer, row, section, h) = InputAt(block.kind, section, global, h);
        }
      }
    }
  }

  std::vector<Event> Possible() const {
    std::vector<Event> events;
    for (int32_t r = 0; r < static_cast<int32_t>(ranks_.size()); ++r) {
      const State& state = states_[r];
      if (state.step >= Steps(r)) continue;
      if (!state.running) {
        events.push_back({Event::Kind::kStart, r, 0});
      } else if (state.next_task < StepOf(r).tasks.size()) {
        events.push_back({Event::Kind::kTask, r, 0});
      } else if (state.transfers_left == 0) {
        events.push_back({Event::Kind::kEnd, r, 0});
      }
    }
    for (const auto& [pair, wire] : wires_) {
      if (wire.sends.empty() || wire.receives.empty()) continue;
      events.push_back({Event::Kind::kRow, pair.first, pair.second});
    }
    return events;
  }

  absl::Status Do(const Event& event) {
    State& state = states_[event.rank];
    switch (event.kind) {
      case Event::Kind::kStart:
        Start(event.rank);
        return absl::OkStatus();
      case Event::Kind::kTask:
        Accumulate(event.rank, StepOf(event.rank).tasks[state.next_task++]);
        return absl::OkStatus();
      case Event::Kind::kEnd:
        for (const Op& op : StepOf(event.rank).ops) Apply(event.rank, op);
        state.running = false;
        ++state.step;
        return absl::OkStatus();
      case Event::Kind::kRow:
        return MoveRow(event.rank, event.peer);
    }
    return absl::InternalError("no such event");
  }

  void Start(int32_t r) {
    State& state = states_[r];
    const Step& step = StepOf(r);
    for (size_t i = 0; i < ranks_[r].buffers.size(); ++i) {
      const ArenaPlan::Slot& slot = placements_[r].slots[i];
      if (slot.starts_as_identity && slot.born / 2 == state.step) SetIdentity(r, i);
    }
    for (const Transfer& send : step.sends) {
      wires_[{r, send.peer}].sends.emplace_back(state.step, send);
    }
    for (const Transfer& receive : step.receives) {
      wires_[{receive.peer, r}].receives.emplace_back(state.step, receive);
    }
    state.transfers_left = static_cast<int32_t>(step.sends.size() + step.receives.size());
    state.next_task = 0;
    state.running = true;
  }

  void SetIdentity(int32_t r, int32_t buffer) {
    const Block& block = BlockOf(r, buffer);
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      for (int32_t h = block.head_begin; h < block.head_end; ++h) {
        for (int s = 0; s < SectionsOf(block.kind); ++s) At(r, buffer, row, s, h) = 0;
        for (int64_t c = 0; block.kind == BlockKind::kDBias && c < width(); ++c) {
          ColumnAt(r, buffer, row, h, c) = 0;
        }
        if (block.kind == BlockKind::kPartial) At(r, buffer, row, 1, h) = -kInf;
      }
    }
  }

  absl::Status MoveRow(int32_t from, int32_t to) {
    Wire& wire = wires_[{from, to}];
    const Transfer &send = wire.sends.front().second, &receive = wire.receives.front().second;
    const Block &a = BlockOf(from, send.buffer), &b = BlockOf(to, receive.buffer);
    const int64_t bytes = layout_.RowBytes(a.kind, a.head_end - a.head_begin);
    const int64_t rows = send.row_end - send.row_begin;
    if (bytes != layout_.RowBytes(b.kind, b.head_end - b.head_begin) ||
        rows != receive.row_end - receive.row_begin) {
      return absl::InternalError("a message of a wrong size");
    }
    const int64_t row = wire.rows_moved++;
    double* source = &At(from, send.buffer, send.row_begin + row, 0, a.head_begin);
    double* target = &At(to, receive.buffer, receive.row_begin + row, 0, b.head_begin);
    std::copy(source, source + bytes / 4, target);
    if (wire.rows_moved == rows) {
      wire.rows_moved = 0;
      wire.sends.pop_front();
      wire.receives.pop_front();
      --states_[from].transfers_left;
      --states_[to].transfers_left;
    }
    return absl::OkStatus();
  }

  void Accumulate(int32_t r, const Task& task) {
    const RowMap& q_map = built_.plan.shards[BlockOf(r, task.q).shard].q_rows;
    const RowMap& k_map = built_.plan.shards[BlockOf(r, task.kv).shard].kv_rows;
    const int32_t group = built_.spec.q_heads / built_.spec.kv_heads;
    for (int64_t i = task.q_begin; i < task.q_end; ++i) {
      for (int64_t j = task.k_begin; j < task.k_end; ++j) {
        for (int32_t h = task.head_begin; h < task.head_end; ++h) {
          if (task.coverage != Coverage::kFull &&
              !expected_.Sees(q_map.Global(i), k_map.Global(j), h)) {
            continue;
          }
          if (BlockOf(r, task.q).kind == BlockKind::kQGrad) {
            AddGradients(r, task, i, j, h);
            continue;
          }
          const double score = At(r, task.q, i, 0, h) * At(r, task.kv, j, 0, h / group);
          MergeInto(r, task.out_q, i, h, {At(r, task.kv, j, 1, h / group), score, 1});
        }
      }
    }
  }

  void AddGradients(int32_t r, const Task& task, int64_t i, int64_t j, int32_t h) {
    const int32_t kv_head = h / (built_.spec.q_heads / built_.spec.kv_heads);
    const PairGradients more = GradientsOfPair(
        At(r, task.q, i, 0, h), At(r, task.q, i, 1, h), At(r, task.q, i, 2, h),
        At(r, task.q, i, 3, h), At(r, task.kv, j, 0, kv_head), At(r, task.kv, j, 1, kv_head));
    if (task.out_q >= 0) At(r, task.out_q, i, 0, h) += more.dq;
    if (task.out_bias >= 0) {
      const int64_t key = built_.plan.shards[BlockOf(r, task.kv).shard].kv_rows.Global(j);
      const int64_t column = key - built_.mask.KeyBegin(built_.mask.SequenceOfKey(key));
      ColumnAt(r, task.out_bias, i, bias_of_all_heads() ? 0 : h, column) += more.d_bias;
    }
    if (task.out_kv < 0) return;
    At(r, task.out_kv, j, 0, kv_head) += more.dk;
    At(r, task.out_kv, j, 1, kv_head) += more.dv;
  }

  void MergeInto(int32_t r, int32_t buffer, int64_t row, int32_t h, const PartialNumbers& more) {
    const PartialNumbers old{At(r, buffer, row, 0, h), At(r, buffer, row, 1, h),
                             At(r, buffer, row, 2, h)};
    const PartialNumbers both = Merge(old, more);
    At(r, buffer, row, 0, h) = both.sum;
    At(r, buffer, row, 1, h) = std::isnan(old.max) ? old.max : both.max;
    At(r, buffer, row, 2, h) = both.weight;
  }

  void Apply(int32_t r, const Op& op) {
    const Block &a = BlockOf(r, op.source), &b = BlockOf(r, op.target);
    for (int64_t row = std::max(a.row_begin, b.row_begin); row < std::min(a.row_end, b.row_end);
         ++row) {
      for (int32_t h = std::max(a.head_begin, b.head_begin); h < std::min(a.head_end, b.head_end);
           ++h) {
        ApplyAt(r, op, a.kind, row, h);
      }
    }
  }

  void ApplyAt(int32_t r, const Op& op, BlockKind source_kind, int64_t row, int32_t h) {
    if (op.kind == Op::Kind::kDelta) {
      double& delta = At(r, op.target, row, 3, h);
      delta = At(r, op.source, row, 0, h) * At(r, op.target, row, 1, h) - delta;
      return;
    }
    if (op.kind == Op::Kind::kSink) {
      At(r, op.target, row, 0, h) = SinkGradientOf(
          built_.spec.modifiers.sinks[h], At(r, op.source, row, 2, h), At(r, op.source, row, 3, h));
      return;
    }
    for (int64_t c = 0; source_kind == BlockKind::kDBias && c < width(); ++c) {
      ColumnAt(r, op.target, row, h, c) += ColumnAt(r, op.source, row, h, c);
    }
    const bool partial = source_kind == BlockKind::kPartial;
    if (op.kind == Op::Kind::kRound || op.kind == Op::Kind::kAdd ||
        (op.kind == Op::Kind::kFinish && !partial)) {
      const double keep = op.kind == Op::Kind::kAdd ? 1 : 0;
      for (int s = 0; s < SectionsOf(source_kind); ++s) {
        double& target = At(r, op.target, row, s, h);
        target = (keep == 0 ? 0 : target) + At(r, op.source, row, s, h);
      }
      return;
    }
    const PartialNumbers source{At(r, op.source, row, 0, h), At(r, op.source, row, 1, h),
                                At(r, op.source, row, 2, h)};
    if (op.kind == Op::Kind::kMerge) return MergeInto(r, op.target, row, h, source);
    const bool empty = source.weight == 0;
    At(r, op.target, row, 0, h) = empty ? 0 : source.sum / source.weight;
    At(r, op.target, row, 1, h) = empty ? -kInf : source.max + std::log(source.weight);
  }

  using Seen = std::set<std::tuple<BlockKind, int64_t, int32_t>>;

  absl::Status CompareOutputs() {
    Seen seen;
    for (int32_t r = 0; r < static_cast<int32_t>(ranks_.size()); ++r) {
      for (const int32_t output : ranks_[r].outputs) RETURN_IF_ERROR(Compare(r, output, &seen));
    }
    const AttentionSpec& spec = built_.spec;
    int64_t wanted = spec.q_rows() * spec.q_heads;
    if (spec.operation == Operation::kGradients) {
      if (!spec.modifiers.sinks.empty()) wanted *= 2;
      wanted += spec.kv_rows() * spec.kv_heads;
      if (layout_.pairs().d_bias) wanted += spec.q_rows() * layout_.pairs().bias_heads;
    }
    const bool all = static_cast<int64_t>(seen.size()) == wanted;
    return all ? absl::OkStatus() : absl::InternalError("output rows are missing");
  }

  absl::Status Compare(int32_t r, int32_t output, Seen* seen) {
    const Block& block = BlockOf(r, output);
    const Shard& shard = built_.plan.shards[block.shard];
    const bool keys = block.kind == BlockKind::kDkvOut;
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      const int64_t packed = keys ? shard.kv_rows.Global(row) : shard.q_rows.Global(row);
      for (int32_t h = block.head_begin; h < block.head_end; ++h) {
        const std::vector<double> want = expected_.At(block.kind, packed, h);
        for (size_t s = 0; s < want.size(); ++s) {
          const double got = block.kind == BlockKind::kDBias
                                 ? ColumnAt(r, output, row, h, static_cast<int64_t>(s))
                                 : At(r, output, row, static_cast<int>(s), h);
          if (got == want[s] || std::abs(got - want[s]) < 1e-9) continue;
          return absl::InternalError(absl::StrCat("row ", packed, " head ", h, " section ", s, ": ",
                                                  got, " not ", want[s]));
        }
        seen->insert({block.kind, packed, h});
      }
    }
    return absl::OkStatus();
  }

  const BuiltCase& built_;
  const ExpectedOutputs expected_;
  const std::vector<RankSchedule>& ranks_;
  const std::vector<ArenaPlan>& placements_;
  const BlockLayout layout_;
  std::mt19937_64 random_;
  std::vector<std::vector<double>> arenas_;
  std::vector<State> states_;
  std::map<std::pair<int32_t, int32_t>, Wire> wires_;
};

}  // namespace

absl::Status RunDrifting(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
                         const std::vector<ArenaPlan>& placements, uint64_t seed) {
  return Group(built, ranks, placements, seed).Run();
}

}  // namespace annulus
