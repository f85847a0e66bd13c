#include <cstdint>
#include <vector>

#include "attention/schedule/builders.h"
#include "attention/schedule/own_rows.h"
#include "attention/schedule/ring.h"

namespace annulus {
namespace {

// The backward ring pass-KV as one rank sees it. Keys travel as in the forward pass, one step
// later. A stop makes its own gradients of them while those of the stops before it arrive, adds
// these, and sends the sum on; the last stop sends it home.
class PassKvRank {
 public:
  PassKvRank(const GroupView& group, int32_t rank)
      : group_(group),
        world_(group.world()),
        rank_(rank),
        writer_(group, world_ + 2),
        own_(group, rank, &writer_),
        ring_(RingOfRanks(group.needs, world_, rank)) {}

  RankSchedule Build() {
    own_.AttendOwn(1);
    for (int32_t distance = 0; distance < world_; ++distance) Travel(distance);
    for (const Visitor& visitor : visitors_) PassGradients(visitor);
    ComeHome();
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  // A block of others' keys that stops here.
  struct Visitor {
    int32_t shard = 0, source = 0, distance = 0;
    std::vector<Ring::Part> parts;
  };
  // How far a block has come when it is at a stop: rows that some stop up to this one wants.
  struct Stop {
    int32_t distance = 0;
    RowSet rows;
  };

  std::vector<Stop> StopsOf(int32_t source, int32_t shard) const {
    std::vector<Stop> stops;
    for (int32_t distance = 1; distance < world_; ++distance) {
      const RowSet& wanted = group_.needs.Of((source + distance) % world_, shard);
      if (wanted.empty()) continue;
      stops.push_back({distance, stops.empty() ? wanted : Union(stops.back().rows, wanted)});
    }
    return stops;
  }

  // Keys that started `distance` before this rank arrive in step `distance` and are used in the
  // next one.
  void Travel(int32_t distance) {
    const Ring::Timing timing{1, 1};
    if (distance == 0) {
      for (const OwnRows::Keys& own : own_.keys()) {
        ring_.SendOn(own.shard, 0, {{own.buffer, own.rows}}, timing, &writer_);
      }
      return;
    }
    const int32_t source = group_.After(rank_, -distance);
    for (const int32_t shard : group_.needs.ShardsOf(source)) {
      const Block keys{BlockKind::kKv, shard, 0, 0, 0, group_.request.spec->kv_heads};
      const auto parts = ring_.Receive(keys, distance, timing, &writer_);
      ring_.SendOn(shard, distance, parts, timing, &writer_);
      if (!parts.empty()) visitors_.push_back({shard, source, distance, parts});
    }
  }

  int32_t AddGradients(int32_t shard, Interval rows) {
    return writer_.AddBuffer(
        {BlockKind::kDkv, shard, rows.begin, rows.end, 0, group_.request.spec->kv_heads});
  }

  void PassGradients(const Visitor& block) {
    const std::vector<Stop> stops = StopsOf(block.source, block.shard);
    size_t here = 0;
    while (stops[here].distance != block.distance) ++here;
    const int32_t step = block.distance + 1;
    std::vector<Ring::Part> sums;
    for (const Interval& rows : stops[here].rows) {
      sums.push_back({AddGradients(block.shard, rows), rows});
    }
    const RowSet wanted = ring_.Wanted(block.shard);
    for (const Ring::Part& part : block.parts) {
      for (const Interval& rows : Clip(wanted, part.rows)) {
        for (const Ring::Part& sum : sums) {
          if (Intersect(sum.rows, rows).length() == 0) continue;
          own_.Attend(step, part.buffer, Intersect(sum.rows, rows), sum.buffer);
        }
      }
    }
    if (here > 0) {
      const int32_t from = (block.source + stops[here - 1].distance) % world_;
      for (const Interval& rows : stops[here - 1].rows) Add(block.shard, rows, from, step, sums);
    }
    const bool last = here + 1 == stops.size();
    const int32_t to = last ? block.source : (block.source + stops[here + 1].distance) % world_;
    for (const Ring::Part& sum : sums) {
      writer_.Send(last ? step + 1 : stops[here + 1].distance + 1, sum.buffer, sum.rows, to);
    }
  }

  // Gradients that arrive from another rank are added to those of `sums` that hold their rows.
  void Add(int32_t shard, Interval rows, int32_t from, int32_t step,
           const std::vector<Ring::Part>& sums) {
    const int32_t arriving = AddGradients(shard, rows);
    writer_.Receive(step, arriving, rows, from);
    for (const Ring::Part& sum : sums) {
      if (Intersect(sum.rows, rows).length() == 0) continue;
      writer_.Apply(step, Op::Kind::kAdd, arriving, sum.buffer);
    }
  }

  void ComeHome() {
    for (const OwnRows::Keys& own : own_.keys()) {
      const std::vector<Stop> stops = StopsOf(rank_, own.shard);
      if (stops.empty()) continue;
      const Stop& last = stops.back();
      for (const Interval& rows : last.rows) {
        Add(own.shard, rows, group_.After(rank_, last.distance), last.distance + 2,
            {{own.dkv, own.rows}});
      }
    }
  }

  const GroupView& group_;
  const int32_t world_, rank_;
  ScheduleWriter writer_;
  OwnRows own_;
  const Ring ring_;
  std::vector<Visitor> visitors_;
};

}  // namespace

RankSchedule BuildGradientsRingPassKv(const GroupView& group, int32_t rank) {
  return PassKvRank(group, rank).Build();
}

}  // namespace annulus
