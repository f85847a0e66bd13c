"""House rules that a tool can check; the program behind tools/lint. docs/testing.md lists them."""

import re
import subprocess
import sys

# Room -> rooms whose headers it may include beside its own. Tests may include all.
ROOMS = {
    "attention": set(),
    "base": set(),
    "proto": {"attention", "base"},
    "server": {"attention", "base", "proto"},
    "worker": {"attention", "base", "proto"},
    "client": {"attention", "base", "proto"},
}
# The gateway is a client of ours.
EXTRA_ROOMS = {"server/gateway/": {"client"}}

SOURCE_LINES, HEADER_LINES, FUNCTION_LINES = 400, 150, 70

# Pattern, where it is forbidden (a test of the path), why.
FORBIDDEN = [
    (r"\bTODO\b|\bFIXME\b", lambda path: True, "an open end belongs in an issue"),
    (
        r"absl::(Mutex|Notification|BlockingCounter|CondVar)\b|absl/synchronization/",
        lambda path: True,
        "ThreadSanitizer does not see into it: base/mutex.h",
    ),
    (
        r"\bsleep_for\b|\bsleep_until\b|absl::SleepFor\b|\busleep\(",
        lambda path: is_test(path),
        "a test waits for a condition with a deadline",
    ),
    (r"\bDISABLED_\w", lambda path: is_test(path), "a test runs, or skips with its reason"),
    (
        r'#include [<"](grpcpp?/|gloo/)',
        lambda path: path.startswith(("attention/", "base/")),
        "only adapters know gRPC and Gloo",
    ),
    (
        r'#include [<"]gloo/',
        lambda path: "gloo" not in path.rsplit("/", 1)[-1],
        "Gloo's types stay in files that bear its name",
    ),
]

# Beginnings of lines that hold other definitions.
NO_FUNCTION = r"(template|namespace|class|struct|enum|union|extern|public:|private:|protected:)\b"


def is_test(path):
    return path.startswith("tests/") or re.search(r"_test\.(cc|py)$", path) is not None


def check_size(path, lines):
    limit = HEADER_LINES if path.endswith(".h") else SOURCE_LINES
    if len(lines) > limit:
        yield f"{path}: {len(lines)} lines, more than {limit}"


def definitions(lines, indent):
    """(begin, end) of each definition at this indentation, as line numbers from 1."""
    begin, opened = None, False
    for number, line in enumerate(lines, 1):
        if begin is None:
            if re.match(indent + r"[A-Za-z_~]", line) and not re.match(indent + NO_FUNCTION, line):
                begin, opened = number, False
            else:
                continue
        opened = opened or line.endswith("{")
        if opened and re.match(indent + r"}", line):
            yield begin, number
            begin = None
        elif not opened and (line.endswith((";", "}")) or line == ""):
            begin = None  # A declaration, or a definition on one line.


def check_functions(path, lines):
    """Definitions at the left margin, and two blanks into a class, as clang-format leaves them."""
    found = list(definitions(lines, ""))
    inside = None
    for number, line in enumerate(lines, 1):
        if re.match(r"(class|struct)\b.*{$", line):
            inside = number
        elif inside is not None and line.startswith("}"):
            found += [
                (inside + begin, inside + end)
                for begin, end in definitions(lines[inside : number - 1], "  ")
            ]
            inside = None
    for begin, end in found:
        if end - begin + 1 > FUNCTION_LINES:
            yield f"{path}:{begin}: a function of {end - begin + 1} lines, more than {FUNCTION_LINES}"


def check_includes(path, lines):
    room = path.split("/", 1)[0]
    if room not in ROOMS or is_test(path):
        return
    allowed = {room} | ROOMS[room]
    for prefix, extra in EXTRA_ROOMS.items():
        if path.startswith(prefix):
            allowed |= extra
    for number, line in enumerate(lines, 1):
        include = re.match(r'#include "([a-z_]+)/', line)
        if include and include[1] in set(ROOMS) | {"tests"} and include[1] not in allowed:
            yield f"{path}:{number}: {room} may not include {include[1]}"


def check_forbidden(path, lines):
    for number, line in enumerate(lines, 1):
        for pattern, where, why in FORBIDDEN:
            if where(path) and re.search(pattern, line):
                yield f"{path}:{number}: {re.search(pattern, line)[0]}: {why}"


def check(path, text):
    lines = text.splitlines()
    for rule in (check_size, check_functions, check_includes, check_forbidden):
        yield from rule(path, lines)


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.h", "*.cc"],
        stdout=subprocess.PIPE,
        check=True,
    )
    findings = []
    for path in filter(None, listed.stdout.decode().split("\0")):
        try:
            with open(path, encoding="utf-8") as file:
                findings += check(path, file.read())
        except FileNotFoundError:
            pass
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
