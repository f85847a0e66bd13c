#include "benchmarks/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace annulus::bench {
namespace {

constexpr char kProgram[] = "bin/annulus";
constexpr char kChildEnded[] = "annulus serve: ";
constexpr int kReadyMilliseconds = 60000;
constexpr size_t kLogTail = 1 << 14;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench: %s\n", why.c_str());
  std::exit(1);
}

pid_t Spawn(const std::vector<std::string>& command, int write_end, int log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Fail(absl::StrCat("cannot run ", kProgram));
  return pid;
}

std::string ReadLine(int fd) {
  std::string line;
  char c;
  pollfd ready{fd, POLLIN, 0};
  while (poll(&ready, 1, kReadyMilliseconds) > 0 && read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

// The programs' output on standard error.
std::string ReadLog(std::FILE* log) {
  std::string text;
  char part[1 << 16];
  std::rewind(log);
  while (const size_t got = std::fread(part, 1, sizeof(part), log)) text.append(part, got);
  return text;
}

// True if the log reports that a child ended by itself. `annulus serve` ends only when no child is
// left.
bool TellsOfAnEnd(const std::string& log) {
  return absl::StrContains(absl::StrCat("\n", log), absl::StrCat("\n", kChildEnded));
}

}  // namespace

Serve::Serve(int workers, std::vector<std::string> flags) {
  std::vector<std::string> command = {kProgram,    "serve",      "--workers", absl::StrCat(workers),
                                      "--address", "127.0.0.1:0"};
  command.insert(command.end(), flags.begin(), flags.end());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("no pipe");
  log_ = std::tmpfile();
  if (log_ == nullptr) Fail("no file for the log");
  pid_ = Spawn(command, ends[1], fileno(log_));
  close(ends[1]);
  const std::string line = ReadLine(ends[0]);
  close(ends[0]);
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || words[0] != "ready") {
    kill(pid_, SIGKILL);
    Fail(absl::StrCat("annulus serve said \"", line, "\" instead of its ready line\n",
                      ReadLog(log_)));
  }
  address_ = words[1];
}

Serve::~Serve() {
  kill(pid_, SIGINT);
  int status = 0;
  waitpid(pid_, &status, 0);
  const std::string log = ReadLog(log_);
  std::fclose(log_);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !TellsOfAnEnd(log)) return;
  Fail(absl::StrCat("annulus serve ended with status ", status, "; the end of its log:\n",
                    log.substr(log.size() - std::min(log.size(), kLogTail))));
}

}  // namespace annulus::bench
