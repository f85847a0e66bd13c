#ifndef ANNULUS_PROTO_WIRE_JOB_STATS_H_
#define ANNULUS_PROTO_WIRE_JOB_STATS_H_

#include "annulus/v1/types.pb.h"
#include "attention/spec/spec.h"

namespace annulus {

// What JobStats.lse_base says of the job.
v1::Outputs::LseBase AnsweredLseBase(const AttentionSpec& spec);

// Adds the next rank's report to what a job took: in the order of ranks, one each. A rank that said
// nothing has an empty report.
void AddReport(const v1::ShardReport& report, v1::JobStats* stats);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_JOB_STATS_H_
