#ifndef ANNULUS_BASE_EXIT_IN_TIME_H_
#define ANNULUS_BASE_EXIT_IN_TIME_H_

namespace annulus {

// Ends the process with `code` after `seconds`, unless it has ended before. Call it before an exit
// that may hang, for example in a destructor or in joining a thread. Uses SIGALRM. A second call
// replaces the first.
void ExitInTime(int code, unsigned seconds);

}  // namespace annulus

#endif  // ANNULUS_BASE_EXIT_IN_TIME_H_
