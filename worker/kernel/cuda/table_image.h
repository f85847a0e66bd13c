#ifndef ANNULUS_WORKER_KERNEL_CUDA_TABLE_IMAGE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_TABLE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "worker/kernel/cuda/launch_plan.h"

namespace annulus::cuda {

Element ElementOf(DataType dtype);
ChangeRule ChangeRuleOf(const KernelJob& job);
// Where a block lies; its rows and heads fit in 32 bits.
BlockAt BlockAtOf(const BlockLayout& layout, const BlockView& view);

// Whether sixteen bytes at a time may be copied from every row and head of a section.
bool IsWhole(const BlockAt& block, int64_t offset, int64_t head_bytes);

// Adds a table at the next multiple of 16 bytes, and says where.
template <class T>
int64_t AppendTable(const std::vector<T>& table, std::vector<std::byte>* bytes) {
  bytes->resize((bytes->size() + 15) / 16 * 16);
  const size_t at = bytes->size();
  bytes->resize(at + table.size() * sizeof(T));
  if (!table.empty()) std::memcpy(bytes->data() + at, table.data(), table.size() * sizeof(T));
  return static_cast<int64_t>(at);
}

// The tables of one launch (ForwardTables), as they are filled.
class TableImage {
 public:
  // Keeps `job`.
  explicit TableImage(const KernelJob& job);

  // Rows of a task, the next of ForwardTables::tasks.
  void AddTask(const KernelTask& bound, const TaskPiece& piece, const CallVisibility& visible);
  // `units`: tasks in the order in which they were added. Where they lie is filled in.
  void AddItem(ForwardItem item, absl::Span<const int32_t> units);

  // Of the next unit of items, in the order in which AddItem gets them, before or after it; for the
  // kernel of sm_90a.
  void AddRuns(const std::vector<KeyTileRun>& runs);
  // Room for so many tensor maps, and the count of items that are taken.
  void AddMaps(int64_t count) {
    maps_ = count;
    next_item_ = {0};
  }

  // All but the address and the offsets of the tables.
  ForwardArgs args() const;
  // All tables, one after the other, and where each begins.
  std::vector<std::byte> Take(ForwardTables* at);

 private:
  void AddSequences(ForwardTables* at, std::vector<std::byte>* bytes) const;
  // Where the runs of a row map are.
  int32_t RunsOf(const RowMap& rows);
  void AddSpans(const KernelTask& bound, const TaskPiece& piece, const CallVisibility& visible);

  const KernelJob& job_;
  const ChangeRule change_;
  const bool changes_;  // Some of it is asked for.
  std::vector<ForwardTask> tasks_;
  std::vector<ForwardItem> items_;
  std::vector<int32_t> units_, class_of_head_, classes_, firsts_, unit_runs_;
  std::vector<KeyTileRun> key_runs_;
  std::vector<int32_t> next_item_;
  int64_t maps_ = 0;
  std::vector<KeySpan32> spans_;
  std::vector<RowRun> runs_;
  std::map<const RowMap*, int32_t> runs_of_map_;
  std::vector<float> slopes_;
  absl::flat_hash_set<int64_t> sequences_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_TABLE_IMAGE_H_
