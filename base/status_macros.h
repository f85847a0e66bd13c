#ifndef ANNULUS_BASE_STATUS_MACROS_H_
#define ANNULUS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// RETURN_IF_ERROR(expression): evaluates an absl::Status once; returns it from the enclosing
// function when it is not OK. The function returns absl::Status or absl::StatusOr.
#define RETURN_IF_ERROR(expression)                  \
  do {                                               \
    ::absl::Status annulus_status = (expression);    \
    if (!annulus_status.ok()) return annulus_status; \
  } while (false)

// ASSIGN_OR_RETURN(lhs, expression): evaluates an absl::StatusOr<T> once; on OK moves its value
// into `lhs` (a declaration or an lvalue), else returns its status. A type with a comma in it, such
// as std::pair<A, B>, needs `auto` on the left.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ANNULUS_ASSIGN_OR_RETURN(ANNULUS_CONCAT(annulus_statusor_, __LINE__), lhs, expression)

#define ANNULUS_ASSIGN_OR_RETURN(statusor, lhs, expression) \
  auto statusor = (expression);                             \
  if (!statusor.ok()) return statusor.status();             \
  lhs = *std::move(statusor)

#define ANNULUS_CONCAT(a, b) ANNULUS_CONCAT_AGAIN(a, b)
#define ANNULUS_CONCAT_AGAIN(a, b) a##b

#endif  // ANNULUS_BASE_STATUS_MACROS_H_
