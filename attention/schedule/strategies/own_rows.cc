#include "attention/schedule/strategies/own_rows.h"

#include <algorithm>

namespace annulus {

OwnRows::OwnRows(const GroupView& group, int32_t rank, ScheduleWriter* writer) : writer_(writer) {
  for (const int32_t shard : group.needs.ShardsOf(rank)) {
    AddQueries(group, shard, group.shard(shard).q_rows.rows());
    AddKeys(group, shard, group.shard(shard).kv_rows.rows());
  }
}

void OwnRows::AddQueries(const GroupView& group, int32_t shard, int64_t rows) {
  if (rows == 0) return;
  const auto block = [&](BlockKind kind) {
    return Block{kind, shard, 0, rows, 0, group.request.spec->q_heads};
  };
  const Pass& pass = group.pass();
  Queries own;
  own.shard = shard;
  own.q = writer_->AddOwnQueries(shard, {0, rows}, {0, group.request.spec->q_heads});
  own.state = writer_->AddBuffer(block(pass.state));
  own.out = writer_->AddOutput(block(pass.finished));
  own.rows = {0, rows};
  queries_.push_back(own);
}

void OwnRows::AddKeys(const GroupView& group, int32_t shard, int64_t rows) {
  if (rows == 0) return;
  const auto block = [&](BlockKind kind) {
    return Block{kind, shard, 0, rows, 0, group.request.spec->kv_heads};
  };
  Keys own;
  own.shard = shard;
  own.buffer = writer_->AddInput(block(BlockKind::kKv));
  if (group.pass().key_gradients) {
    own.dkv = writer_->AddBuffer(block(BlockKind::kDkv));
    own.out = writer_->AddOutput(block(BlockKind::kDkvOut));
  }
  own.rows = {0, rows};
  keys_.push_back(own);
}

const OwnRows::Keys* OwnRows::KeysOf(int32_t shard) const {
  const auto found =
      std::find_if(keys_.begin(), keys_.end(), [&](const Keys& own) { return own.shard == shard; });
  return found == keys_.end() ? nullptr : &*found;
}

void OwnRows::Attend(int32_t step, int32_t kv_buffer, Interval rows, int32_t dkv) {
  for (const Queries& own : queries_) {
    writer_->Attend(step, {own.q, kv_buffer, own.state, own.rows, rows, dkv});
  }
}

void OwnRows::AttendOwn(int32_t step) {
  for (const Keys& own : keys_) Attend(step, own.buffer, own.rows, own.dkv);
}

void OwnRows::Finish(int32_t step) {
  for (const Queries& own : queries_) writer_->Apply(step, Op::Kind::kFinish, own.state, own.out);
  for (const Keys& own : keys_) {
    if (own.out >= 0) writer_->Apply(step, Op::Kind::kFinish, own.dkv, own.out);
  }
}

}  // namespace annulus
