#include "client/cli/job_flags.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "attention/validate.h"
#include "base/command_line.h"
#include "proto/convert.h"

namespace annulus {
namespace {

constexpr int64_t kMaxSpecBytes = 64 << 20;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return MakeError(absl::StatusCode::kNotFound, absl::StrCat("cannot open ", path),
                     {"FILE_NOT_FOUND", {{"path", path}}, {}, {}});
  }
  std::string text(kMaxSpecBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  if (text.size() > kMaxSpecBytes) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(path, " is larger than 64 MiB"), {"BAD_SPEC", {}, {}, {}});
  }
  return text;
}

void SetMask(const std::string& name, v1::AttentionSpec* spec) {
  spec->clear_masks();
  if (name == "full") return;
  v1::Mask* mask = spec->add_masks();
  mask->set_causal(true);
  if (name == "causal-top-left") mask->set_alignment(v1::Mask::ALIGNMENT_TOP_LEFT);
}

absl::Status ReadInput(const JobFlags& flags, JobRequest* request) {
  if (!flags.synthetic.empty()) {
    ASSIGN_OR_RETURN(request->synthetic, ParseSynthetic(flags.synthetic));
    request->shape = request->synthetic->shape;
  } else if (!flags.input.empty()) {
    ASSIGN_OR_RETURN(request->file, SafetensorsFile::Open(flags.input));
    ASSIGN_OR_RETURN(request->shape, ShapeOf(*request->file));
  }
  return absl::OkStatus();
}

}  // namespace

void AddServiceFlags(CLI::App* app, ServiceFlags* flags) {
  AddAddress(app, {"--address", "Where the coordinator listens"}, &flags->address);
  AddDuration(app, {"--timeout", "Time for all of it, retries included"},
              {absl::Milliseconds(1), absl::Hours(24)}, &flags->timeout);
  app->add_flag("--json", flags->json, "Answer in JSON on standard output");
}

void AddJobFlags(CLI::App* app, JobFlags* flags) {
  CLI::Option* input = app->add_option("--input", flags->input,
                                       "safetensors file with q, k, v: [tokens, heads, dim] or "
                                       "[batch, tokens, heads, dim] of F32, F16 or BF16");
  app->add_option("--synthetic", flags->synthetic,
                  "Made inputs instead of a file: B,Sq,Skv,Hq,Hkv,D[,Dv],dtype,seed "
                  "(\"1,4096,4096,8,2,128,bf16,1\")")
      ->excludes(input);
  app->add_option(
      "--spec", flags->spec_file,
      "File with an AttentionSpec as proto3 JSON; what it leaves out is taken from the input");
  app->add_option("--mask", flags->mask,
                  "full, causal or causal-top-left; default: as the spec says, else full")
      ->transform(CLI::Transformer(
          std::map<std::string, std::string>{{"causal_top_left", "causal-top-left"}}))
      ->check(CLI::IsMember({"full", "causal", "causal-top-left"}));
  app->add_option("--scale", flags->scale,
                  "Factor of q·k, finite in fp32; default: as the spec says, else 1/sqrt(dim)")
      ->check([](const std::string& text) {
        double scale = 0;
        const bool good =
            absl::SimpleAtod(text, &scale) && std::abs(scale) <= std::numeric_limits<float>::max();
        return good ? "" : text + " is no finite fp32 number";
      });
  app->add_option("--strategy", flags->strategy, "auto, ring-pass-kv, all-gather-kv, rotate-kv, …")
      ->check([](const std::string& name) {
        return ParseStrategy(name).has_value() ? "" : name + " is no strategy";
      })
      ->capture_default_str();
  app->add_option("--layout", flags->layout, "auto, contiguous, zigzag, striped, …")
      ->check([](const std::string& name) {
        return ParseLayout(name).has_value() ? "" : name + " is no layout";
      })
      ->capture_default_str();
  AddInteger(app, {"--world-size", "How many workers; 0: as many as pay"},
             {0, Limits().max_world_size}, &flags->world_size, "workers");
}

absl::StatusOr<JobRequest> ReadJob(const JobFlags& flags) {
  JobRequest request;
  request.execution.strategy = *ParseStrategy(flags.strategy);
  request.execution.layout = *ParseLayout(flags.layout);
  request.execution.world_size = static_cast<int32_t>(flags.world_size);
  v1::AttentionSpec spec;
  if (!flags.spec_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(flags.spec_file));
    ASSIGN_OR_RETURN(spec, ParseSpec(text));
  }
  if (!flags.mask.empty()) SetMask(flags.mask, &spec);
  if (flags.scale.has_value()) spec.set_scale(*flags.scale);
  RETURN_IF_ERROR(ReadInput(flags, &request));
  if (request.file.has_value() || request.synthetic.has_value()) {
    ASSIGN_OR_RETURN(request.spec, CompleteSpec(std::move(spec), request.shape));
  } else {
    ASSIGN_OR_RETURN(request.spec, SpecFromProto(spec, "spec"));
  }
  RETURN_IF_ERROR(Validate(request.spec, request.execution, Limits()));
  return request;
}

}  // namespace annulus
