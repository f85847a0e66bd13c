#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Adds bias, bit mask and LSE offset to a schedule. Each buffer of queries gets a buffer of kPairs
// with the same rows, which travels with it, and each task names it. So builders do not handle
// these inputs. If queries stay, the inputs stay, too. Does nothing for a job without such inputs.
void AttachScoreInputs(const AttentionSpec& spec, RankSchedule* schedule);

// Adds the gradient of the bias to a schedule, if the job asks for it. Each task that adds to
// gradients of queries also adds to that of the bias. It travels with the gradients of queries,
// always as fp32 sums. If the bias has one head for all query heads, the owner adds up the sums.
void AttachBiasGradient(const AttentionSpec& spec, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_
