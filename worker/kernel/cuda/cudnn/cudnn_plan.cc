#include "worker/kernel/cuda/cudnn/cudnn_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "attention/spec/interval.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"

namespace annulus::cuda {
namespace {

constexpr int64_t kAlignment = 16;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct HeadRange {
  int32_t begin, end;
};

// The first heads of [heads.begin, heads.end) with the same visibility, cut to whole groups or to
// part of one group.
HeadRange FirstHeads(const KernelJob& job, HeadRange heads, bool all_see_all) {
  const int32_t group = job.layout->group();
  int32_t end = heads.begin + 1;
  while (end < heads.end &&
         (all_see_all || job.mask->ClassOf(end) == job.mask->ClassOf(heads.begin)))
    ++end;
  const int32_t group_end = (heads.begin / group + 1) * group;
  if (end <= group_end) return {heads.begin, end};
  return {heads.begin, heads.begin % group == 0 ? end / group * group : group_end};
}

int32_t KvHeadsOf(const Task& task, int32_t group) {
  return (task.head_end - 1) / group - task.head_begin / group + 1;
}

bool Aligned(const std::byte* data, int64_t stride) {
  return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(stride)) % kAlignment == 0;
}

int64_t MeansBytesOfRow(const KernelJob& job, const Task& task) {
  const int64_t heads = task.head_end - task.head_begin;
  return RoundUp(heads * job.layout->value_dim() * 4, kAlignment) + 2 * RoundUp(heads * 4, 16);
}

void SetInputs(const KernelJob& job, const KernelTask& bound, CudnnTensors* at) {
  const BlockLayout& layout = *job.layout;
  const Task& task = bound.task;
  const BlockAt q = BlockAtOf(layout, bound.q), kv = BlockAtOf(layout, bound.kv);
  const int32_t heads = bound.kv.block.head_end - kv.head_begin;
  const int64_t kv_head = task.head_begin / layout.group() - kv.head_begin;
  const std::byte* const keys = kv.data + (task.k_begin - kv.row_begin) * kv.row_bytes;
  at->q = q.data + (task.q_begin - q.row_begin) * q.row_bytes +
          int64_t{task.head_begin - q.head_begin} * layout.head_dim() * 2;
  at->k = keys + kv_head * layout.head_dim() * 2;
  at->v = keys + layout.SecondOffset(BlockKind::kKv, heads) + kv_head * layout.value_dim() * 2;
}

bool TaskFits(const KernelJob& job, const KernelTask& bound, int64_t most_numbers) {
  const Task& task = bound.task;
  if (bound.q.block.kind != BlockKind::kQ || bound.out_q.block.kind != BlockKind::kPartial)
    return false;
  if (bound.q.apart != nullptr || bound.kv.apart != nullptr || bound.out_q.apart != nullptr)
    return false;
  CudnnTensors at;
  SetInputs(job, bound, &at);
  const int64_t q_stride = BlockAtOf(*job.layout, bound.q).row_bytes;
  const int64_t kv_stride = BlockAtOf(*job.layout, bound.kv).row_bytes;
  return Aligned(at.q, q_stride) && Aligned(at.k, kv_stride) && Aligned(at.v, kv_stride) &&
         (task.k_end - task.k_begin) * kv_stride / 2 < most_numbers;
}

void Append(CudnnCut parts, CudnnCut* cut) {
  std::move(parts.rectangles.begin(), parts.rectangles.end(), std::back_inserter(cut->rectangles));
  std::move(parts.rest.begin(), parts.rest.end(), std::back_inserter(cut->rest));
}

// Cuts a task for heads with the same visibility.
class TaskCutter {
 public:
  TaskCutter(const KernelJob& job, const CudnnRule& rule, const KernelTask& bound)
      : job_(job), rule_(rule), bound_(bound) {}

  void CutAll(CudnnCut* cut) const {
    const Task& task = bound_.task;
    const Interval rows = {task.q_begin, task.q_end}, keys = {task.k_begin, task.k_end};
    const bool full = task.coverage == Coverage::kFull;
    Cut(rows, keys, full ? Coverage::kFull : CoverageOf(rows, keys), cut);
  }

 private:
  void Cut(Interval rows, Interval keys, Coverage coverage, CudnnCut* cut) const {
    if (coverage == Coverage::kEmpty) return;
    const bool large = rows.length() >= rule_.least_rows && keys.length() >= rule_.least_keys;
    if (large && coverage == Coverage::kFull) return AddRectangle(rows, keys, cut);
    CudnnCut parts;
    if (large) CutInTwo(rows, keys, &parts);
    // If nothing is gained, the task stays whole.
    if (parts.rectangles.empty()) return cut->rest.push_back(Part(rows, keys, coverage));
    Append(std::move(parts), cut);
  }

  KernelTask Part(Interval rows, Interval keys, Coverage coverage) const {
    KernelTask part = bound_;
    part.task.q_begin = rows.begin;
    part.task.q_end = rows.end;
    part.task.k_begin = keys.begin;
    part.task.k_end = keys.end;
    part.task.coverage = coverage;
    return part;
  }

  void CutInTwo(Interval rows, Interval keys, CudnnCut* cut) const {
    const bool by_rows = rows.length() >= keys.length();
    const Interval& all = by_rows ? rows : keys;
    const int64_t middle = RoundUp(all.begin + all.length() / 2, rule_.granule);
    if (middle >= all.end) return;
    Interval first_rows = rows, last_rows = rows, first_keys = keys, last_keys = keys;
    (by_rows ? first_rows : first_keys).end = middle;
    (by_rows ? last_rows : last_keys).begin = middle;
    Cut(first_rows, first_keys, CoverageOf(first_rows, first_keys), cut);
    Cut(last_rows, last_keys, CoverageOf(last_rows, last_keys), cut);
  }

  // The coverage of the packed rows from the first to the last. Other shards may have rows in
  // between, so the result never claims more than is visible.
  Coverage CoverageOf(Interval rows, Interval keys) const {
    const Interval packed_rows = {bound_.q_rows->Global(rows.begin),
                                  bound_.q_rows->Global(rows.end - 1) + 1};
    const Interval packed_keys = {bound_.k_rows->Global(keys.begin),
                                  bound_.k_rows->Global(keys.end - 1) + 1};
    return job_.mask->Classify(bound_.task.head_begin, packed_rows, packed_keys);
  }

  // Adds a rectangle, in pieces whose means fit the scratch and whose queries stay below
  // most_numbers.
  void AddRectangle(Interval rows, Interval keys, CudnnCut* cut) const {
    const int64_t numbers_of_row = BlockAtOf(*job_.layout, bound_.q).row_bytes / 2;
    const int64_t most = std::min(rule_.scratch_bytes / MeansBytesOfRow(job_, bound_.task),
                                  (rule_.most_numbers - 1) / numbers_of_row);
    const int64_t fit = most / rule_.granule * rule_.granule;
    if (fit == 0) return cut->rest.push_back(Part(rows, keys, Coverage::kFull));
    const int64_t pieces = (rows.length() + fit - 1) / fit;
    const int64_t step = RoundUp((rows.length() + pieces - 1) / pieces, rule_.granule);
    for (int64_t begin = rows.begin; begin < rows.end; begin += step) {
      cut->rectangles.push_back(
          Part({begin, std::min(rows.end, begin + step)}, keys, Coverage::kFull));
    }
  }

  const KernelJob& job_;
  const CudnnRule& rule_;
  const KernelTask& bound_;
};

CudnnCut CutTask(const KernelJob& job, const KernelTask& bound, const CudnnRule& rule) {
  CudnnCut cut;
  const bool full = bound.task.coverage == Coverage::kFull;
  HeadRange left = {bound.task.head_begin, bound.task.head_end};
  while (left.begin < left.end) {
    const HeadRange heads = FirstHeads(job, left, full);
    KernelTask part = bound;
    part.task.head_begin = heads.begin;
    part.task.head_end = heads.end;
    if (TaskFits(job, part, rule.most_numbers))
      TaskCutter(job, rule, part).CutAll(&cut);
    else
      cut.rest.push_back(part);
    left.begin = heads.end;
  }
  return cut;
}

}  // namespace

bool CudnnServes(const KernelJob& job) {
  const BlockLayout& layout = *job.layout;
  const ForwardKind kind = KindOf(job);
  if (kind.element != Element::kFp16 && kind.element != Element::kBf16) return false;
  if (kind.changes || job.spec->dropout || job.spec->deterministic) return false;
  const auto dim_fits = [](int32_t dim) { return dim > 0 && dim % 8 == 0 && dim <= kMaxDim; };
  return dim_fits(layout.head_dim()) && dim_fits(layout.value_dim()) &&
         std::isnormal(static_cast<float>(job.scale)) && job.scale > 0;
}

CudnnCut CutForCudnn(const KernelJob& job, absl::Span<const KernelTask> tasks,
                     const CudnnRule& rule) {
  CudnnCut cut;
  const bool serves = CudnnServes(job);
  for (const KernelTask& bound : tasks) {
    CudnnCut parts;
    if (serves) parts = CutTask(job, bound, rule);
    if (parts.rectangles.empty())
      cut.rest.push_back(bound);
    else
      Append(std::move(parts), &cut);
  }
  return cut;
}

double WorkOf(const KernelJob& job, const KernelTask& rectangle) {
  const Task& task = rectangle.task;
  return static_cast<double>(task.q_end - task.q_begin) *
         static_cast<double>(task.k_end - task.k_begin) * (task.head_end - task.head_begin) *
         (job.layout->head_dim() + job.layout->value_dim());
}

CudnnShape ShapeOf(const KernelJob& job, const KernelTask& rectangle) {
  const BlockLayout& layout = *job.layout;
  const Task& task = rectangle.task;
  CudnnShape shape;
  shape.dtype = layout.dtype();
  shape.head_dim = layout.head_dim();
  shape.value_dim = layout.value_dim();
  shape.q_heads = task.head_end - task.head_begin;
  shape.kv_heads = KvHeadsOf(task, layout.group());
  shape.rows = task.q_end - task.q_begin;
  shape.keys = task.k_end - task.k_begin;
  shape.q_stride = BlockAtOf(layout, rectangle.q).row_bytes / 2;
  shape.kv_stride = BlockAtOf(layout, rectangle.kv).row_bytes / 2;
  shape.out_stride = MeansBytesOfRow(job, task) / 4;
  return shape;
}

CudnnTensors TensorsOf(const KernelJob& job, const KernelTask& rectangle, std::byte* scratch) {
  CudnnTensors at;
  SetInputs(job, rectangle, &at);
  const MeansAt means = MeansOf(job, rectangle, scratch);
  at.out = means.data;
  at.max = means.data + means.max_offset;
  at.weight = means.data + means.weight_offset;
  return at;
}

MeansAt MeansOf(const KernelJob& job, const KernelTask& rectangle, std::byte* scratch) {
  const Task& task = rectangle.task;
  const int64_t heads = task.head_end - task.head_begin;
  MeansAt means;
  means.data = scratch;
  means.row_bytes = MeansBytesOfRow(job, task);
  means.max_offset = heads * job.layout->value_dim() * 4;
  means.weight_offset = means.max_offset + RoundUp(heads * 4, kAlignment);
  return means;
}

}  // namespace annulus::cuda
