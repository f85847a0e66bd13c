#include "client/cli/job_outcome.h"

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/report.h"
#include "client/cli/shape_text.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

nlohmann::json StatsJson(const v1::JobStats& stats) {
  const auto seconds = [](const auto& duration) {
    return absl::ToDoubleSeconds(DurationFromProto(duration));
  };
  return {{"queued_seconds", seconds(stats.queued())},
          {"uploading_seconds", seconds(stats.uploading())},
          {"running_seconds", seconds(stats.running())},
          {"exposed_communication_seconds", seconds(stats.exposed_communication())},
          {"bytes_sent_per_rank", stats.bytes_sent_per_rank()},
          {"backend", stats.backend()}};
}

// The bytes sent to the service: less than the job's inputs if a state had the rest.
int64_t BytesSent(const JobOutcome& outcome) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(outcome.sent)) {
    if (tensor.direction != Direction::kInput) continue;
    bytes += RowsOf(tensor, outcome.sent) * tensor.row_bytes();
  }
  return bytes;
}

double GigabytesPerSecond(const AttendJob& job, const JobOutcome& outcome) {
  const auto bytes = static_cast<double>(BytesSent(outcome) + job.bytes(Direction::kOutput));
  return bytes / 1e9 / absl::ToDoubleSeconds(outcome.took);
}

// The execution that ran, or the planned one if the stats have none.
const v1::Execution& ExecutionOf(const AttendResult& result) {
  return result.stats.has_execution() ? result.stats.execution() : result.plan.execution();
}

nlohmann::json VerifiedJson(const Verification& verified) {
  if (verified.gradients.has_value()) {
    const GradientReport& report = *verified.gradients;
    return {{"q_rows", report.q_rows},
            {"k_rows", report.k_rows},
            {"seed", verified.seed},
            {"worst_tensor", std::string(TensorName(report.worst_tensor))},
            {"worst_head", report.worst_head},
            {"error", report.error},
            {"budget", report.budget}};
  }
  const VerifyReport& report = *verified.report;
  return {{"rows", report.rows.size()},
          {"seed", verified.seed},
          {"worst_head", report.worst_head},
          {"output_error", report.output_error},
          {"output_budget", report.output_budget},
          {"lse_part", report.lse_part}};
}

void PrintVerified(const Verification& verified) {
  if (verified.gradients.has_value()) {
    const GradientReport& report = *verified.gradients;
    if (report.q_rows == 0 && report.k_rows == 0) {
      std::cout << "verified nothing: no rows\n";
      return;
    }
    std::cout << absl::StrFormat(
        "verified %d query and %d key rows (seed %d): %s of head %d off by %.3g of %.3g allowed\n",
        report.q_rows, report.k_rows, verified.seed, TensorName(report.worst_tensor),
        report.worst_head, report.error, report.budget);
    return;
  }
  const VerifyReport& report = *verified.report;
  if (report.rows.empty()) {
    std::cout << "verified nothing: no rows\n";
    return;
  }
  std::cout << absl::StrFormat(
      "verified %s (seed %d): output of head %d off by %.3g of %.3g allowed, LSE error %.3g of the "
      "allowed error\n",
      CountText(static_cast<int64_t>(report.rows.size()), "row"), verified.seed, report.worst_head,
      report.output_error, report.output_budget, report.lse_part);
}

// True if d_bias is written in full. With a kept state, the shape of the bias in the forward job's
// file is not known here.
bool IsOfWholeBias(const AttendJob& job) {
  return job.spec().uses_state() && job.spec().gradients.d_bias;
}

}  // namespace

nlohmann::json OutcomeJson(const AttendJob& job, const JobOutcome& outcome) {
  const AttendResult& result = outcome.result;
  nlohmann::json json = ExecutionJson(ExecutionOf(result));
  json.update(StatsJson(result.stats));
  json["job_id"] = result.stats.job_id();
  json["path"] = result.path == DataPath::kDirect ? "direct" : "gateway";
  json["sends"] = result.attempts;
  json["attempts"] = result.stats.attempts();
  json["seconds"] = absl::ToDoubleSeconds(outcome.took);
  json["predicted_seconds"] =
      absl::ToDoubleSeconds(DurationFromProto(result.plan.predicted_time()));
  json["balance"] = result.plan.balance();
  const auto base = result.stats.lse_base();
  if (base != 0) json["lse_base"] = base == v1::Outputs::LSE_BASE_2 ? "2" : "e";
  json["input_bytes"] = BytesSent(outcome);
  if (!outcome.handle.empty()) {
    json["state"] = {{"job_id", outcome.handle}, {"used", result.state_gone.empty()}};
    if (!result.state_gone.empty()) json["state"]["reason"] = result.state_gone;
    if (!outcome.release_unconfirmed.empty()) {
      json["state"]["release_unconfirmed"] = outcome.release_unconfirmed;
    }
  }
  if (result.stats_partial) json["stats_partial"] = true;
  json["output_bytes"] = job.bytes(Direction::kOutput);
  json["gigabytes_per_second"] = GigabytesPerSecond(job, outcome);
  for (const TensorInfo& tensor : TensorTable(job.spec())) {
    if (tensor.direction != Direction::kOutput) continue;
    json[absl::StrCat(TensorName(tensor.id), "_crc32c")] =
        absl::StrFormat("%08x", job.Crc32c(tensor.id));
  }
  if (IsOfWholeBias(job)) json["d_bias_whole"] = true;
  if (outcome.verified.has_value()) json["verified"] = VerifiedJson(*outcome.verified);
  if (job.spec().keeps_state()) {
    json["kept_for_seconds"] = absl::ToDoubleSeconds(*job.spec().forward.keep_state);
  }
  return json;
}

void PrintOutcome(const AttendJob& job, const JobOutcome& outcome) {
  const AttendResult& result = outcome.result;
  const auto ms = [](const auto& duration) {
    return absl::ToDoubleMilliseconds(DurationFromProto(duration));
  };
  const v1::JobStats& stats = result.stats;
  std::cout
      << "job " << stats.job_id() << ": " << ExecutionText(ExecutionOf(result)) << ", "
      << (result.path == DataPath::kDirect ? "direct" : "through the gateway") << ", "
      << stats.backend() << "\n"
      << ShapeText(job.spec()) << "\n"
      << absl::StrFormat(
             "%.1f ms: queued %.1f, uploading %.1f, running %.1f (%.1f of it waiting for others, "
             "predicted %.1f)\n",
             absl::ToDoubleMilliseconds(outcome.took), ms(stats.queued()), ms(stats.uploading()),
             ms(stats.running()), ms(stats.exposed_communication()),
             ms(result.plan.predicted_time()))
      << "sent " << BytesText(static_cast<double>(BytesSent(outcome))) << ", received "
      << BytesText(static_cast<double>(job.bytes(Direction::kOutput)))
      << absl::StrFormat(", %.2f GB/s over all\n", GigabytesPerSecond(job, outcome));
  if (!result.state_gone.empty()) {
    std::cout << "the state of job " << outcome.handle << " is gone (" << result.state_gone
              << "): all tensors were sent\n";
  }
  if (!outcome.release_unconfirmed.empty()) {
    std::cout << "the release of that state is not confirmed (" << outcome.release_unconfirmed
              << "); to release it: annulus release --handle " << outcome.handle << "\n";
  }
  if (IsOfWholeBias(job)) {
    std::cout << "d_bias has the full shape [batch, heads, tokens, keys]: if the bias has a "
                 "dimension 1 for all sequences or tokens, sum along it\n";
  }
  if (result.stats_partial) std::cout << "the times are incomplete: some workers sent no report\n";
  if (outcome.verified.has_value()) PrintVerified(*outcome.verified);
  if (job.spec().keeps_state()) {
    std::cout << "its state is kept for " << absl::FormatDuration(*job.spec().forward.keep_state)
              << ": annulus gradients --handle " << stats.job_id() << "\n";
  }
}

}  // namespace annulus
