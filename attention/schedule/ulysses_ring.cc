#include <cstdint>
#include <vector>

#include "attention/schedule/builders.h"
#include "attention/schedule/head_shares.h"
#include "attention/schedule/ring.h"
#include "attention/schedule/schedule_writer.h"

namespace annulus {
namespace {

// The grid of exchanges and rings as one rank sees it: member `member_` of exchange `exchange_`.
// With exchanges of one member it is a ring, and with one exchange it is Ulysses.
class GridRank {
 public:
  GridRank(const GroupView& group, int32_t rank)
      : group_(group),
        members_(group.degrees.ulysses),
        exchanges_(group.degrees.ring),
        exchange_(rank / members_),
        member_(rank % members_),
        // An exchange takes a step before the ring, and one after it, in which outputs go home.
        first_(members_ > 1 ? 1 : 0),
        shares_(*group.request.spec, group.degrees),
        writer_(group, exchanges_ + 2 * first_) {
    MakeRings();
  }

  RankSchedule Build() {
    AddOwn();
    SendToMembers();
    ReceiveFromMembers();
    AttendExchanged();
    for (int32_t distance = 0; distance < exchanges_; ++distance) Travel(distance);
    Finish();
    return writer_.Take();
  }

 private:
  // Queries that this rank computes: some heads of a shard of its exchange.
  struct Slice {
    int32_t shard = 0, owner = 0;  // Owner: a member.
    int32_t q = 0, partial = 0;    // Buffers.
    int64_t rows = 0;
  };
  // Keys of a shard of this exchange: some heads (an atom) and rows.
  struct Keys {
    int32_t shard = 0, owner = 0;
    int32_t atom = 0;
    std::vector<Ring::Part> parts;
  };

  int32_t RankOf(int32_t exchange, int32_t member) const { return exchange * members_ + member; }
  const std::vector<int32_t>& ShardsOf(int32_t exchange, int32_t member) const {
    return group_.needs.ShardsOf(RankOf(exchange, member));
  }
  int64_t QueryRows(int32_t shard) const { return group_.shard(shard).q_rows.rows(); }
  int64_t KeyRows(int32_t shard) const { return group_.shard(shard).kv_rows.rows(); }

  static Block BlockOf(BlockKind kind, int32_t shard, Interval rows, Interval heads) {
    return {kind,
            shard,
            rows.begin,
            rows.end,
            static_cast<int32_t>(heads.begin),
            static_cast<int32_t>(heads.end)};
  }
  Block KeysOf(int32_t shard, int32_t atom, Interval rows) const {
    return BlockOf(BlockKind::kKv, shard, rows, shares_.atoms()[atom]);
  }
  Block OutputOf(int32_t shard, Interval heads) const {
    return BlockOf(BlockKind::kOut, shard, {0, QueryRows(shard)}, heads);
  }

  // For whose queries `member` of an exchange needs an atom.
  std::vector<int32_t> UsersOf(int32_t exchange, int32_t member, int32_t atom) const {
    std::vector<int32_t> ranks;
    for (int32_t of = 0; of < members_; ++of) {
      if (shares_.Uses(member, of, atom)) ranks.push_back(RankOf(exchange, of));
    }
    return ranks;
  }

  // The ring in which an atom travels, as `member` of this exchange sees it.
  Ring RingOf(int32_t member, int32_t atom) const {
    std::vector<Ring::Member> ring;
    for (int32_t e = 0; e < exchanges_; ++e) {
      ring.push_back({RankOf(e, member), UsersOf(e, member, atom)});
    }
    return Ring(group_.needs, std::move(ring), exchange_);
  }

  void MakeRings() {
    for (int32_t member = 0; member < members_; ++member) {
      rings_.emplace_back();
      const Interval atoms = shares_.AtomsOf(member);
      for (int64_t atom = atoms.begin; atom < atoms.end; ++atom) {
        rings_.back().push_back(RingOf(member, static_cast<int32_t>(atom)));
      }
    }
  }
  const Ring& RingFor(int32_t member, int32_t atom) const {
    return rings_[member][atom - shares_.AtomsOf(member).begin];
  }

  // Calls fn(atom) for the atoms that `member` needs.
  template <typename Fn>
  void ForEachAtom(int32_t member, Fn fn) const {
    const Interval atoms = shares_.AtomsOf(member);
    for (int64_t atom = atoms.begin; atom < atoms.end; ++atom) fn(static_cast<int32_t>(atom));
  }

  // Own queries lie cut by who computes them, own keys by atoms.
  void AddOwn() {
    for (const int32_t shard : ShardsOf(exchange_, member_)) {
      const Interval q_rows{0, QueryRows(shard)}, k_rows{0, KeyRows(shard)};
      for (int32_t to = 0; to < members_ && q_rows.length() > 0; ++to) {
        const Interval heads = shares_.Queries(member_, to);
        if (heads.length() == 0) continue;
        const int32_t q = writer_.AddInput(BlockOf(BlockKind::kQ, shard, q_rows, heads));
        if (to == member_) {
          AddSlice(shard, member_, q);
        } else {
          writer_.Send(0, q, q_rows, RankOf(exchange_, to));
        }
      }
      for (size_t atom = 0; atom < shares_.atoms().size() && k_rows.length() > 0; ++atom) {
        const int32_t number = static_cast<int32_t>(atom);
        const int32_t buffer = writer_.AddInput(KeysOf(shard, number, k_rows));
        own_keys_.push_back({shard, member_, number, {{buffer, k_rows}}});
      }
    }
  }

  void AddSlice(int32_t shard, int32_t owner, int32_t q) {
    Block state = writer_.block(q);
    state.kind = BlockKind::kPartial;
    slices_.push_back({shard, owner, q, writer_.AddBuffer(state), QueryRows(shard)});
  }

  // Queries have been sent before; keys follow, with all rows that the member's ring wants.
  void SendToMembers() {
    for (const Keys& own : own_keys_) {
      for (int32_t to = 0; to < members_; ++to) {
        const Interval atoms = shares_.AtomsOf(to);
        if (to == member_ || own.atom < atoms.begin || own.atom >= atoms.end) continue;
        for (const Interval& rows : RingFor(to, own.atom).WantedByAll(own.shard)) {
          writer_.Send(0, own.parts[0].buffer, rows, RankOf(exchange_, to));
        }
      }
    }
  }

  void ReceiveFromMembers() {
    for (int32_t from = 0; from < members_; ++from) {
      if (from == member_) continue;
      const int32_t peer = RankOf(exchange_, from);
      const Interval heads = shares_.Queries(from, member_);
      for (const int32_t shard : ShardsOf(exchange_, from)) {
        const Interval rows{0, QueryRows(shard)};
        if (heads.length() == 0 || rows.length() == 0) continue;
        const int32_t q = writer_.AddBuffer(BlockOf(BlockKind::kQ, shard, rows, heads));
        writer_.Receive(0, q, rows, peer);
        AddSlice(shard, from, q);
      }
      for (const int32_t shard : ShardsOf(exchange_, from)) {
        ForEachAtom(member_, [&](int32_t atom) { ReceiveKeys(shard, from, atom); });
      }
    }
  }

  void ReceiveKeys(int32_t shard, int32_t from, int32_t atom) {
    Keys keys{shard, from, atom, {}};
    for (const Interval& rows : RingFor(member_, atom).WantedByAll(shard)) {
      const int32_t buffer = writer_.AddBuffer(KeysOf(shard, atom, rows));
      writer_.Receive(0, buffer, rows, RankOf(exchange_, from));
      keys.parts.push_back({buffer, rows});
    }
    received_keys_.push_back(std::move(keys));
  }

  // Own queries meet own keys while the exchange is under way; everything else comes after it.
  void AttendExchanged() {
    for (const Keys& keys : own_keys_) {
      for (const Slice& slice : slices_) {
        Attend(slice.owner == member_ ? 0 : first_, slice, keys.parts[0].buffer,
               keys.parts[0].rows);
      }
    }
    for (const Keys& keys : received_keys_) AttendAll(first_, keys.shard, keys.atom, keys.parts);
  }

  void AttendAll(int32_t step, int32_t shard, int32_t atom, const std::vector<Ring::Part>& parts) {
    const RowSet wanted = RingFor(member_, atom).Wanted(shard);
    for (const Ring::Part& part : parts) {
      for (const Interval& rows : Clip(wanted, part.rows)) {
        for (const Slice& slice : slices_) Attend(step, slice, part.buffer, rows);
      }
    }
  }

  void Attend(int32_t step, const Slice& slice, int32_t keys, Interval rows) {
    writer_.Attend(step, {slice.q, keys, slice.partial, {0, slice.rows}, rows});
  }

  // Keys whose exchange is `distance` before this one: used in step first_ + distance.
  void Travel(int32_t distance) {
    const Ring::Timing timing{first_, 1};
    if (distance == 0) {
      for (const auto* list : {&own_keys_, &received_keys_}) {
        for (const Keys& keys : *list) {
          const Interval mine = shares_.AtomsOf(member_);
          if (keys.atom < mine.begin || keys.atom >= mine.end) continue;
          RingFor(member_, keys.atom).SendOn(keys.shard, 0, keys.parts, timing, &writer_);
        }
      }
      return;
    }
    const int32_t from = (exchange_ - distance + exchanges_) % exchanges_;
    for (int32_t turn = 0; turn < members_; ++turn) {
      // In the order in which the rank where they start holds them: its own first.
      const int32_t owner = turn == 0 ? member_ : turn <= member_ ? turn - 1 : turn;
      for (const int32_t shard : ShardsOf(from, owner)) {
        ForEachAtom(member_, [&](int32_t atom) {
          const Ring& ring = RingFor(member_, atom);
          const auto parts = ring.Receive(KeysOf(shard, atom, {}), distance, timing, &writer_);
          AttendAll(first_ + distance, shard, atom, parts);
          ring.SendOn(shard, distance, parts, timing, &writer_);
        });
      }
    }
  }

  // Outputs of others' queries go home in the last step.
  void Finish() {
    const int32_t finish = writer_.last_task_step(), home = writer_.steps() - 1;
    for (const Slice& slice : slices_) {
      const Block& q = writer_.block(slice.q);
      const Block block = OutputOf(slice.shard, {q.head_begin, q.head_end});
      const bool own = slice.owner == member_;
      const int32_t out = own ? writer_.AddOutput(block) : writer_.AddBuffer(block);
      writer_.Apply(finish, Op::Kind::kFinish, slice.partial, out);
      if (!own) writer_.Send(home, out, {0, slice.rows}, RankOf(exchange_, slice.owner));
    }
    for (const int32_t shard : ShardsOf(exchange_, member_)) {
      for (int32_t from = 0; from < members_ && QueryRows(shard) > 0; ++from) {
        const Interval heads = shares_.Queries(member_, from);
        if (from == member_ || heads.length() == 0) continue;
        const int32_t out = writer_.AddOutput(OutputOf(shard, heads));
        writer_.Receive(home, out, {0, QueryRows(shard)}, RankOf(exchange_, from));
      }
    }
  }

  const GroupView& group_;
  const int32_t members_, exchanges_, exchange_, member_;
  const int32_t first_;
  const HeadShares shares_;
  ScheduleWriter writer_;
  std::vector<std::vector<Ring>> rings_;  // By member of this exchange, by its atom.
  std::vector<Slice> slices_;
  std::vector<Keys> own_keys_, received_keys_;
};

}  // namespace

RankSchedule BuildUlyssesRing(const GroupView& group, int32_t rank) {
  return GridRank(group, rank).Build();
}

}  // namespace annulus
