#ifndef ANNULUS_BASE_VERSION_H_
#define ANNULUS_BASE_VERSION_H_

namespace annulus {

// Of all programs of a release, "MAJOR.MINOR.PATCH". What must be equal for them to work together
// has numbers of its own: the control protocol's and the schedules'.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace annulus

#endif  // ANNULUS_BASE_VERSION_H_
