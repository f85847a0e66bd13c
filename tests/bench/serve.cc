#include "tests/bench/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace annulus::bench {
namespace {

constexpr char kProgram[] = "bin/annulus";
constexpr int kReadyMilliseconds = 60000;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench: %s\n", why.c_str());
  std::exit(1);
}

// Standard output goes to `write_end`; the logs are dropped.
pid_t Spawn(const std::vector<std::string>& command, int write_end) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
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

}  // namespace

Serve::Serve(int workers, std::vector<std::string> flags) {
  std::vector<std::string> command = {kProgram,    "serve",      "--workers", absl::StrCat(workers),
                                      "--address", "127.0.0.1:0"};
  command.insert(command.end(), flags.begin(), flags.end());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("no pipe");
  pid_ = Spawn(command, ends[1]);
  close(ends[1]);
  const std::string line = ReadLine(ends[0]);
  close(ends[0]);
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || words[0] != "ready") {
    kill(pid_, SIGKILL);
    Fail(absl::StrCat("annulus serve said \"", line, "\" instead of its ready line"));
  }
  address_ = words[1];
}

Serve::~Serve() {
  kill(pid_, SIGINT);
  waitpid(pid_, nullptr, 0);
}

}  // namespace annulus::bench
