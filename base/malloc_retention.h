#ifndef ANNULUS_BASE_MALLOC_RETENTION_H_
#define ANNULUS_BASE_MALLOC_RETENTION_H_

namespace annulus {

// For a process that is ours alone, at its start: what is freed is kept for who asks next, up to 16
// MiB at the end of each of malloc's arenas. By itself glibc gives back what is more than the
// largest buffers twice, so that the system takes, clears and maps again what every small job
// needs.
void RetainFreedMemory();

}  // namespace annulus

#endif  // ANNULUS_BASE_MALLOC_RETENTION_H_
