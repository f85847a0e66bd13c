#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_BIAS_GRADIENT_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_BIAS_GRADIENT_H_

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Puts the gradient of a bias beside the gradients of queries, where the job asks for it: tasks
// that add to one add to the other, and where gradients of queries go home it goes too, always as
// sums in fp32. What is of all query heads is added up at home.
void AttachBiasGradient(const AttentionSpec& spec, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_ATTACH_BIAS_GRADIENT_H_
