#ifndef ANNULUS_CLIENT_CLI_VERIFY_ORDER_H_
#define ANNULUS_CLIENT_CLI_VERIFY_ORDER_H_

#include <cstdint>

namespace annulus {

// The n-th of several orders of a sum: its start and direction.
struct Order {
  int64_t number = 0, of = 1;  // 0 <= number < of.
  // The index of the n-th addend. Avoids a division, which takes as long as several additions.
  int64_t At(int64_t n, int64_t size) const {
    const int64_t from = size * number / of;
    const int64_t at = number % 2 == 0 ? from + n : from + size - 1 - n;
    return at < size ? at : at - size;
  }
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_ORDER_H_
