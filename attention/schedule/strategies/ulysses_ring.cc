#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/model/row_set.h"
#include "attention/schedule/model/schedule_writer.h"
#include "attention/schedule/strategies/builders.h"
#include "attention/schedule/strategies/head_partition.h"
#include "attention/schedule/strategies/key_gradients.h"
#include "attention/schedule/strategies/ring_route.h"

namespace annulus {
namespace {

// The grid of exchanges and rings for one rank: member `member_` of exchange `exchange_`. With
// exchanges of one member it is a ring; with one exchange it is Ulysses.
class GridRank {
 public:
  GridRank(const GroupView& group, int32_t rank)
      : group_(group),
        members_(group.degrees.ulysses),
        exchanges_(group.degrees.ring),
        exchange_(rank / members_),
        member_(rank % members_),
        pass_(group.pass()),
        // An exchange takes one step before the ring.
        first_(pass_.first + (members_ > 1 ? 1 : 0)),
        shares_(*group.request.spec, group.degrees),
        // Outputs and gradients go home in one step after it.
        writer_(group, first_ + exchanges_ + (members_ > 1 || pass_.key_gradients ? 1 : 0)) {
    MakeRings();
  }

  RankSchedule Build() {
    AddOwn();
    SendToMembers();
    ReceiveFromMembers();
    AttendExchanged();
    for (int32_t distance = 0; distance < exchanges_; ++distance) Travel(distance);
    for (const Visitor& visitor : visitors_) AttendVisitor(visitor);
    Finish();
    if (pass_.key_gradients) FinishKeys();
    return writer_.Take();
  }

 private:
  // Queries that this rank computes: some heads of a shard of its exchange.
  struct Slice {
    int32_t shard = 0, owner = 0;  // `owner` is a member.
    int32_t q = 0, state = 0;      // Buffer numbers.
    int64_t rows = 0;
  };
  // Some heads (an atom) and rows of the keys of a shard, with their gradients if there are any.
  struct Keys {
    int32_t shard = 0, owner = 0;  // `owner` is a member: of this exchange, unless the keys travel.
    int32_t atom = 0;
    std::vector<Ring::Part> parts, gradients;
    int32_t out = -1;  // The output buffer of own keys.
  };
  // Keys of another exchange that stop here.
  struct Visitor {
    Keys keys;
    int32_t distance = 0;
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
  Block GradientsOf(int32_t shard, int32_t atom, Interval rows) const {
    return BlockOf(BlockKind::kDkv, shard, rows, shares_.atoms()[atom]);
  }
  Block FinishedOf(int32_t shard, int32_t atom, Interval rows) const {
    return BlockOf(BlockKind::kDkvOut, shard, rows, shares_.atoms()[atom]);
  }
  Block OutputOf(int32_t shard, Interval heads) const {
    return BlockOf(pass_.finished, shard, {0, QueryRows(shard)}, heads);
  }

  // True if one rank computes the gradients of an atom's keys of a shard completely and sends them
  // home finished, for all rows. If that rank needs less than half of the rows, sums of those rows
  // travel instead, although for 16-bit tensors a sum is twice as long.
  bool Completes(int32_t shard, int32_t atom) const {
    int32_t users = 0, maker = 0;
    for (int32_t member = 0; member < members_; ++member) {
      if (!Needs(member, atom)) continue;
      ++users;
      maker = member;
    }
    if (exchanges_ != 1 || users != 1) return false;
    if (group_.request.spec->deterministic) return true;
    return 2 * RowsOf(RingFor(maker, atom).Wanted(shard)) >= KeyRows(shard);
  }

  // The ranks whose queries make `member` of an exchange need an atom.
  std::vector<int32_t> UsersOf(int32_t exchange, int32_t member, int32_t atom) const {
    std::vector<int32_t> ranks;
    for (int32_t of = 0; of < members_; ++of) {
      if (shares_.Uses(member, of, atom)) ranks.push_back(RankOf(exchange, of));
    }
    return ranks;
  }

  // The ring in which an atom travels, for `member` of this exchange.
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

  bool Needs(int32_t member, int32_t atom) const {
    const Interval atoms = shares_.AtomsOf(member);
    return atoms.begin <= atom && atom < atoms.end;
  }
  // Calls fn(atom) for each atom that `member` needs.
  template <typename Fn>
  void ForEachAtom(int32_t member, Fn fn) const {
    const Interval atoms = shares_.AtomsOf(member);
    for (int64_t atom = atoms.begin; atom < atoms.end; ++atom) fn(static_cast<int32_t>(atom));
  }

  // Own queries are cut by the member that computes them, own keys by atoms.
  void AddOwn() {
    for (const int32_t shard : ShardsOf(exchange_, member_)) {
      const Interval q_rows{0, QueryRows(shard)}, k_rows{0, KeyRows(shard)};
      for (int32_t to = 0; to < members_ && q_rows.length() > 0; ++to) {
        const Interval heads = shares_.Queries(member_, to);
        if (heads.length() == 0) continue;
        const int32_t q = writer_.AddOwnQueries(shard, q_rows, heads);
        if (to == member_) {
          AddSlice(shard, member_, q);
        } else {
          writer_.Send(pass_.first, q, q_rows, RankOf(exchange_, to));
        }
      }
      for (size_t atom = 0; atom < shares_.atoms().size() && k_rows.length() > 0; ++atom) {
        AddOwnKeys(shard, static_cast<int32_t>(atom), k_rows);
      }
    }
  }

  void AddOwnKeys(int32_t shard, int32_t atom, Interval rows) {
    Keys own{shard, member_, atom, {{writer_.AddInput(KeysOf(shard, atom, rows)), rows}}, {}, -1};
    if (pass_.key_gradients) {
      if (!Completes(shard, atom) || Needs(member_, atom))
        own.gradients = AllGradients(shard, atom, rows);
      own.out = writer_.AddOutput(FinishedOf(shard, atom, rows));
    }
    own_keys_.push_back(std::move(own));
  }

  std::vector<Ring::Part> AllGradients(int32_t shard, int32_t atom, Interval rows) {
    return {{writer_.AddBuffer(GradientsOf(shard, atom, rows)), rows}};
  }

  void AddSlice(int32_t shard, int32_t owner, int32_t q) {
    Block state = writer_.block(q);
    state.kind = pass_.state;
    slices_.push_back({shard, owner, q, writer_.AddBuffer(state), QueryRows(shard)});
  }

  // AddOwn has sent the queries. Keys follow, with all rows that the member's ring needs.
  void SendToMembers() {
    for (const Keys& own : own_keys_) {
      for (int32_t to = 0; to < members_; ++to) {
        if (to == member_ || !Needs(to, own.atom)) continue;
        for (const Interval& rows : RingFor(to, own.atom).WantedByAll(own.shard)) {
          writer_.Send(pass_.first, own.parts[0].buffer, rows, RankOf(exchange_, to));
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
        const int32_t q = writer_.AddBuffer(BlockOf(pass_.queries, shard, rows, heads));
        writer_.Receive(pass_.first, q, rows, peer);
        AddSlice(shard, from, q);
      }
      for (const int32_t shard : ShardsOf(exchange_, from)) {
        ForEachAtom(member_, [&](int32_t atom) { ReceiveKeys(shard, from, atom); });
      }
    }
  }

  void ReceiveKeys(int32_t shard, int32_t from, int32_t atom) {
    Keys keys{shard, from, atom, {}, {}, -1};
    const int32_t peer = RankOf(exchange_, from);
    const Ring& ring = RingFor(member_, atom);
    for (const Interval& rows : ring.WantedByAll(shard)) {
      const int32_t buffer = writer_.AddBuffer(KeysOf(shard, atom, rows));
      writer_.Receive(pass_.first, buffer, rows, peer);
      keys.parts.push_back({buffer, rows});
    }
    const Interval all{0, KeyRows(shard)};
    if (pass_.key_gradients && Completes(shard, atom) && all.length() > 0) {
      keys.gradients = AllGradients(shard, atom, all);
      keys.out = writer_.AddBuffer(FinishedOf(shard, atom, all));
      writer_.SendHome(first_ + 1, keys.out, all, peer);
    } else if (pass_.key_gradients) {
      for (const Interval& rows : ring.Wanted(shard)) {
        keys.gradients.push_back({writer_.AddBuffer(GradientsOf(shard, atom, rows)), rows});
        writer_.SendHome(first_ + 1, keys.gradients.back().buffer, rows, peer);
      }
    }
    received_keys_.push_back(std::move(keys));
  }

  // Own queries meet own keys during the exchange; all other pairs come after it.
  void AttendExchanged() {
    for (const Keys& keys : own_keys_) {
      for (const Slice& slice : slices_) {
        Attend(slice.owner == member_ ? pass_.first : first_, slice, keys.parts[0].buffer,
               keys.parts[0].rows, keys.gradients.empty() ? -1 : keys.gradients[0].buffer);
      }
    }
    for (const Keys& keys : received_keys_) AttendAll(first_, keys);
  }

  void AttendAll(int32_t step, const Keys& keys) {
    Ring::ForEachWanted(RingFor(member_, keys.atom).Wanted(keys.shard), keys.parts, keys.gradients,
                        [&](int32_t buffer, Interval rows, int32_t dkv) {
                          for (const Slice& slice : slices_) Attend(step, slice, buffer, rows, dkv);
                        });
  }

  void Attend(int32_t step, const Slice& slice, int32_t keys, Interval rows, int32_t dkv) {
    writer_.Attend(step, {slice.q, keys, slice.state, {0, slice.rows}, rows, dkv});
  }

  // Moves keys whose exchange is `distance` before this one. They are used in step first_ +
  // distance.
  void Travel(int32_t distance) {
    const Ring::Timing timing{first_, 1};
    if (distance == 0) {
      for (const auto* list : {&own_keys_, &received_keys_}) {
        for (const Keys& keys : *list) {
          if (!Needs(member_, keys.atom)) continue;
          RingFor(member_, keys.atom).SendOn(keys.shard, 0, keys.parts, timing, &writer_);
        }
      }
      return;
    }
    const int32_t from = (exchange_ - distance + exchanges_) % exchanges_;
    for (int32_t turn = 0; turn < members_; ++turn) {
      // Same order as at the rank where the keys start: it sends its own keys first, and then those
      // that it received from the other members, by member.
      const int32_t owner = turn == 0 ? member_ : turn <= member_ ? turn - 1 : turn;
      for (const int32_t shard : ShardsOf(from, owner)) {
        ForEachAtom(member_, [&](int32_t atom) {
          const Ring& ring = RingFor(member_, atom);
          auto parts = ring.Receive(KeysOf(shard, atom, {}), distance, timing, &writer_);
          ring.SendOn(shard, distance, parts, timing, &writer_);
          if (parts.empty()) return;
          visitors_.push_back({{shard, owner, atom, std::move(parts), {}, -1}, distance});
        });
      }
    }
  }

  // The route of the gradients of an atom of a shard that starts `offset` members from `member` of
  // this exchange in its ring.
  KeyGradients GradientsBehind(int32_t member, const Keys& keys, int32_t offset) const {
    return KeyGradients(group_.needs, GradientsOf(keys.shard, keys.atom, {}),
                        RingFor(member, keys.atom).VisitsFrom(offset), first_ + 1);
  }

  void AttendVisitor(const Visitor& visitor) {
    Keys keys = visitor.keys;
    if (pass_.key_gradients) {
      const int32_t from = (exchange_ - visitor.distance + exchanges_) % exchanges_;
      keys.gradients = GradientsBehind(member_, keys, -visitor.distance)
                           .Visit(RankOf(exchange_, member_), RankOf(from, keys.owner), &writer_);
    }
    AttendAll(first_ + visitor.distance, keys);
  }

  // Receives gradients of own keys. Sums come from the members of this exchange and from the last
  // stop of each ring. Finished gradients come from the member that computes them completely.
  void FinishKeys() {
    for (const Keys& keys : received_keys_) {
      if (keys.out < 0) continue;
      writer_.Apply(writer_.last_task_step(), Op::Kind::kFinish, keys.gradients[0].buffer,
                    keys.out);
    }
    for (const Keys& own : own_keys_) {
      if (own.gradients.empty()) {
        for (int32_t member = 0; member < members_; ++member) {
          if (Needs(member, own.atom)) ReceiveFinished(own, member);
        }
        continue;
      }
      const int32_t dkv = own.gradients[0].buffer;
      for (int32_t member = 0; member < members_; ++member) {
        if (!Needs(member, own.atom)) continue;
        if (member != member_) {
          for (const Interval& rows : RingFor(member, own.atom).Wanted(own.shard)) {
            writer_.ReceiveInto(first_ + 1, dkv, rows, RankOf(exchange_, member));
          }
        }
        GradientsBehind(member, own, 0).ComeHome(dkv, &writer_);
      }
      writer_.Apply(writer_.steps() - 1, Op::Kind::kFinish, dkv, own.out);
    }
  }

  void ReceiveFinished(const Keys& own, int32_t member) {
    writer_.Receive(first_ + 1, own.out, own.parts[0].rows, RankOf(exchange_, member));
  }

  // Outputs of other ranks' queries go home in the last step.
  void Finish() {
    const int32_t finish = writer_.last_task_step(), home = writer_.steps() - 1;
    for (const Slice& slice : slices_) {
      const Block& q = writer_.block(slice.q);
      const Block block = OutputOf(slice.shard, {q.head_begin, q.head_end});
      const bool own = slice.owner == member_;
      const int32_t out = own ? writer_.AddOutput(block) : writer_.AddBuffer(block);
      writer_.Apply(finish, Op::Kind::kFinish, slice.state, out);
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
  const Pass& pass_;
  const int32_t first_;
  const HeadPartition shares_;
  ScheduleWriter writer_;
  std::vector<std::vector<Ring>> rings_;  // By member of this exchange, then by its atom.
  std::vector<Slice> slices_;
  std::vector<Keys> own_keys_, received_keys_;
  std::vector<Visitor> visitors_;
};

}  // namespace

RankSchedule BuildUlyssesRing(const GroupView& group, int32_t rank) {
  return GridRank(group, rank).Build();
}

}  // namespace annulus
