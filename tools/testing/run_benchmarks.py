"""Runs benchmarks one after another and shows their figures; the program behind tools/bench.

A benchmark is a Bazel binary below //benchmarks tagged "bench": it prints a JSON list of entries
(benchmarks/bench_report.h) on standard output. A peer is a Python file benchmarks/peers/NAME.py that does
the same with the libraries of benchmarks/peers/requirements.txt, in a venv outside the repository. It
alternates with a program tagged "rounds", which answers line by line.
"""

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys

FIELDS = {
    "name": str,
    "value": (int, float),
    "unit": str,
    "compared_to": str,
    "ratio": (int, float, type(None)),
    "better": str,
    "bar": (int, float, type(None)),
    "met": (bool, type(None)),
    "ceiling": (int, float, type(None)),
    "repeats": int,
    "spread": (int, float),
}
# Arguments of the benchmarks that have any, for `tools/bench NAME -- ARGUMENT...`.
ARGUMENTS = {
    "decode": "[--threads N] [--path NAME]",
    "kernel": "[--threads N] [--path NAME] [CASE]...",
    "million": "[--tokens N]",
    "options": "[--threads N] [--path NAME] [OPTION]...",
}
PEERS = "benchmarks/peers"
TIMEOUT_SECONDS = 1800
PEER_TIMEOUT_SECONDS = 4 * 3600


def is_a(value, kind):
    # A bool is an int to Python.
    return isinstance(value, kind) and (not isinstance(value, bool) or kind is FIELDS["met"])


def check_entries(text):
    """The entries of a benchmark's output; ValueError says what is wrong with it."""
    entries = json.loads(text)
    if not isinstance(entries, list) or not entries:
        raise ValueError("its output is no JSON list of entries")
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError(f"{entry!r} is no entry")
        if set(entry) != set(FIELDS):
            raise ValueError(f"fields differ: {sorted(set(entry) ^ set(FIELDS))}")
        for field, kind in FIELDS.items():
            if not is_a(entry[field], kind):
                raise ValueError(f"{entry['name']}: {field} is {entry[field]!r}")
        if entry["better"] not in ("higher", "lower"):
            raise ValueError(f"{entry['name']}: better is {entry['better']!r}")
    return entries


def cpu():
    """The processor's name and cores: figures mean nothing without them."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'unknown CPU'}, {os.cpu_count()} cores"


def number(value):
    return "-" if value is None else f"{value:.4g}"


def table(entries):
    """Rows of text, the first of them the columns' names."""
    rows = [("benchmark", "value", "ratio", "bar", "ceiling", "spread", "", "compared to")]
    for entry in entries:
        sign = ">=" if entry["better"] == "higher" else "<="
        rows.append(
            (
                entry["name"],
                f"{number(entry['value'])} {entry['unit']}".strip(),
                number(entry["ratio"]),
                "-" if entry["bar"] is None else f"{sign} {number(entry['bar'])}",
                number(entry["ceiling"]),
                f"{entry['spread']:.0%} of {entry['repeats']}",
                {True: "met", False: "MISSED", None: ""}[entry["met"]],
                entry["compared_to"],
            )
        )
    return rows


def show(entries):
    rows = table(entries)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def commit():
    """The commit that is measured, and whether more than it is."""
    def ask(*arguments):
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
    changed = ask("status", "--porcelain", "--untracked-files=no")
    return ask("rev-parse", "--short", "HEAD") + (", with changes" if changed else "")


def show_page(names, entries, load):
    """A page of docs/figures."""
    command = " ".join(["tools/bench", *names])
    print(f"# {cpu()}\n")
    print(f"`{command} --markdown` on {datetime.date.today()}, commit {commit()}, load {load:.1f} when it began.\n")
    columns, *rows = table(entries)
    print("| " + " | ".join(columns) + " |")
    print("|" + " --- |" * len(columns))
    for row in rows:
        cells = [text.replace("|", "\\|").replace("MISSED", "**missed**") for text in row]
        print("| " + " | ".join(cells) + " |")


class Bench:
    """Builds and runs benchmarks through one Bazel command."""

    def __init__(self):
        self.bazel = shlex.split(os.environ.get("BAZEL", "bazel"))
        self.flags = shlex.split(os.environ.get("BAZEL_FLAGS", ""))

    def _ask(self, *arguments):
        done = subprocess.run(self.bazel + list(arguments), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return done.stdout.split()

    def targets(self):
        """Benchmark name -> label."""
        labels = self._ask("query", "--noshow_progress", r"attr(tags, '\bbench\b', //benchmarks/...)")
        return {label.rsplit(":", 1)[1]: label for label in sorted(labels)}

    def rounds(self):
        """Labels of the programs that answer peers line by line."""
        return self._ask("query", "--noshow_progress", r"attr(tags, '\brounds\b', //benchmarks/...)")

    def build(self, labels):
        command = self.bazel + ["build", "--curses=no", "--show_progress_rate_limit=10"]
        if subprocess.call(command + self.flags + labels, stdout=sys.stderr) != 0:
            raise SystemExit("the benchmarks do not build")

    def output_folder(self):
        return self._ask("info", "bazel-bin")[0]

    def binary(self, label):
        """Absolute path of a benchmark, and the folder that it runs in."""
        path = os.path.join(self.output_folder(), label[2:].replace(":", "/"))
        runfiles = os.path.join(path + ".runfiles", "annulus")
        return path, runfiles if os.path.isdir(runfiles) else os.getcwd()


def run(name, command, folder, environment=None):
    print(f"bench: {name} ...", file=sys.stderr, flush=True)
    timeout = TIMEOUT_SECONDS if environment is None else PEER_TIMEOUT_SECONDS
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, timeout=timeout
    )
    if done.returncode != 0:
        raise ValueError(f"ended with {done.returncode}")
    return check_entries(done.stdout.decode())


def peers_python():
    """The Python of the peers' venv, made outside the repository when it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    venv = os.path.join(cache, "annulus", "peers")
    python = os.path.join(venv, "bin", "python")
    wanted = os.path.join(PEERS, "requirements.txt")
    stamp = os.path.join(venv, "requirements.txt")
    with open(wanted, encoding="utf-8") as file:
        text = file.read()
    if not (os.path.exists(stamp) and open(stamp, encoding="utf-8").read() == text):
        print(f"bench: installing the peers in {venv} (some GB, minutes)", file=sys.stderr)
        subprocess.check_call(["/usr/bin/python3", "-m", "venv", "--clear", venv])
        subprocess.check_call(
            [python, "-m", "pip", "install", "--disable-pip-version-check", "-r", wanted],
            stdout=sys.stderr,
        )
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(text)
    return python


def peers(names):
    found = sorted(os.listdir(PEERS)) if os.path.isdir(PEERS) else []
    stems = [file[:-3] for file in found if file.endswith(".py")]
    return [stem for stem in stems if not names or stem in names]


def parse(arguments):
    """The options, and what stands after "--" for the one benchmark that is named."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    passed = arguments[end + 1 :]
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        usage="tools/bench [NAME]... [--peers] [--json | --markdown] [--check] [-- ARGUMENT...]",
        description="Runs the benchmarks.",
        epilog="ARGUMENT... goes to the one benchmark that is named, of "
        + ", ".join(f"{name} {taken}" for name, taken in ARGUMENTS.items())
        + ".",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--peers", action="store_true", help="install and run the peers as well")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    form.add_argument("--markdown", action="store_true", help="print a page with machine, date and commit, as docs/figures has")
    parser.add_argument("--check", action="store_true", help="end with 1 when a bar is missed")
    options = parser.parse_args(arguments[:end])
    if passed and (options.peers or len(options.names) != 1 or options.names[0] not in ARGUMENTS):
        parser.error(f"arguments after -- are for one benchmark of {', '.join(ARGUMENTS)}: name it alone")
    return parser, options, passed


def main(arguments=None):
    parser, options, passed = parse(sys.argv[1:] if arguments is None else arguments)
    bench = Bench()
    known = bench.targets()
    peer_names = peers(options.names) if options.peers else []
    unknown = [name for name in options.names if name not in known and name not in peer_names]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(known) or 'none'}")
    chosen = {name: label for name, label in known.items() if not options.names or name in options.names}
    if chosen:
        bench.build(list(chosen.values()))
    jobs = [(name, *bench.binary(label)) for name, label in chosen.items()]
    jobs = [(name, [path, *passed], folder, None) for name, path, folder in jobs]
    if peer_names:
        python = peers_python()
        bench.build([*bench.rounds(), "//:programs"])
        binaries = bench.output_folder()
        here = dict(os.environ, PYTHONPATH=os.getcwd(), ANNULUS_BENCH_BIN=binaries, ANNULUS_PROGRAMS=os.path.join(binaries, "bin"))
        jobs += [(f"peer {n}", [python, f"{PEERS}/{n}.py"], os.getcwd(), here) for n in peer_names]

    entries, failed, load = [], False, os.getloadavg()[0]
    for name, command, folder, environment in jobs:
        try:
            entries += run(name, command, folder, environment)
        except (ValueError, OSError, subprocess.TimeoutExpired) as error:
            print(f"bench: {name} failed: {error}", file=sys.stderr)
            failed = True
    if options.json:
        print(json.dumps(entries, indent=2))
    elif options.markdown:
        show_page(options.names, entries, load)
    else:
        print(cpu())
        show(entries)
    missed = options.check and any(entry["met"] is False for entry in entries)
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
