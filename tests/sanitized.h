#ifndef ANNULUS_TESTS_SANITIZED_H_
#define ANNULUS_TESTS_SANITIZED_H_

namespace annulus {

// True in builds with AddressSanitizer or ThreadSanitizer, in which tests with many jobs run a
// smaller sample (docs/explanation/testing.md).
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ANNULUS_SANITIZED 1
#endif
#endif
#ifdef ANNULUS_SANITIZED
constexpr bool kSanitized = true;
#undef ANNULUS_SANITIZED
#else
constexpr bool kSanitized = false;
#endif

}  // namespace annulus

#endif  // ANNULUS_TESTS_SANITIZED_H_
