#ifndef ANNULUS_PROTO_WIRE_JOB_STATS_H_
#define ANNULUS_PROTO_WIRE_JOB_STATS_H_

#include "annulus/v1/types.pb.h"
#include "attention/spec/spec.h"

namespace annulus {

// The value of JobStats.lse_base for the job.
v1::Outputs::LseBase AnsweredLseBase(const AttentionSpec& spec);

// Adds the next rank's report to the measurements of a job. Call it once for each rank, in rank
// order. A rank without a report has an empty one.
void AddReport(const v1::ShardReport& report, v1::JobStats* stats);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_JOB_STATS_H_
