#ifndef ANNULUS_CLIENT_CLI_LOCAL_CGROUP_MEMORY_H_
#define ANNULUS_CLIENT_CLI_LOCAL_CGROUP_MEMORY_H_

#include <cstdint>
#include <string>

namespace annulus {

// The memory in bytes that the cgroups of this process permit (a container's limit): the smallest
// limit of its own cgroup and its ancestors, of version 2 (memory.max) or 1
// (memory.limit_in_bytes). INT64_MAX if there is no limit. `root`, which ends with a slash,
// contains proc/ and sys/fs/cgroup/.
int64_t CgroupMemoryBytes(const std::string& root);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOCAL_CGROUP_MEMORY_H_
