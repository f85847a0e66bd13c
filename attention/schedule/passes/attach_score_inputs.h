#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Adds bias, bit mask and LSE offset to a schedule. Each buffer of queries gets a buffer of kPairs
// with the same rows, which travels with it, and each task names it. So builders do not handle
// these inputs. If queries stay, the inputs stay, too. Does nothing for a job without such inputs.
void AttachScoreInputs(const AttentionSpec& spec, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_
