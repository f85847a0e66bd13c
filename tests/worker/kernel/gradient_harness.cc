#include "tests/worker/kernel/gradient_harness.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/block_numbers.h"

namespace annulus {
namespace {

// Row `row` of a packed [rows, heads, dim] tensor, one head, from or to a section of a block.
struct Cell {
  int64_t row;
  int32_t head, heads, dim;
  size_t at() const { return (static_cast<size_t>(row) * heads + head) * dim; }
};

std::vector<double> Slice(const std::vector<double>& tensor, const Cell& cell) {
  return {tensor.begin() + cell.at(), tensor.begin() + cell.at() + cell.dim};
}

void Put(const std::vector<double>& values, const Cell& cell, std::vector<float>* tensor) {
  std::copy(values.begin(), values.end(), tensor->begin() + cell.at());
}

}  // namespace

GradientHarness::GradientHarness(const AttentionSpec& spec, const reference::Input& input,
                                 const reference::Upstream& upstream, const Cuts& cuts)
    : spec_(spec), cuts_(cuts), mask_(spec), layout_(spec), q_rows_(AllRows(spec.q_rows())) {
  MakePieces(input, upstream);
  MakeShards(input);
}

void GradientHarness::MakePieces(const reference::Input& input,
                                 const reference::Upstream& upstream) {
  for (const Interval& rows : PiecesOf(spec_.q_rows(), cuts_.q_rows)) {
    for (const Interval& heads :
         PiecesOf(spec_.q_heads, {cuts_.q_heads.begin(), cuts_.q_heads.end()})) {
      const auto make = [&](BlockKind kind) {
        return std::make_unique<OwnedBlock>(
            layout_, Block{kind, 0, rows.begin, rows.end, static_cast<int32_t>(heads.begin),
                           static_cast<int32_t>(heads.end)});
      };
      Piece piece{make(BlockKind::kQGrad),
                  make(BlockKind::kOut),
                  make(BlockKind::kDq),
                  make(BlockKind::kDqOut),
                  make(BlockKind::kDSinkOut),
                  nullptr,
                  nullptr};
      piece.pairs = PairsBeside(spec_, layout_, input, piece.q->block);
      if (layout_.pairs().d_bias) {
        Block block = piece.q->block;
        block.kind = BlockKind::kDBias;
        if (layout_.pairs().bias_heads == 1) {
          block.head_begin = 0;
          block.head_end = 1;
        }
        piece.d_bias = std::make_unique<OwnedBlock>(layout_, block);
      }
      const BlockView q = piece.q->view(), forward = piece.forward->view();
      const BlockNumbers into(layout_, q), out(layout_, forward);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int32_t h = q.block.head_begin; h < q.block.head_end; ++h) {
          const Cell wide{row, h, spec_.q_heads, spec_.value_dim()}, one{row, h, spec_.q_heads, 1};
          into.Write(row, h, 0, Slice(input.q, {row, h, spec_.q_heads, spec_.head_dim}));
          into.Write(row, h, 1, Slice(upstream.d_out, wide));
          into.Write(row, h, 2, Slice(upstream.lse, one));
          into.Write(row, h, 3,
                     upstream.d_lse.empty() ? std::vector<double>{0} : Slice(upstream.d_lse, one));
          if (layout_.lse_rest(BlockKind::kQGrad))
            into.Write(row, h, 4, Slice(upstream.lse_rest, one));
          out.Write(row, h, 0, Slice(upstream.out, wide));
          if (layout_.rounds_d_out()) out.Write(row, h, 4, Slice(upstream.d_out, wide));
        }
      }
      pieces_.push_back(std::move(piece));
    }
  }
}

void GradientHarness::MakeShards(const reference::Input& input) {
  for (int s = 0; s < cuts_.key_shards; ++s) {
    const RowMap rows = RowsOfShard(spec_.kv_rows(), cuts_, s);
    const auto make = [&](BlockKind kind) {
      return std::make_unique<OwnedBlock>(layout_,
                                          Block{kind, s, 0, rows.rows(), 0, spec_.kv_heads});
    };
    Shard shard{rows, make(BlockKind::kKv), make(BlockKind::kDkv), make(BlockKind::kDkvOut)};
    const BlockView view = shard.kv->view();
    const BlockNumbers kv(layout_, view);
    for (int64_t local = 0; local < rows.rows(); ++local) {
      const int64_t row = rows.Global(local);
      for (int32_t h = 0; h < spec_.kv_heads; ++h) {
        kv.Write(local, h, 0, Slice(input.k, {row, h, spec_.kv_heads, spec_.head_dim}));
        kv.Write(local, h, 1, Slice(input.v, {row, h, spec_.kv_heads, spec_.value_dim()}));
      }
    }
    shards_.push_back(std::move(shard));
  }
}

KernelJob GradientHarness::job() const {
  KernelJob job;
  job.spec = &spec_;
  job.mask = &mask_;
  job.layout = &layout_;
  job.scale = spec_.scale_or_default();
  return job;
}

std::vector<KernelTask> GradientHarness::Tasks() {
  std::vector<KernelTask> tasks;
  for (Shard& shard : shards_) {
    for (const Interval& keys : PiecesOf(shard.rows.rows(), cuts_.keys)) {
      for (Piece& piece : pieces_) {
        KernelTask bound;
        bound.task = TaskOf(mask_, q_rows_, shard.rows, piece.q->block, keys);
        if (bound.task.coverage == Coverage::kEmpty) continue;
        bound.q = piece.q->view();
        if (piece.pairs != nullptr) bound.pairs = piece.pairs->view();
        bound.kv = shard.kv->view();
        bound.out_q = piece.dq->view();
        if (piece.d_bias != nullptr) bound.out_bias = piece.d_bias->view();
        bound.out_kv = shard.dkv->view();
        bound.q_rows = &q_rows_;
        bound.k_rows = &shard.rows;
        tasks.push_back(bound);
      }
    }
  }
  return tasks;
}

absl::Status GradientHarness::Prepare(AttentionKernel& kernel) {
  absl::Status status;
  for (Piece& piece : pieces_) {
    status.Update(
        kernel.Apply(job(), {KernelOp::Kind::kDelta, piece.forward->view(), piece.q->view()}));
    status.Update(kernel.Apply(job(), {KernelOp::Kind::kIdentity, {}, piece.dq->view()}));
    if (piece.d_bias != nullptr) {
      status.Update(kernel.Apply(job(), {KernelOp::Kind::kIdentity, {}, piece.d_bias->view()}));
    }
    if (spec_.modifiers.sinks.empty()) continue;
    status.Update(
        kernel.Apply(job(), {KernelOp::Kind::kSink, piece.q->view(), piece.d_sink->view()}));
  }
  for (Shard& shard : shards_) {
    status.Update(kernel.Apply(job(), {KernelOp::Kind::kIdentity, {}, shard.dkv->view()}));
  }
  return status;
}

absl::Status GradientHarness::Finish(AttentionKernel& kernel) {
  absl::Status status;
  for (Piece& piece : pieces_) {
    status.Update(
        kernel.Apply(job(), {KernelOp::Kind::kFinish, piece.dq->view(), piece.out->view()}));
  }
  for (Shard& shard : shards_) {
    status.Update(
        kernel.Apply(job(), {KernelOp::Kind::kFinish, shard.dkv->view(), shard.out->view()}));
  }
  return status;
}

absl::Status GradientHarness::Run(AttentionKernel& kernel, const KernelControl& control,
                                  bool one_side_at_a_time) {
  absl::Status status = Prepare(kernel);
  std::vector<KernelTask> tasks;
  for (const KernelTask& task : Tasks()) {
    tasks.push_back(task);
    if (!one_side_at_a_time) continue;
    tasks.push_back(task);
    tasks[tasks.size() - 2].out_kv = BlockView();
    tasks.back().out_q = tasks.back().out_bias = BlockView();
  }
  const size_t step = cuts_.call_per_task ? 1 : std::max<size_t>(1, tasks.size());
  for (size_t t = 0; t < tasks.size() && status.ok(); t += step) {
    status = kernel.Accumulate(job(), absl::MakeConstSpan(tasks).subspan(t, step), control);
  }
  if (!status.ok()) return status;
  return Finish(kernel);
}

reference::GradientAnswer GradientHarness::answer() const {
  reference::GradientAnswer answer;
  answer.inputs = reference::PrecisionOf(spec_.dtype);
  answer.dq.resize(spec_.q_rows() * spec_.q_heads * spec_.head_dim, NAN);
  answer.dk.resize(spec_.kv_rows() * spec_.kv_heads * spec_.head_dim, NAN);
  answer.dv.resize(spec_.kv_rows() * spec_.kv_heads * spec_.value_dim(), NAN);
  const bool sinks = !spec_.modifiers.sinks.empty();
  if (sinks) answer.d_sink.resize(spec_.q_rows() * spec_.q_heads, NAN);
  for (const Piece& piece : pieces_) {
    const BlockView view = piece.out->view(), of_sinks = piece.d_sink->view();
    const BlockNumbers out(layout_, view), d_sink(layout_, of_sinks);
    for (int64_t row = view.block.row_begin; row < view.block.row_end; ++row) {
      for (int32_t h = view.block.head_begin; h < view.block.head_end; ++h) {
        Put(out.Read(row, h, 0), {row, h, spec_.q_heads, spec_.head_dim}, &answer.dq);
        if (sinks) Put(d_sink.Read(row, h, 0), {row, h, spec_.q_heads, 1}, &answer.d_sink);
      }
    }
  }
  AddBiasGradient(&answer);
  for (const Shard& shard : shards_) {
    const BlockView view = shard.out->view();
    const BlockNumbers out(layout_, view);
    for (int64_t row = 0; row < shard.rows.rows(); ++row) {
      for (int32_t h = 0; h < spec_.kv_heads; ++h) {
        const int64_t global = shard.rows.Global(row);
        Put(out.Read(row, h, 0), {global, h, spec_.kv_heads, spec_.head_dim}, &answer.dk);
        Put(out.Read(row, h, 1), {global, h, spec_.kv_heads, spec_.value_dim()}, &answer.dv);
      }
    }
  }
  return answer;
}

// Pieces of heads of one row are added if the bias is shared by all heads.
void GradientHarness::AddBiasGradient(reference::GradientAnswer* answer) const {
  const BiasAndMaskInputs& pairs = layout_.pairs();
  if (!pairs.d_bias) return;
  answer->bias_heads = pairs.bias_heads;
  answer->d_bias.resize(spec_.q_rows() * pairs.bias_heads * pairs.width);
  for (const Piece& piece : pieces_) {
    const BlockView view = piece.d_bias->view();
    const BlockNumbers sums(layout_, view);
    for (int64_t row = view.block.row_begin; row < view.block.row_end; ++row) {
      for (int32_t h = view.block.head_begin; h < view.block.head_end; ++h) {
        const std::vector<double> more = sums.Read(row, h, 0);
        float* to = answer->d_bias.data() + (row * pairs.bias_heads + h) * pairs.width;
        for (size_t i = 0; i < more.size(); ++i) to[i] += static_cast<float>(more[i]);
      }
    }
  }
}

std::vector<std::byte> GradientHarness::state() const {
  std::vector<std::byte> all;
  for (const Piece& piece : pieces_) {
    all.insert(all.end(), piece.dq->bytes.begin(), piece.dq->bytes.end());
    if (piece.d_bias == nullptr) continue;
    all.insert(all.end(), piece.d_bias->bytes.begin(), piece.d_bias->bytes.end());
  }
  for (const Shard& shard : shards_)
    all.insert(all.end(), shard.dkv->bytes.begin(), shard.dkv->bytes.end());
  return all;
}

testing::AssertionResult GradientsWithinBudget(AttentionKernel& kernel, const AttentionSpec& spec,
                                               const reference::Input& input,
                                               const reference::Upstream& upstream,
                                               const Cuts& cuts) {
  GradientHarness harness(spec, input, upstream, cuts);
  const absl::Status status = harness.Run(kernel);
  if (!status.ok()) return testing::AssertionFailure() << status << " " << Describe(spec, cuts);
  testing::AssertionResult result = reference::CheckGradients(input, upstream, harness.answer());
  if (result) return result;
  return testing::AssertionFailure()
         << kernel.Description() << " " << Describe(spec, cuts) << ": " << result.message();
}

}  // namespace annulus
