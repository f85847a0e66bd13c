#include "tests/attention/drift.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/block_layout.h"
#include "attention/status_macros.h"

namespace annulus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Inputs are functions of the packed row and the head, so that any mix-up of rows changes the
// result.
double QueryAt(int64_t row, int32_t head) { return std::sin(1.3 * row + 0.7 * head); }
double KeyAt(int64_t row, int32_t head) { return std::cos(0.9 * row - 0.4 * head); }
double ValueAt(int64_t row, int32_t head) { return std::sin(0.37 * row * row + head); }

struct Wire {
  std::deque<std::pair<int32_t, Transfer>> sends, receives;  // Step, transfer.
  int64_t rows_moved = 0;                                    // Of the pair in front.
};

class Group {
 public:
  Group(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
        const std::vector<Placement>& placements, uint64_t seed)
      : built_(built), ranks_(ranks), placements_(placements), layout_(built.spec), random_(seed) {
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

  // The number at (row, section, head) of a buffer: with dim 1, one per head in each section.
  double& At(int32_t r, int32_t buffer, int64_t row, int section, int32_t head) {
    const Block& block = BlockOf(r, buffer);
    const int32_t heads = block.head_end - block.head_begin;
    const int64_t offset = section == 0   ? 0
                           : section == 1 ? layout_.SecondOffset(block.kind, heads)
                                          : layout_.ThirdOffset(block.kind, heads);
    const int64_t bytes = placements_[r].slots[buffer].offset +
                          (row - block.row_begin) * layout_.RowBytes(block.kind, heads) + offset;
    return arenas_[r].at(bytes / 4 + head - block.head_begin);
  }

  void FillInput(int32_t r, int32_t buffer) {
    const Block& block = BlockOf(r, buffer);
    const Shard& shard = built_.plan.shards[block.shard];
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      for (int32_t h = block.head_begin; h < block.head_end; ++h) {
        if (block.kind == BlockKind::kQ) {
          At(r, buffer, row, 0, h) = QueryAt(shard.q_rows.Global(row), h);
        } else {
          At(r, buffer, row, 0, h) = KeyAt(shard.kv_rows.Global(row), h);
          At(r, buffer, row, 1, h) = ValueAt(shard.kv_rows.Global(row), h);
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
      const Placement::Slot& slot = placements_[r].slots[i];
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
        At(r, buffer, row, 0, h) = 0;
        At(r, buffer, row, 1, h) = -kInf;
        At(r, buffer, row, 2, h) = 0;
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
          if (task.coverage != Coverage::kFull && !Sees(q_map.Global(i), k_map.Global(j), h)) {
            continue;
          }
          const double score = At(r, task.q, i, 0, h) * At(r, task.kv, j, 0, h / group);
          Merge(r, task.out_q, i, h, {At(r, task.kv, j, 1, h / group), score, 1});
        }
      }
    }
  }

  bool Sees(int64_t q_row, int64_t k_row, int32_t head) const {
    const int64_t sequence = built_.mask.SequenceOfQuery(q_row);
    if (built_.mask.SequenceOfKey(k_row) != sequence) return false;
    return VisibleByFormula(built_.spec, sequence, head, q_row - built_.mask.QueryBegin(sequence),
                            k_row - built_.mask.KeyBegin(sequence));
  }

  struct Partial {
    double sum = 0, max = -kInf, weight = 0;
  };

  static Partial Merged(const Partial& a, const Partial& b) {
    const double max = std::max(a.max, b.max);
    if (max == -kInf) return {a.sum + b.sum, max, a.weight + b.weight};
    const double wa = std::exp(a.max - max), wb = std::exp(b.max - max);
    return {wa * a.sum + wb * b.sum, max, wa * a.weight + wb * b.weight};
  }

  void Merge(int32_t r, int32_t buffer, int64_t row, int32_t h, const Partial& more) {
    const Partial old{At(r, buffer, row, 0, h), At(r, buffer, row, 1, h), At(r, buffer, row, 2, h)};
    const Partial both = Merged(old, more);
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
        Partial source;
        if (a.kind == BlockKind::kPartial) {
          source = {At(r, op.source, row, 0, h), At(r, op.source, row, 1, h),
                    At(r, op.source, row, 2, h)};
        }
        if (op.kind == Op::Kind::kMerge) Merge(r, op.target, row, h, source);
        if (op.kind == Op::Kind::kCopy) {
          const int sections = a.kind == BlockKind::kPartial ? 3 : a.kind == BlockKind::kQ ? 1 : 2;
          for (int s = 0; s < sections; ++s)
            At(r, op.target, row, s, h) = At(r, op.source, row, s, h);
        }
        if (op.kind != Op::Kind::kFinish) continue;
        const bool empty = source.weight == 0;
        At(r, op.target, row, 0, h) = empty ? 0 : source.sum / source.weight;
        At(r, op.target, row, 1, h) = empty ? -kInf : source.max + std::log(source.weight);
      }
    }
  }

  Partial Expected(int64_t q_row, int32_t h) const {
    const int32_t group = built_.spec.q_heads / built_.spec.kv_heads;
    Partial all;
    for (int64_t k = 0; k < built_.spec.kv_rows(); ++k) {
      if (!Sees(q_row, k, h)) continue;
      all = Merged(all, {ValueAt(k, h / group), QueryAt(q_row, h) * KeyAt(k, h / group), 1});
    }
    return all;
  }

  absl::Status CompareOutputs() {
    std::set<std::pair<int64_t, int32_t>> seen;
    for (int32_t r = 0; r < static_cast<int32_t>(ranks_.size()); ++r) {
      for (const int32_t output : ranks_[r].outputs) RETURN_IF_ERROR(Compare(r, output, &seen));
    }
    const bool all =
        static_cast<int64_t>(seen.size()) == built_.spec.q_rows() * built_.spec.q_heads;
    return all ? absl::OkStatus() : absl::InternalError("output rows are missing");
  }

  absl::Status Compare(int32_t r, int32_t output, std::set<std::pair<int64_t, int32_t>>* seen) {
    const Block& block = BlockOf(r, output);
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      const int64_t q_row = built_.plan.shards[block.shard].q_rows.Global(row);
      for (int32_t h = block.head_begin; h < block.head_end; ++h) {
        const Partial want = Expected(q_row, h);
        const double out = At(r, output, row, 0, h), lse = At(r, output, row, 1, h);
        const double want_out = want.weight == 0 ? 0 : want.sum / want.weight;
        const double want_lse = want.weight == 0 ? -kInf : want.max + std::log(want.weight);
        const bool right =
            std::abs(out - want_out) < 1e-9 && (lse == want_lse || std::abs(lse - want_lse) < 1e-9);
        if (!right) {
          return absl::InternalError(absl::StrCat("row ", q_row, " head ", h, ": ", out, " not ",
                                                  want_out, ", lse ", lse, " not ", want_lse));
        }
        seen->insert({q_row, h});
      }
    }
    return absl::OkStatus();
  }

  const BuiltCase& built_;
  const std::vector<RankSchedule>& ranks_;
  const std::vector<Placement>& placements_;
  const BlockLayout layout_;
  std::mt19937_64 random_;
  std::vector<std::vector<double>> arenas_;
  std::vector<State> states_;
  std::map<std::pair<int32_t, int32_t>, Wire> wires_;
};

}  // namespace

absl::Status RunDrifting(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
                         const std::vector<Placement>& placements, uint64_t seed) {
  return Group(built, ranks, placements, seed).Run();
}

}  // namespace annulus
