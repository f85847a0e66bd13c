#ifndef ANNULUS_BASE_MALLOC_RETENTION_H_
#define ANNULUS_BASE_MALLOC_RETENTION_H_

namespace annulus {

// Makes malloc keep freed memory for reuse, up to 16 MiB at the end of each of its arenas. By
// default glibc returns what exceeds twice the largest buffers, and the system then takes, clears
// and maps again the memory of every small job. Call it at the start of a process that runs only
// our code.
void RetainFreedMemory();

}  // namespace annulus

#endif  // ANNULUS_BASE_MALLOC_RETENTION_H_
