"""House rules that a tool can check; the program behind tools/lint. docs/explanation/testing.md lists them."""

import re
import subprocess
import sys

from tools.testing import layout, prose

# Room -> rooms whose headers it may include beside its own. Tests may include all.
ROOMS = {
    "attention": {"base"},
    "base": set(),
    "proto": {"attention", "base"},
    "server": {"attention", "base", "proto"},
    "worker": {"attention", "base", "proto"},
    "client": {"attention", "base", "proto"},
}
# The gateway is a client of ours, and the server gives it its connections.
EXTRA_ROOMS = {"server/gateway/": {"client"}, "server/coordinator_server.cc": {"client"}}

# Code that is compiled by inclusion (-inl.h, .cuh) is longer than a header that is a contract.
SOURCE_LINES, HEADER_LINES, INCLUDED_LINES, FUNCTION_LINES = 600, 200, 500, 70

# Pattern, where it is forbidden (a test of the path), why.
FORBIDDEN = [
    (r"\bTODO\b|\bFIXME\b", lambda path: True, "an open end belongs in an issue"),
    (
        r"absl::(Mutex|Notification|BlockingCounter|CondVar)\b|absl/synchronization/",
        lambda path: path != "proto/rpc/callback_threads.cc",  # It switches a check of theirs off.
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
    (
        r'#include [<"](cuda|nccl|cudnn|cute/|cutlass/)',
        lambda path: not re.search(r"cuda|nccl|\.cuh?$", path),
        "CUDA's and NCCL's types stay in files that bear their names",
    ),
]

PYTHON_FORBIDDEN = [
    FORBIDDEN[0],
    (
        r"\btime\.sleep\(|\bfrom time import\b",
        # The runner of tests is none: it looks again for what is left to kill.
        lambda path: is_test(path) and path != "tests/gpu/runner.py",
        "a test waits for a condition with a deadline",
    ),
]

# The page that lists the reasons of errors, and strings in capitals that are not reasons.
REASONS_PAGE = "docs/reference/errors.md"
TYPES_OF_FILES = {"BF16", "BOOL", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0", "F6_E2M3", "F6_E3M2"}
NOT_REASONS = TYPES_OF_FILES | {"INTERNAL", "QUEUED", "STATE_"}
NOT_REASONS |= {"CUDA_MODULE_LOADING", "EAGER", "LIBRARY", "NCCL_COMM_BLOCKING"}
NOT_REASONS |= {"ANNULUS_ADDRESS", "NCCL_COMM_ID", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS"}
NOT_REASONS |= {"NCCL_MIN_NRINGS", "NCCL_MIN_P2P_NCHANNELS", "NCCL_SOCKET_IFNAME", "TERM"}

# Beginnings of lines that hold other definitions.
NO_FUNCTION = r"(template|namespace|class|struct|enum|union|extern|public:|private:|protected:)\b"


def is_test(path):
    return path.startswith("tests/") or re.search(r"_test\.(cc|py)$", path) is not None


def check_size(path, lines):
    limit = SOURCE_LINES
    if path.endswith(("-inl.h", ".cuh")):
        limit = INCLUDED_LINES
    elif path.endswith(".h"):
        limit = HEADER_LINES
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
    forbidden = PYTHON_FORBIDDEN if path.endswith(".py") else FORBIDDEN
    for number, line in enumerate(lines, 1):
        for pattern, where, why in forbidden:
            if where(path) and re.search(pattern, line):
                yield f"{path}:{number}: {re.search(pattern, line)[0]}: {why}"


def check(path, text):
    lines = text.splitlines()
    rules = (check_size, check_functions, check_includes, check_forbidden)
    for rule in (check_size, check_forbidden) if path.endswith(".py") else rules:
        yield from rule(path, lines)


def classes(lines):
    """(line, qualified name) of each class that other files can mean, as clang-format leaves it."""
    namespaces = []
    for number, line in enumerate(lines, 1):
        if opened := re.match(r"(?:inline )?namespace ?([\w:]*) ?{$", line):
            namespaces.append(opened[1])
        elif re.match(r"}  // namespace", line) and namespaces:
            namespaces.pop()
        found = re.match(r"(?:class|struct|union|enum(?: class)?) ([\w:]+)\b(.*)$", line)
        if not found or "" in namespaces:
            continue
        rest = found[2]
        for more in lines[number : number + 3]:
            if "{" in rest or ";" in rest:
                break
            rest += more
        if "{" in rest and not re.match(r"[^{]*;", rest):
            yield number, "::".join([*namespaces, found[1]])


def check_classes(texts):
    """Two definitions of one class in one program are undefined behaviour, and no linker reports
    them."""
    places = {}
    for path, text in texts.items():
        for number, name in classes(text.splitlines()):
            places.setdefault(name, []).append((path, number))
    for name, found in places.items():
        # Tests of one room are programs of their own.
        rooms = {path.split("/", 1)[0] for path, _ in found}
        if len(found) > 1 and rooms != {"tests"}:
            first, *others = sorted(found)
            for path, number in others:
                yield f"{path}:{number}: {name} is defined in {first[0]} as well"


def check_reasons(texts, page):
    """Every reason that is made stands in the page's tables, and no other."""
    listed = set()
    for line in page.splitlines():
        if line.startswith("|"):
            listed |= set(re.findall(r"`([A-Z][A-Z0-9_]{3,})`", line.split("|", 2)[-1]))
    made = {}
    for path, text in texts.items():
        if path.split("/", 1)[0] in ROOMS and not is_test(path):
            for reason in re.findall(r'"([A-Z][A-Z0-9_]{3,})"', text):
                made.setdefault(reason, path)
    for reason in sorted(set(made) - listed - NOT_REASONS):
        yield f"{made[reason]}: {reason} is not in {REASONS_PAGE}"
    for reason in sorted(listed - set(made)):
        yield f"{REASONS_PAGE}: {reason} is made nowhere"


def main():
    sources = ["*.h", "*.cc", "*.cu", "*.cuh", "*.py", "*.proto", "*.md"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *sources],
        stdout=subprocess.PIPE,
        check=True,
    )
    texts = {}
    for path in filter(None, listed.stdout.decode().split("\0")):
        try:
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read()
        except FileNotFoundError:
            pass
    with open(REASONS_PAGE, encoding="utf-8") as file:
        page = file.read()
    code = {path: text for path, text in texts.items() if not path.endswith((".md", ".proto"))}
    cxx = {path: text for path, text in code.items() if not path.endswith(".py")}
    findings = [finding for path, text in code.items() for finding in check(path, text)]
    findings += [finding for path, text in texts.items() for finding in prose.check(path, text)]
    findings += [*check_classes(cxx), *check_reasons(cxx, page), *layout.check(code)]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
