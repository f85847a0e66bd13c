#include "proto/wire/job_stats.h"

#include <string>

#include "proto/wire/convert.h"

namespace annulus {
namespace {

void RaiseTo(const google::protobuf::Duration& value, google::protobuf::Duration* largest) {
  if (DurationFromProto(value) > DurationFromProto(*largest)) *largest = value;
}

}  // namespace

v1::Outputs::LseBase AnsweredLseBase(const AttentionSpec& spec) {
  if (spec.operation == Operation::kGradients) return v1::Outputs::LSE_BASE_UNSPECIFIED;
  return spec.outputs.lse_base == LseBase::k2 ? v1::Outputs::LSE_BASE_2 : v1::Outputs::LSE_BASE_E;
}

void AddReport(const v1::ShardReport& report, v1::JobStats* stats) {
  RaiseTo(report.running(), stats->mutable_running());
  RaiseTo(report.exposed_communication(), stats->mutable_exposed_communication());
  stats->add_bytes_sent_per_rank(report.bytes_sent());
  if (!report.backend().empty()) stats->set_backend(report.backend());
}

}  // namespace annulus
