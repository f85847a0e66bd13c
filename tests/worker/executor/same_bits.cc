#include "tests/worker/executor/same_bits.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "attention/sharding/shard_plan.h"
#include "attention/spec/parallel_degrees.h"

namespace annulus {
namespace {

constexpr Strategy kStrategies[] = {
    Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,  Strategy::kHalo,
    Strategy::kUlysses,    Strategy::kUlyssesRing, Strategy::kDoubleRing};
constexpr Layout kLayouts[] = {Layout::kZigzag, Layout::kContiguous, Layout::kStriped,
                               Layout::kZigzagPerSequence, Layout::kByArea};

JobCase Job(DataType dtype, int32_t q_heads, int32_t kv_heads, std::vector<Sequence> sequences) {
  JobCase job;
  job.spec = SmallSpec(dtype, 0, 0);
  job.spec.deterministic = true;
  job.spec.q_heads = q_heads;
  job.spec.kv_heads = kv_heads;
  job.spec.sequences = std::move(sequences);
  job.spec.masks.resize(1);
  job.spec.masks[0].causal = true;
  return job;
}

Sequence Rows(int64_t q_len, int64_t kv_len) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  return sequence;
}

void SetGradients(JobCase* job) {
  job->spec.operation = Operation::kGradients;
  job->spec.gradients.d_lse = true;
}

// Heads from 1 on see chunks.
void SetMaskOfHeads(JobCase* job) {
  Mask chunks = job->spec.masks[0];
  chunks.chunk = 190;
  for (int32_t head = 1; head < job->spec.q_heads; ++head) chunks.query_heads.push_back(head);
  job->spec.masks.push_back(chunks);
}

void SetAlibiAndWindow(JobCase* job) {
  for (int32_t head = 0; head < job->spec.q_heads; ++head)
    job->spec.modifiers.alibi_slopes.push_back(0.25f / static_cast<float>(1 + head));
  job->spec.masks[0].window_left = 290;
}

}  // namespace

bool Same(const Bits& a, const Bits& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    if (x.size() != y.size()) return false;
    return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

Bits BitsOf(const AttentionSpec& spec, const JobRunner& runner) {
  if (spec.operation == Operation::kGradients) {
    const reference::GradientAnswer answer = runner.GatheredGradients();
    return {answer.dq, answer.dk, answer.dv, answer.d_sink, answer.d_bias};
  }
  const reference::Answer answer = runner.Gathered();
  return {answer.out, answer.lse, answer.max_logit};
}

std::vector<Execution> FoldingWays(const AttentionSpec& spec, int32_t world, Strategy strategy) {
  Execution open;
  open.strategy = strategy;
  std::vector<Execution> ways;
  for (const Execution& way : ResolveDegrees(open, world, spec.q_heads)) {
    if (SharesKeyHeads(spec, way.ulysses_degree)) continue;
    if (!SharesBiasGradient(spec, way.ulysses_degree)) ways.push_back(way);
  }
  return ways;
}

bool SetFoldingPlan(int32_t world, Layout layout, Strategy strategy, uint64_t n, JobCase* job) {
  job->plan = {world, layout, /*stripe=*/kFoldTile, GranuleOf(job->spec)};
  const std::vector<Execution> ways = FoldingWays(job->spec, world, strategy);
  if (!ways.empty()) job->execution = ways[n % ways.size()];
  return !ways.empty();
}

std::vector<std::pair<std::string, JobCase>> SmallFoldingJobs() {
  std::vector<std::pair<std::string, JobCase>> jobs;
  const auto add = [&jobs](const char* name, const JobCase& job) {
    jobs.emplace_back(name, job);
    jobs.back().second.seed = jobs.size();
  };
  for (const bool gradients : {false, true}) {
    const auto made = [&](JobCase job) {
      if (gradients) SetGradients(&job);
      return job;
    };
    JobCase window = Job(DataType::kBf16, 4, 2, {Rows(301, 530)});
    SetAlibiAndWindow(&window);
    add(gradients ? "gradients bf16 window" : "bf16 window", made(window));
    add(gradients ? "gradients bf16 few queries" : "bf16 few queries",
        made(Job(DataType::kBf16, 4, 2, {Rows(5, 2301)})));
    JobCase heads = Job(DataType::kFp32, 2, 1, {Rows(270, 300), Rows(37, 401)});
    SetMaskOfHeads(&heads);
    heads.spec.modifiers.sinks = {-1.0f, 2.0f};
    add(gradients ? "gradients fp32 masks of heads" : "fp32 masks of heads", made(heads));
    JobCase groups = Job(DataType::kBf16, 3, 1, {Rows(290, 530)});
    groups.spec.dropout = Dropout{0.25, 11};
    if (gradients) {
      groups.spec.modifiers.bias = Bias{DataType::kBf16, 1};
      groups.spec.gradients.d_bias = true;
    }
    add(gradients ? "gradients bf16 groups of three" : "bf16 groups of three", made(groups));
  }
  return jobs;
}

std::vector<JobCase> FoldingPlans(const JobCase& job, int32_t world) {
  std::vector<JobCase> plans;
  for (size_t n = 0; n < std::size(kStrategies); ++n) {
    JobCase planned = job;
    const Layout layout = kLayouts[(n + job.seed) % std::size(kLayouts)];
    if (!SetFoldingPlan(world, layout, kStrategies[n], n + job.seed, &planned)) continue;
    planned.parts = static_cast<int32_t>(1 + n % 3);
    planned.segments = static_cast<int32_t>(1 + n % 2);
    plans.push_back(planned);
  }
  return plans;
}

}  // namespace annulus
