#ifndef ANNULUS_BASE_STATUS_MACROS_H_
#define ANNULUS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// RETURN_IF_ERROR(expression): evaluates an absl::Status once and, if it is not OK, returns it from
// the enclosing function. The function must return absl::Status or absl::StatusOr.
#define RETURN_IF_ERROR(expression)                  \
  do {                                               \
    ::absl::Status annulus_status = (expression);    \
    if (!annulus_status.ok()) return annulus_status; \
  } while (false)

// ASSIGN_OR_RETURN(lhs, expression): evaluates an absl::StatusOr<T> once. If it is OK, moves its
// value into `lhs` (a declaration or an lvalue), else returns its status. Use `auto` in `lhs` for a
// type that contains a comma, such as std::pair<A, B>.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ANNULUS_ASSIGN_OR_RETURN(ANNULUS_CONCAT(annulus_statusor_, __LINE__), lhs, expression)

#define ANNULUS_ASSIGN_OR_RETURN(statusor, lhs, expression) \
  auto statusor = (expression);                             \
  if (!statusor.ok()) return statusor.status();             \
  lhs = *std::move(statusor)

#define ANNULUS_CONCAT(a, b) ANNULUS_CONCAT_AGAIN(a, b)
#define ANNULUS_CONCAT_AGAIN(a, b) a##b

#endif  // ANNULUS_BASE_STATUS_MACROS_H_
