#include "attention/schedule/model/digest.h"

#include <map>

namespace annulus {
namespace {

// FNV-1a, 64 bits, over little-endian bytes.
class Hash {
 public:
  void Add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      state_ = (state_ ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3u;
    }
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

void Add(size_t step, const Block& block, const Transfer& transfer, Hash* hash) {
  hash->Add(step);
  hash->Add(static_cast<uint64_t>(block.kind));
  hash->Add(static_cast<uint64_t>(block.shard));
  hash->Add(static_cast<uint64_t>(transfer.row_begin));
  hash->Add(static_cast<uint64_t>(transfer.row_end));
  hash->Add(static_cast<uint64_t>(block.head_begin));
  hash->Add(static_cast<uint64_t>(block.head_end));
}

}  // namespace

std::vector<PeerDigest> PeerDigests(const RankSchedule& schedule) {
  struct Both {
    Hash sends, receives;
  };
  std::map<int32_t, Both> peers;
  for (size_t k = 0; k < schedule.steps.size(); ++k) {
    for (const Transfer& send : schedule.steps[k].sends) {
      Add(k, schedule.buffers[send.buffer], send, &peers[send.peer].sends);
    }
    for (const Transfer& receive : schedule.steps[k].receives) {
      Add(k, schedule.buffers[receive.buffer], receive, &peers[receive.peer].receives);
    }
  }
  std::vector<PeerDigest> digests;
  for (const auto& [peer, both] : peers) {
    digests.push_back({peer, both.sends.value(), both.receives.value()});
  }
  return digests;
}

}  // namespace annulus
