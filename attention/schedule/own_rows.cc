#include "attention/schedule/own_rows.h"

#include <algorithm>

namespace annulus {

OwnRows::OwnRows(const GroupView& group, int32_t rank, ScheduleWriter* writer) : writer_(writer) {
  const AttentionSpec& spec = *group.request.spec;
  for (const int32_t shard : group.needs.ShardsOf(rank)) {
    const int64_t q_rows = group.shard(shard).q_rows.rows();
    const int64_t k_rows = group.shard(shard).kv_rows.rows();
    if (q_rows > 0) {
      const auto block = [&](BlockKind kind) {
        return Block{kind, shard, 0, q_rows, 0, spec.q_heads};
      };
      Queries own;
      own.shard = shard;
      own.q = writer->AddInput(block(BlockKind::kQ));
      own.partial = writer->AddBuffer(block(BlockKind::kPartial));
      own.out = writer->AddOutput(block(BlockKind::kOut));
      own.rows = {0, q_rows};
      queries_.push_back(own);
    }
    if (k_rows > 0) {
      const Block block{BlockKind::kKv, shard, 0, k_rows, 0, spec.kv_heads};
      keys_.push_back({shard, writer->AddInput(block), {0, k_rows}});
    }
  }
}

int32_t OwnRows::KeysOf(int32_t shard) const {
  const auto found =
      std::find_if(keys_.begin(), keys_.end(), [&](const Keys& own) { return own.shard == shard; });
  return found == keys_.end() ? -1 : found->buffer;
}

void OwnRows::Attend(int32_t step, int32_t kv_buffer, Interval rows) {
  for (const Queries& own : queries_) {
    writer_->Attend(step, {own.q, kv_buffer, own.partial, own.rows, rows});
  }
}

void OwnRows::AttendOwn(int32_t step) {
  for (const Keys& own : keys_) Attend(step, own.buffer, own.rows);
}

void OwnRows::Finish(int32_t step) {
  for (const Queries& own : queries_) {
    writer_->Apply(step, Op::Kind::kFinish, own.partial, own.out);
  }
}

}  // namespace annulus
