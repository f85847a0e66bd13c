#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_DUPLICATE_TRANSFERS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_DUPLICATE_TRANSFERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Adds, after each transfer of a buffer b with beside[b] >= 0, the same transfer of buffer
// beside[b]. -1: none.
inline void DuplicateTransfers(const std::vector<int32_t>& beside,
                               std::vector<Transfer>* transfers) {
  std::vector<Transfer> all;
  for (const Transfer& transfer : *transfers) {
    all.push_back(transfer);
    if (beside[transfer.buffer] < 0) continue;
    all.push_back(transfer);
    all.back().buffer = beside[transfer.buffer];
  }
  *transfers = std::move(all);
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_DUPLICATE_TRANSFERS_H_
