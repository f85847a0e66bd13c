#include "tests/worker/kernel/cuda/ptxas_report.h"

#include <fstream>
#include <regex>

namespace annulus::cuda {
namespace {

// Returns the folder of the reports of `source`. compiled_gradients has gradient_*.cu.
std::string FolderOf(const std::string& source) {
  const std::string kernels = "worker/kernel/cuda/";
  if (source.rfind("hopper_gradient_", 0) == 0)
    return kernels + "sm90/instantiations/compiled_hopper_gradients_nvcc/";
  const std::string kind = source.substr(0, source.find('_'));
  if (kind == "hopper") return kernels + "sm90/instantiations/compiled_hopper_nvcc/";
  if (kind == "compiled") return kernels + source + "_nvcc/";
  return kernels + "sm80/instantiations/compiled_" + (kind == "gradient" ? "gradients" : kind) +
         "_nvcc/";
}

}  // namespace

PtxasReports ReadPtxasReports(const std::string& source) {
  std::ifstream file(FolderOf(source) + source + ".ptxas.txt");
  const std::regex name("Compiling entry function '(\\w+)' for '(\\w+)'");
  const std::regex spills("(\\d+) bytes spill stores, (\\d+) bytes spill loads");
  const std::regex registers("Used (\\d+) registers");
  const std::regex stack("(\\d+) bytes stack frame");
  PtxasReports reports;
  PtxasReport* report = nullptr;
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (std::regex_search(line, found, name)) report = &reports[{found[2], found[1]}];
    if (report == nullptr) continue;
    if (std::regex_search(line, found, spills))
      report->spilled = std::stoi(found[1]) + std::stoi(found[2]);
    if (std::regex_search(line, found, registers)) report->registers = std::stoi(found[1]);
    if (std::regex_search(line, found, stack)) report->stack = std::stoi(found[1]);
  }
  return reports;
}

}  // namespace annulus::cuda
