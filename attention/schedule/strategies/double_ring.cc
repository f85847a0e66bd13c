#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/strategies/builders.h"
#include "attention/schedule/strategies/key_gradients.h"
#include "attention/schedule/strategies/own_rows.h"
#include "attention/schedule/strategies/ring_route.h"

namespace annulus {
namespace {

// The two rings of one rank: member `inner_` of inner ring `outer_`. Keys travel from inner ring to
// inner ring, always to the member with the same number, while they go round the inner ring where
// they are.
class DoubleRingRank {
 public:
  DoubleRingRank(const GroupView& group, int32_t rank)
      : group_(group),
        inner_size_(group.degrees.inner_ring),
        outer_size_(group.degrees.ring / inner_size_),
        outer_(rank / inner_size_),
        inner_(rank % inner_size_),
        first_(group.pass().first),
        writer_(group, first_ + group.degrees.ring + (group.pass().key_gradients ? 1 : 0)),
        own_(group, rank, &writer_),
        inner_ring_(InnerRing()),
        outer_ring_(OuterRing()) {}

  RankSchedule Build() {
    own_.AttendOwn(first_);
    for (int32_t outer = 0; outer < outer_size_; ++outer) {
      for (int32_t inner = 0; inner < inner_size_; ++inner) {
        const int32_t from = (outer_ - outer + outer_size_) % outer_size_;
        const int32_t number = (inner_ - inner + inner_size_) % inner_size_;
        for (const int32_t shard : group_.needs.ShardsOf(from * inner_size_ + number)) {
          Visit(shard, outer, inner);
        }
      }
    }
    for (const Visitor& visitor : visitors_) Attend(visitor);
    if (!group_.pass().key_gradients) {
      own_.Finish(writer_.last_task_step());
      return writer_.Take();
    }
    for (const OwnRows::Keys& keys : own_.keys()) ComeHome(keys);
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  // Keys at `outer` inner rings and then `inner` ranks from their owner.
  struct Visitor {
    int32_t shard = 0, outer = 0, inner = 0;
    std::vector<Ring::Part> parts;
  };

  Ring InnerRing() const {
    std::vector<Ring::Member> members;
    for (int32_t i = 0; i < inner_size_; ++i) {
      const int32_t rank = outer_ * inner_size_ + i;
      members.push_back({rank, {rank}});
    }
    return Ring(group_.needs, std::move(members), inner_);
  }

  // A member of the outer ring needs what all ranks of its inner ring need.
  Ring OuterRing() const {
    std::vector<Ring::Member> members;
    for (int32_t o = 0; o < outer_size_; ++o) {
      std::vector<int32_t> ranks;
      for (int32_t i = 0; i < inner_size_; ++i) ranks.push_back(o * inner_size_ + i);
      members.push_back({o * inner_size_ + inner_, std::move(ranks)});
    }
    return Ring(group_.needs, std::move(members), outer_);
  }

  // Visitors are used in step first_ + outer · inner_size_ + inner. The outer hop takes a whole
  // turn of the inner ring and moves one piece of the rows in each step.
  void Visit(int32_t shard, int32_t outer, int32_t inner) {
    const Block keys{BlockKind::kKv, shard, 0, 0, 0, group_.request.spec->kv_heads};
    const Ring::Timing outer_timing{first_, inner_size_};
    const Ring::Timing inner_timing{first_ + outer * inner_size_, 1};
    std::vector<Ring::Part> parts;
    if (inner > 0) {
      parts = inner_ring_.Receive(keys, inner, inner_timing, &writer_);
    } else if (outer > 0) {
      parts = outer_ring_.Receive(keys, outer, outer_timing, &writer_);
    } else if (const OwnRows::Keys* own = own_.KeysOf(shard)) {
      parts = {{own->buffer, own->rows}};
    }
    if (inner == 0) outer_ring_.SendOn(shard, outer, parts, outer_timing, &writer_);
    inner_ring_.SendOn(shard, inner, parts, inner_timing, &writer_);
    if (inner > 0 || outer > 0) visitors_.push_back({shard, outer, inner, std::move(parts)});
  }

  // The route of gradients of keys that start at member `number` of inner ring `ring`, which is
  // `outer` rings after that of their owner. Gradients go home from each inner ring separately.
  KeyGradients GradientsIn(int32_t shard, int32_t ring, int32_t number, int32_t outer) const {
    std::vector<Ring::Member> visits;
    for (int32_t i = outer == 0 ? 1 : 0; i < inner_size_; ++i) {
      const int32_t rank = ring * inner_size_ + (number + i) % inner_size_;
      visits.push_back({rank, {rank}});
    }
    const Block keys{BlockKind::kDkv, shard, 0, 0, 0, group_.request.spec->kv_heads};
    return KeyGradients(group_.needs, keys, visits,
                        first_ + outer * inner_size_ + (outer == 0 ? 1 : 0));
  }

  void Attend(const Visitor& keys) {
    const RowSet wanted = inner_ring_.Wanted(keys.shard);
    if (wanted.empty()) return;
    const int32_t step = first_ + keys.outer * inner_size_ + keys.inner;
    std::vector<Ring::Part> sums;
    if (group_.pass().key_gradients) {
      const int32_t home = (outer_ - keys.outer + outer_size_) % outer_size_;
      const int32_t number = (inner_ - keys.inner + inner_size_) % inner_size_;
      sums = GradientsIn(keys.shard, outer_, number, keys.outer)
                 .Visit(outer_ * inner_size_ + inner_, home * inner_size_ + number, &writer_);
    }
    Ring::ForEachWanted(wanted, keys.parts, sums, [&](int32_t buffer, Interval rows, int32_t dkv) {
      own_.Attend(step, buffer, rows, dkv);
    });
  }

  void ComeHome(const OwnRows::Keys& keys) {
    for (int32_t outer = 0; outer < outer_size_; ++outer) {
      GradientsIn(keys.shard, (outer_ + outer) % outer_size_, inner_, outer)
          .ComeHome(keys.dkv, &writer_);
    }
  }

  const GroupView& group_;
  const int32_t inner_size_, outer_size_, outer_, inner_;
  const int32_t first_;
  ScheduleWriter writer_;
  OwnRows own_;
  const Ring inner_ring_, outer_ring_;
  std::vector<Visitor> visitors_;
};

}  // namespace

RankSchedule BuildDoubleRing(const GroupView& group, int32_t rank) {
  return DoubleRingRank(group, rank).Build();
}

}  // namespace annulus
