"""Bazel's compile actions as a compilation database; the program behind tools/compile_commands.

The actions name paths relative to Bazel's execution root, in which sources are links. In the database they are relative
to the workspace where they are sources, so that an editor opens the file itself, and absolute where Bazel makes or
fetches them. CUDA sources are not among them: nvcc compiles them by a rule of its own.
"""

import json
import os
import shlex
import subprocess
import sys

# Flags whose path follows in the same argument; longer ones first.
JOINED = ("-isystem", "-iquote", "-include", "--sysroot=", "-F", "-I", "@")
# Flags of GCC that make clangd stop.
UNKNOWN_TO_CLANG = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object"}
OUTPUT_FLAGS = {"-o", "-MF"}


class Roots:
    """Maps paths of the execution root to paths on this machine."""

    def __init__(self, workspace, execution_root, output_base):
        self.workspace = workspace
        self._places = (("bazel-out", execution_root), ("external", output_base))

    def resolve(self, path):
        """A path as an action names it: absolute for what Bazel makes or fetches, else as it is."""
        for folder, place in self._places:
            if path == folder or path.startswith(folder + "/"):
                return os.path.join(place, path)
        return path

    def argument(self, argument):
        """An argument with the path in it resolved, if it has one."""
        for flag in JOINED:
            if argument.startswith(flag) and len(argument) > len(flag):
                return flag + self.resolve(argument[len(flag):])
        return self.resolve(argument)


def value_after(arguments, flag):
    """The argument behind `flag`; None where there is none."""
    at = arguments.index(flag) + 1 if flag in arguments else len(arguments)
    return arguments[at] if at < len(arguments) else None


def is_for_tools(arguments):
    """True if the action builds a program that runs during the build."""
    parts = (value_after(arguments, "-o") or "").split("/")
    return len(parts) > 1 and (parts[1] == "host" or "-exec-" in parts[1])


def entries(graph, roots):
    """An entry for each source of the action graph, ordered by source. A source that several targets compile has the
    first action for the target's platform."""
    chosen = {}
    for action in graph.get("actions", []):
        arguments = action.get("arguments", [])
        source = value_after(arguments, "-c")
        if action.get("mnemonic") != "CppCompile" or source is None:
            continue
        if source not in chosen or is_for_tools(chosen[source]) and not is_for_tools(arguments):
            chosen[source] = arguments
    return [entry(source, arguments, roots) for source, arguments in sorted(chosen.items())]


def entry(source, arguments, roots):
    kept = [roots.argument(each) for each in arguments if each not in UNKNOWN_TO_CLANG]
    output = value_after(arguments, "-o")
    made = {"directory": roots.workspace, "file": roots.resolve(source), "arguments": kept}
    if output is not None:
        made["output"] = roots.resolve(output)
    return made


def bazel(*arguments):
    """Standard output of a Bazel command; its messages go to standard error as they come."""
    command = shlex.split(os.environ.get("BAZEL", "bazel"))
    flags = shlex.split(os.environ.get("BAZEL_FLAGS", ""))
    ran = subprocess.run(
        [*command, arguments[0], *flags, *arguments[1:]], stdout=subprocess.PIPE, check=True
    )
    return ran.stdout.decode()


def roots_here():
    """`bazel info` prints one "name: value" a line where it is asked for several."""
    lines = bazel("info", "workspace", "execution_root", "output_base").splitlines()
    return Roots(**dict(line.split(": ", 1) for line in lines))


def write(path, database):
    """Whole or not at all: an editor may read the old one meanwhile."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(database, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def main(arguments):
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print("usage: tools/compile_commands [TARGETS]", file=sys.stderr)
        return 2
    targets = arguments[0] if arguments else "//..."
    try:
        roots = roots_here()
        graph = bazel("aquery", "--output=jsonproto", f'mnemonic("CppCompile", deps({targets}))')
    except subprocess.CalledProcessError as error:
        return error.returncode
    database = entries(json.loads(graph), roots)
    write(os.path.join(roots.workspace, "compile_commands.json"), database)
    print(f"compile_commands.json: {len(database)} sources")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
