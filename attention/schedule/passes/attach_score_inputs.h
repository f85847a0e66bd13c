#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Puts the bias and the bit mask of a job beside its queries: wherever a block of queries lies or
// goes, what the job says of their pairs lies or goes too, and every task names it. So builders
// know of neither. Where queries stay, nothing of it moves. Does nothing for a job without such
// inputs.
void AttachScoreInputs(const AttentionSpec& spec, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_SCORE_INPUTS_H_
