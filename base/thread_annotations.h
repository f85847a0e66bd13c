#ifndef ANNULUS_BASE_THREAD_ANNOTATIONS_H_
#define ANNULUS_BASE_THREAD_ANNOTATIONS_H_

// Abseil 20220623 defines some of these names, too, for its own locks.
#include "absl/base/thread_annotations.h"
#undef GUARDED_BY
#undef PT_GUARDED_BY
#undef ACQUIRED_AFTER
#undef ACQUIRED_BEFORE
#undef NO_THREAD_SAFETY_ANALYSIS

// Annotations that say which lock guards what. clang's -Wthread-safety checks them; other compilers
// ignore them.
#if defined(__clang__)
#define ANNULUS_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define ANNULUS_THREAD_ATTRIBUTE(x)
#endif

// On a field: accessed only with the lock held. PT_: applies to what the pointer points to.
#define GUARDED_BY(x) ANNULUS_THREAD_ATTRIBUTE(guarded_by(x))
#define PT_GUARDED_BY(x) ANNULUS_THREAD_ATTRIBUTE(pt_guarded_by(x))
// On a function: the caller must hold the locks, or must not hold them.
#define REQUIRES(...) ANNULUS_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) ANNULUS_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// On a lock: acquired after, or before, the other locks.
#define ACQUIRED_AFTER(...) ANNULUS_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
#define ACQUIRED_BEFORE(...) ANNULUS_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))

// On the lock classes themselves.
#define CAPABILITY(x) ANNULUS_THREAD_ATTRIBUTE(capability(x))
#define SCOPED_CAPABILITY ANNULUS_THREAD_ATTRIBUTE(scoped_lockable)
#define ACQUIRE(...) ANNULUS_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) ANNULUS_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) ANNULUS_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(x) ANNULUS_THREAD_ATTRIBUTE(lock_returned(x))
#define NO_THREAD_SAFETY_ANALYSIS ANNULUS_THREAD_ATTRIBUTE(no_thread_safety_analysis)

#endif  // ANNULUS_BASE_THREAD_ANNOTATIONS_H_
