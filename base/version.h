#ifndef ANNULUS_BASE_VERSION_H_
#define ANNULUS_BASE_VERSION_H_

namespace annulus {

// The version of all programs of a release, "MAJOR.MINOR.PATCH". Compatibility has numbers of its
// own: the versions of the control protocol and of schedules.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace annulus

#endif  // ANNULUS_BASE_VERSION_H_
