#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/schedule/builders.h"
#include "attention/schedule/head_shares.h"
#include "attention/schedule/schedule_writer.h"

namespace annulus {
namespace {

// Steps. Deltas; the exchange, while own heads meet own keys; all else; everything goes home.
enum : int32_t { kDeltas, kExchange, kRest, kHome, kSteps };

// The backward Ulysses as one rank sees it: it computes some heads of all queries (HeadShares), and
// the gradients of the key/value heads that these use. Gradients of queries are complete where they
// are computed, and are rounded before they go home; those of keys are added at home, since members
// may share a key/value head.
class UlyssesRank {
 public:
  UlyssesRank(const GroupView& group, int32_t rank)
      : group_(group),
        world_(group.world()),
        rank_(rank),
        shares_(*group.request.spec, group.degrees),
        writer_(group, kSteps) {}

  RankSchedule Build() {
    AddOwnQueries();
    AddOwnKeys();
    for (int32_t from = 0; from < world_; ++from) {
      if (from != rank_) ReceiveFrom(from);
    }
    Attend();
    SendHome();
    for (int32_t from = 0; from < world_; ++from) {
      if (from != rank_) ComeHome(from);
    }
    for (const Keys& own : own_keys_) {
      writer_.Apply(kHome, Op::Kind::kFinish, own.dkv, own.out);
    }
    return writer_.Take();
  }

 private:
  // Queries that this rank computes: some heads of a shard.
  struct Slice {
    int32_t owner = 0, q = 0, dq = 0;
    Interval rows;
  };
  // One atom of a shard's keys, or some rows of it, with their gradients. `out`: own ones.
  struct Keys {
    int32_t shard = 0, owner = 0, atom = 0;
    int32_t buffer = 0, dkv = 0, out = 0;
    Interval rows;
  };

  static Block BlockOf(BlockKind kind, int32_t shard, Interval rows, Interval heads) {
    return {kind,
            shard,
            rows.begin,
            rows.end,
            static_cast<int32_t>(heads.begin),
            static_cast<int32_t>(heads.end)};
  }
  Interval QueryRows(int32_t shard) const { return {0, group_.shard(shard).q_rows.rows()}; }
  Interval KeyRows(int32_t shard) const { return {0, group_.shard(shard).kv_rows.rows()}; }

  bool Needs(int32_t member, int32_t atom) const {
    const Interval atoms = shares_.AtomsOf(member);
    return atoms.begin <= atom && atom < atoms.end;
  }
  // Rows of an atom that the queries see whose heads `member` computes with it.
  RowSet Wanted(int32_t member, int32_t atom, int32_t shard) const {
    std::vector<int32_t> users;
    for (int32_t of = 0; of < world_; ++of) {
      if (shares_.Uses(member, of, atom)) users.push_back(of);
    }
    return users.empty() ? RowSet() : group_.needs.OfAny(users, shard);
  }

  // Own queries lie cut by who computes them.
  void AddOwnQueries() {
    for (const int32_t shard : group_.needs.ShardsOf(rank_)) {
      const Interval rows = QueryRows(shard);
      for (int32_t to = 0; to < world_ && rows.length() > 0; ++to) {
        const Interval heads = shares_.Queries(rank_, to);
        if (heads.length() == 0) continue;
        const int32_t q = writer_.AddInput(BlockOf(BlockKind::kQGrad, shard, rows, heads));
        const int32_t forward = writer_.AddInput(BlockOf(BlockKind::kOut, shard, rows, heads));
        writer_.Apply(kDeltas, Op::Kind::kDelta, forward, q);
        to == rank_ ? AddSlice(rank_, q) : writer_.Send(kExchange, q, rows, to);
      }
    }
  }

  void AddSlice(int32_t owner, int32_t q) {
    Block state = writer_.block(q);
    state.kind = BlockKind::kDq;
    slices_.push_back({owner, q, writer_.AddBuffer(state), {state.row_begin, state.row_end}});
  }

  // Own keys lie cut by atoms.
  void AddOwnKeys() {
    for (const int32_t shard : group_.needs.ShardsOf(rank_)) {
      const Interval rows = KeyRows(shard);
      for (size_t n = 0; n < shares_.atoms().size() && rows.length() > 0; ++n) {
        const int32_t atom = static_cast<int32_t>(n);
        Keys own{shard, rank_, atom, 0, 0, 0, rows};
        own.buffer = writer_.AddInput(BlockOf(BlockKind::kKv, shard, rows, shares_.atoms()[n]));
        own.dkv = writer_.AddBuffer(BlockOf(BlockKind::kDkv, shard, rows, shares_.atoms()[n]));
        own.out = writer_.AddOutput(BlockOf(BlockKind::kDkvOut, shard, rows, shares_.atoms()[n]));
        own_keys_.push_back(own);
        for (int32_t to = 0; to < world_; ++to) {
          if (to == rank_ || !Needs(to, atom)) continue;
          for (const Interval& some : Wanted(to, atom, shard)) {
            writer_.Send(kExchange, own.buffer, some, to);
          }
        }
      }
    }
  }

  void ReceiveFrom(int32_t from) {
    const Interval heads = shares_.Queries(from, rank_);
    for (const int32_t shard : group_.needs.ShardsOf(from)) {
      const Interval rows = QueryRows(shard);
      if (heads.length() == 0 || rows.length() == 0) continue;
      const int32_t q = writer_.AddBuffer(BlockOf(BlockKind::kQGrad, shard, rows, heads));
      writer_.Receive(kExchange, q, rows, from);
      AddSlice(from, q);
    }
    const Interval atoms = shares_.AtomsOf(rank_);
    for (const int32_t shard : group_.needs.ShardsOf(from)) {
      for (int64_t n = atoms.begin; n < atoms.end; ++n) {
        const int32_t atom = static_cast<int32_t>(n);
        for (const Interval& rows : Wanted(rank_, atom, shard)) {
          Keys keys{shard, from, atom, 0, 0, 0, rows};
          keys.buffer = writer_.AddBuffer(BlockOf(BlockKind::kKv, shard, rows, shares_.atoms()[n]));
          keys.dkv = writer_.AddBuffer(BlockOf(BlockKind::kDkv, shard, rows, shares_.atoms()[n]));
          writer_.Receive(kExchange, keys.buffer, rows, from);
          received_keys_.push_back(keys);
        }
      }
    }
  }

  void Attend() {
    for (const auto* list : {&own_keys_, &received_keys_}) {
      for (const Keys& keys : *list) {
        for (const Slice& slice : slices_) {
          const bool own = keys.owner == rank_ && slice.owner == rank_;
          writer_.Attend(own ? kExchange : kRest,
                         {slice.q, keys.buffer, slice.dq, slice.rows, keys.rows, keys.dkv});
        }
      }
    }
  }

  void SendHome() {
    for (const Slice& slice : slices_) {
      Block block = writer_.block(slice.dq);
      block.kind = BlockKind::kDqOut;
      const bool own = slice.owner == rank_;
      const int32_t out = own ? writer_.AddOutput(block) : writer_.AddBuffer(block);
      writer_.Apply(kRest, Op::Kind::kFinish, slice.dq, out);
      if (!own) writer_.Send(kHome, out, slice.rows, slice.owner);
    }
    for (const Keys& keys : received_keys_) {
      writer_.Send(kHome, keys.dkv, keys.rows, keys.owner);
    }
  }

  void ComeHome(int32_t from) {
    const Interval heads = shares_.Queries(rank_, from);
    for (const int32_t shard : group_.needs.ShardsOf(rank_)) {
      const Interval rows = QueryRows(shard);
      if (heads.length() == 0 || rows.length() == 0) continue;
      const int32_t out = writer_.AddOutput(BlockOf(BlockKind::kDqOut, shard, rows, heads));
      writer_.Receive(kHome, out, rows, from);
    }
    for (const Keys& own : own_keys_) {
      if (!Needs(from, own.atom)) continue;
      for (const Interval& rows : Wanted(from, own.atom, own.shard)) {
        const int32_t arriving =
            writer_.AddBuffer(BlockOf(BlockKind::kDkv, own.shard, rows, shares_.atoms()[own.atom]));
        writer_.Receive(kHome, arriving, rows, from);
        writer_.Apply(kHome, Op::Kind::kAdd, arriving, own.dkv);
      }
    }
  }

  const GroupView& group_;
  const int32_t world_, rank_;
  const HeadShares shares_;
  ScheduleWriter writer_;
  std::vector<Slice> slices_;
  std::vector<Keys> own_keys_, received_keys_;
};

}  // namespace

RankSchedule BuildGradientsUlysses(const GroupView& group, int32_t rank) {
  return UlyssesRank(group, rank).Build();
}

}  // namespace annulus
