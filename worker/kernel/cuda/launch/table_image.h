#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_IMAGE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/launch_plan.h"

namespace annulus::cuda {

Element ElementOf(DataType dtype);
ChangeRule ChangeRuleOf(const KernelJob& job);
// The device address of a block; its rows and heads must fit in 32 bits.
BlockAt BlockAtOf(const BlockLayout& layout, const BlockView& view);

// True if 16-byte copies are possible from every row and head of a section.
bool IsWhole(const BlockAt& block, int64_t offset, int64_t head_bytes);

// Appends a table at the next multiple of 16 bytes, and returns its offset.
template <class T>
int64_t AppendTable(const std::vector<T>& table, std::vector<std::byte>* bytes) {
  bytes->resize((bytes->size() + 15) / 16 * 16);
  const size_t at = bytes->size();
  const auto* const from = reinterpret_cast<const std::byte*>(table.data());
  bytes->insert(bytes->end(), from, from + table.size() * sizeof(T));
  return static_cast<int64_t>(at);
}

// The tables of ForwardTables that may be large.
struct TableLists {
  std::vector<ForwardItem> items;
  std::vector<int32_t> units, firsts, unit_runs;
  std::vector<KeyTileRun> key_runs;
  std::vector<KeySpan32> spans;
  void Clear();
};

// The tables of one launch (ForwardTables) while they are filled.
class TableImage {
 public:
  // Keeps references to both; clears `lists`.
  TableImage(const KernelJob& job, TableLists* lists);

  // Adds rows of a task, as the next entry of ForwardTables::tasks.
  void AddTask(const KernelTask& bound, const TaskPiece& piece, const VisibleRows& visible);
  // Adds an item. `units`: task numbers, in the order of AddTask. Sets the item's unit_begin and
  // unit_end.
  void AddItem(ForwardItem item, absl::Span<const int32_t> units);

  // For the kernel for sm_90a: adds the runs of the next unit. Calls follow the order in which
  // AddItem gets the units, and may come before or after it.
  void AddRuns(absl::Span<const KeyTileRun> runs);
  // Reserves room for `count` tensor maps, and the counter of items.
  void AddMaps(int64_t count) {
    maps_ = count;
    next_item_ = {0};
  }

  // All arguments except the address and the offsets of the tables.
  ForwardArgs args() const;
  // Writes all tables, one after the other, to `bytes`, and their offsets to `at`.
  void Take(ForwardTables* at, std::vector<std::byte>* bytes);

 private:
  void AddSequences(ForwardTables* at, std::vector<std::byte>* bytes) const;
  // The index of a row map's runs.
  int32_t RunsOf(const RowMap& rows);
  void AddSpans(const KernelTask& bound, const TaskPiece& piece, const VisibleRows& visible);

  const KernelJob& job_;
  const ChangeRule change_;
  const bool changes_;  // True if change_ has any change.
  TableLists& lists_;
  std::vector<ForwardTask> tasks_;
  std::vector<int32_t> class_of_head_, classes_, next_item_;
  int64_t maps_ = 0;
  std::vector<RowRun> runs_;
  std::map<const RowMap*, int32_t> runs_of_map_;
  std::vector<float> slopes_;
  absl::flat_hash_set<int64_t> sequences_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_IMAGE_H_
