// A library with NCCL's function names that only records its arguments.

#include "worker/comm/nccl_api.h"
#include "worker/comm/nccl_library.h"

using annulus::NcclComm;
using annulus::NcclConfig;
using annulus::NcclResult;
using annulus::NcclUniqueId;

extern "C" {

int fake_nccl_version = 22809;
int fake_nccl_blocking = -1, fake_nccl_max_ctas = -1;  // From the last communicator's config.

NcclResult ncclGetVersion(int* version) {
  *version = fake_nccl_version;
  return 0;
}
const char* ncclGetErrorString(NcclResult) { return "no error"; }
const char* ncclGetLastError(NcclComm) { return nullptr; }
NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  *id = {};
  return 0;
}
NcclResult ncclCommInitRankConfig(NcclComm* comm, int, NcclUniqueId, int, NcclConfig* config) {
  fake_nccl_blocking = config->blocking;
  fake_nccl_max_ctas = config->max_ctas;
  *comm = &fake_nccl_blocking;
  return 0;
}
NcclResult ncclCommGetAsyncError(NcclComm, NcclResult* state) { return *state = 0; }
NcclResult ncclCommFinalize(NcclComm) { return 0; }
NcclResult ncclCommDestroy(NcclComm) { return 0; }
NcclResult ncclCommAbort(NcclComm) { return 0; }
NcclResult ncclGroupStart() { return 0; }
NcclResult ncclGroupEnd() { return 0; }
NcclResult ncclSend(const void*, size_t, int, int, NcclComm, void*) { return 0; }
NcclResult ncclRecv(void*, size_t, int, int, NcclComm, void*) { return 0; }

}  // extern "C"
