// annulus plan: shows the plan of a job.
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/flags/job_flags.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/report.h"
#include "client/client.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

struct Flags {
  ServiceFlags service;
  JobFlags job;
};

double Seconds(const google::protobuf::Duration& duration) {
  return absl::ToDoubleSeconds(DurationFromProto(duration));
}

int64_t RowsOf(const google::protobuf::RepeatedPtrField<v1::RowRange>& ranges) {
  int64_t rows = 0;
  for (const v1::RowRange& range : ranges) rows += range.block() * range.count();
  return rows;
}

nlohmann::json RangesJson(const google::protobuf::RepeatedPtrField<v1::RowRange>& ranges) {
  nlohmann::json list = nlohmann::json::array();
  for (const v1::RowRange& range : ranges) {
    list.push_back({{"begin", range.begin()},
                    {"block", range.block()},
                    {"stride", range.stride()},
                    {"count", range.count()}});
  }
  return list;
}

nlohmann::json PlanJson(const v1::Plan& plan) {
  nlohmann::json json = ExecutionJson(plan.execution());
  json["predicted_seconds"] = Seconds(plan.predicted_time());
  json["correction"] = plan.correction();
  json["peak_bytes_per_rank"] = plan.peak_bytes_per_rank();
  json["balance"] = plan.balance();
  json["bytes_sent_per_rank"] = plan.bytes_sent_per_rank();
  json["links"] = nlohmann::json::array();
  for (const v1::Link& link : plan.links()) {
    json["links"].push_back(
        {{"from", link.from_rank()}, {"to", link.to_rank()}, {"bytes", link.bytes()}});
  }
  json["shards"] = nlohmann::json::array();
  for (const v1::ShardPlan& shard : plan.shards()) {
    json["shards"].push_back({{"rank", shard.rank()},
                              {"q_rows", RangesJson(shard.q_rows())},
                              {"kv_rows", RangesJson(shard.kv_rows())},
                              {"endpoint", shard.endpoint()},
                              {"input_bytes", shard.input_bytes()},
                              {"output_bytes", shard.output_bytes()}});
  }
  json["rejected"] = nlohmann::json::array();
  for (const v1::Rejected& rejected : plan.rejected()) {
    nlohmann::json entry = ExecutionJson(rejected.execution());
    entry["reason"] = rejected.reason();
    entry["predicted_seconds"] = Seconds(rejected.predicted_time());
    entry["correction"] = rejected.correction();
    entry["bytes_sent_per_rank"] =
        rejected.bound_only() ? nlohmann::json() : nlohmann::json(rejected.bytes_sent_per_rank());
    json["rejected"].push_back(entry);
  }
  return json;
}

std::string CorrectionText(const v1::Plan& plan) {
  if (plan.correction() == 1) return "";
  return absl::StrFormat(" (%.2f times the model's time, from recent jobs of this kind)",
                         plan.correction());
}

void PrintPlan(const v1::Plan& plan) {
  std::cout << "plan: " << ExecutionText(plan.execution())
            << absl::StrFormat("\npredicted: %.3g s%s, balance %.3f, peak %s on a worker\n",
                               Seconds(plan.predicted_time()), CorrectionText(plan), plan.balance(),
                               BytesText(static_cast<double>(plan.peak_bytes_per_rank())));
  for (const v1::ShardPlan& shard : plan.shards()) {
    const int64_t sent =
        shard.rank() < plan.bytes_sent_per_rank_size() ? plan.bytes_sent_per_rank(shard.rank()) : 0;
    std::cout << absl::StrFormat(
        "  rank %d: %d query rows, %d key rows, in %s, out %s, to others %s\n", shard.rank(),
        RowsOf(shard.q_rows()), RowsOf(shard.kv_rows()),
        BytesText(static_cast<double>(shard.input_bytes())),
        BytesText(static_cast<double>(shard.output_bytes())), BytesText(static_cast<double>(sent)));
  }
  for (const v1::Link& link : plan.links()) {
    std::cout << absl::StrFormat("  rank %d to rank %d: %s\n", link.from_rank(), link.to_rank(),
                                 BytesText(static_cast<double>(link.bytes())));
  }
  if (plan.rejected_size() > 0) std::cout << "not taken:\n";
  for (const v1::Rejected& rejected : plan.rejected()) {
    std::cout << "  " << ExecutionText(rejected.execution()) << ": " << rejected.reason();
    if (rejected.bound_only()) {
      std::cout << absl::StrFormat(" (at least %.3g s)", Seconds(rejected.predicted_time()));
    } else if (rejected.has_predicted_time()) {
      std::cout << absl::StrFormat(" (%.3g s, %s sent by a rank)",
                                   Seconds(rejected.predicted_time()),
                                   BytesText(static_cast<double>(rejected.bytes_sent_per_rank())));
    }
    std::cout << "\n";
  }
}

int Run(const Flags& flags) {
  if (flags.job.input.empty() && !flags.job.synthetic.has_value() && flags.job.spec_file.empty()) {
    std::cerr << "annulus plan: --input, --synthetic or a whole --spec is needed (see --help)\n";
    return kExitUsage;
  }
  const absl::StatusOr<JobRequest> request = ReadJob(flags.job);
  if (!request.ok()) return ReportError(request.status(), flags.service.json);
  Client client(ClientOptionsOf(flags.service));
  const absl::StatusOr<v1::Plan> plan =
      client.Plan(request->spec, request->execution, flags.service.timeout);
  if (!plan.ok()) return ReportError(plan.status(), flags.service.json);
  if (flags.service.json) {
    std::cout << PlanJson(*plan).dump(2) << std::endl;
  } else {
    PrintPlan(*plan);
  }
  return kExitOk;
}

}  // namespace

Command AddPlanCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  flags->service.timeout = absl::Seconds(30);
  CommandLine* app =
      program->AddCommand("plan", "Show how a job would run, and why, without running it");
  AddServiceFlags(app, &flags->service);
  AddJobFlags(app, &flags->job);
  return [flags] { return Run(*flags); };
}

}  // namespace annulus
