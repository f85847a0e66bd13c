#ifndef ANNULUS_BASE_EXIT_IN_TIME_H_
#define ANNULUS_BASE_EXIT_IN_TIME_H_

namespace annulus {

// Whatever hangs from here on, in a destructor or a thread that is waited for, the process ends
// with `code` after so many seconds, if it has not ended before. Takes SIGALRM. A second call
// replaces the first.
void ExitInTime(int code, unsigned seconds);

}  // namespace annulus

#endif  // ANNULUS_BASE_EXIT_IN_TIME_H_
