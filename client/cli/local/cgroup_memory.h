#ifndef ANNULUS_CLIENT_CLI_LOCAL_CGROUP_MEMORY_H_
#define ANNULUS_CLIENT_CLI_LOCAL_CGROUP_MEMORY_H_

#include <cstdint>
#include <string>

namespace annulus {

// How many bytes the cgroups of this process let it have, which a container's limit is: the least
// that its own or one around it says, of version 2 (memory.max) or 1 (memory.limit_in_bytes);
// INT64_MAX where none says any. `root`, with its last slash, is where proc/ and sys/fs/cgroup/
// are.
int64_t CgroupMemoryBytes(const std::string& root);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOCAL_CGROUP_MEMORY_H_
