#include "attention/schedule/gradient_rows.h"

namespace annulus {

GradientRows::GradientRows(const GroupView& group, int32_t rank, ScheduleWriter* writer)
    : writer_(writer) {
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
      own.q = writer->AddInput(block(BlockKind::kQGrad));
      own.forward = writer->AddInput(block(BlockKind::kOut));
      own.dq = writer->AddBuffer(block(BlockKind::kDq));
      own.out = writer->AddOutput(block(BlockKind::kDqOut));
      own.rows = {0, q_rows};
      queries_.push_back(own);
    }
    if (k_rows > 0) {
      const auto block = [&](BlockKind kind) {
        return Block{kind, shard, 0, k_rows, 0, spec.kv_heads};
      };
      Keys own;
      own.shard = shard;
      own.buffer = writer->AddInput(block(BlockKind::kKv));
      own.dkv = writer->AddBuffer(block(BlockKind::kDkv));
      own.out = writer->AddOutput(block(BlockKind::kDkvOut));
      own.rows = {0, k_rows};
      keys_.push_back(own);
    }
  }
}

void GradientRows::Begin(int32_t step) {
  for (const Queries& own : queries_) writer_->Apply(step, Op::Kind::kDelta, own.forward, own.q);
}

void GradientRows::Attend(int32_t step, int32_t kv_buffer, Interval rows, int32_t dkv) {
  for (const Queries& own : queries_) {
    writer_->Attend(step, {own.q, kv_buffer, own.dq, own.rows, rows, dkv});
  }
}

void GradientRows::AttendOwn(int32_t step) {
  for (const Keys& own : keys_) Attend(step, own.buffer, own.rows, own.dkv);
}

void GradientRows::Finish(int32_t step) {
  for (const Queries& own : queries_) writer_->Apply(step, Op::Kind::kFinish, own.dq, own.out);
  for (const Keys& own : keys_) writer_->Apply(step, Op::Kind::kFinish, own.dkv, own.out);
}

}  // namespace annulus
