"""The program behind run.sh."""

import argparse
import ctypes
import dataclasses
import datetime
import glob
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import site
import subprocess
import sys
import time
import traceback

from tests.gpu import report, runner, schedule
from tests.gpu.parts import KERNEL_SUITES, all_parts
from tests.gpu.runner import Part

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MANIFEST = "MANIFEST.json"
TESTS = ("device_test", "virtual_ranks_test", "nccl_ranks_test", "gpu_bench", "gpu_probe",
         *(f"kernel_{suite}_test" for suite in KERNEL_SUITES))
PROGRAMS = ("annulus", "annulus-coordinator", "annulus-worker")
# Scripts that parts run besides programs, and modules that assemble parts.
SCRIPTS = ("tests/gpu/files.py", "tests/gpu/parts.py", "tests/gpu/peers.py", "tests/gpu/end_to_end.py", "tests/gpu/whole_jobs.py",
           "tests/end_to_end/harness/cluster.py", "tests/end_to_end/harness/processes.py")
CLOCKS = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,persistence_mode,mig.mode.current"
# From the first question to the last part's begin or end: with runner.KILL_SECONDS and one more question of nvidia-smi, four minutes.
ALL_SECONDS, SMI_SECONDS, PROBE_SECONDS = 205, 10, 20
NCCL_NAME, CUDNN_NAME = "libnccl.so.2", "libcudnn.so.9"
# In a bundle: beside what programs load by themselves, so that a machine's own goes first.
BUNDLED_NCCL = os.path.join("nccl", NCCL_NAME)


class Unsuited(Exception):
    """This machine cannot run it; one line why."""


def version(text):
    return tuple(int(part) for part in text.split("."))


def libc_version():
    """(2, 36) of glibc; None of another C library."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", os.confstr("CS_GNU_LIBC_VERSION") or "")
    return (int(found[1]), int(found[2])) if found else None


def libstdcxx_version():
    """(3, 4, 30): the newest symbols of the C++ library that programs load here; None where there is none."""
    try:
        ctypes.CDLL("libstdc++.so.6")
        with open("/proc/self/maps", encoding="utf-8") as file:
            path = next(line.split()[-1] for line in file if "libstdc++.so" in line)
        with open(path, "rb") as file:
            return max(tuple(int(part) for part in found) for found in re.findall(rb"GLIBCXX_(\d+)\.(\d+)\.(\d+)", file.read()))
    except (OSError, StopIteration, ValueError):
        return None


def check_machine(manifest, machine=platform.machine, libc=libc_version, libstdcxx=libstdcxx_version):
    """Raises Unsuited where a bundle's programs would not start."""
    if machine() != manifest["machine"]:
        raise Unsuited(f"this is {machine()}, and the bundle is for {manifest['machine']}")
    have, need = libc(), version(manifest["glibc"])
    if have is None:
        raise Unsuited(f"the C library here is not glibc, and the bundle needs glibc {manifest['glibc']}")
    if have < need:
        raise Unsuited(f"glibc here is {have[0]}.{have[1]}, and the bundle needs {manifest['glibc']}")
    if manifest.get("glibcxx") and (libstdcxx() or (0,)) < version(manifest["glibcxx"]):
        raise Unsuited(f"libstdc++.so.6 is not here or has no GLIBCXX_{manifest['glibcxx']}, which the bundle needs")


def digest(paths):
    """A digest of the files' names and contents. It identifies what has been run, whatever the
    commit is."""
    whole = hashlib.sha256()
    for path in sorted(paths, key=os.path.basename):
        with open(path, "rb") as file:
            content = hashlib.sha256()
            for chunk in iter(lambda: file.read(1 << 20), b""):
                content.update(chunk)
        whole.update(f"{os.path.basename(path)} {content.hexdigest()}\n".encode())
    return whole.hexdigest()


class Bundle:
    """An unpacked archive of tools/gpu_bundle."""

    def __init__(self, root):
        with open(os.path.join(root, MANIFEST), encoding="utf-8") as file:
            self.manifest = json.load(file)
        check_machine(self.manifest)
        self.commit = self.manifest["commit"]
        self.programs = os.path.join(root, "bin")
        nccl = os.path.join(root, BUNDLED_NCCL)
        self.bundled_nccl = nccl if os.path.exists(nccl) else None
        folders = [os.path.join(root, name) for name in ("bin", "lib", "nccl") if os.path.isdir(os.path.join(root, name))]
        self.digest = digest([os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
                             + [os.path.join(root, script) for script in SCRIPTS])

    def test(self, name):
        return os.path.join(self.programs, name)


class Build:
    """A repository: builds what it needs."""

    bundled_nccl = None

    def __init__(self, root):
        bazel = shlex.split(os.environ.get("BAZEL", "bazel"))
        if shutil.which(bazel[0]) is None:
            raise Unsuited(f"no {bazel[0]} here to build with, and this is no bundle")

        def ask(*command):
            done = subprocess.run(command, cwd=root, capture_output=True, text=True)
            if done.returncode != 0:
                raise Unsuited(f"{shlex.join(command)}: {done.stderr.strip().splitlines()[-1]}")
            return done.stdout.strip()

        labels = ["//:programs", *(f"//tests/gpu:{name}" for name in TESTS)]
        flags = shlex.split(os.environ.get("BAZEL_FLAGS", ""))
        if subprocess.call([*bazel, "build", "--curses=no", *flags, *labels], cwd=root) != 0:
            raise Unsuited("it does not build here; a CUDA toolkit is needed (docs/how-to/gpu-workers.md)")
        self._bin = ask(*bazel, "info", *flags, "bazel-bin")
        changes = "+changes" if ask("git", "status", "--porcelain") else ""
        self.commit = ask("git", "rev-parse", "HEAD") + changes
        self.programs = os.path.join(self._bin, "bin")
        self.digest = digest([self.test(name) for name in TESTS] + [os.path.join(self.programs, name) for name in PROGRAMS]
                             + [os.path.join(root, script) for script in SCRIPTS])

    def test(self, name):
        return os.path.join(self._bin, "tests", "gpu", name)


def of_wheels(*pattern):
    """Files of Python packages of NVIDIA's."""
    folders = [*sys.path, *site.getsitepackages()]
    return [path for folder in folders if folder for path in sorted(glob.glob(os.path.join(folder, "nvidia", *pattern)))]


def find_library(variable, name, package, function):
    """The library that the environment names, or the newest of the system's and those of NVIDIA's
    Python packages. If versions are equal, the system's."""
    asked = os.environ.get(variable)
    if asked:
        return asked
    try:
        known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    except OSError:
        known = ""
    of_system = [line.split("=>")[1].strip() for line in known.splitlines() if name in line and "=>" in line]
    found = {}
    for path in of_system + of_wheels(package, "lib", name):
        found.setdefault(os.path.realpath(path), path)
    if len(found) < 2:
        return next(iter(found.values()), None)
    return max(found.values(), key=lambda path: version_number(path, function) or 0)


# Loads a library, and says its version where it is asked for. Both say 10000 times the first number (1000 times before NCCL 2.9 and
# cuDNN 9), 100 times the second, and the third: NCCL where its argument points, cuDNN as its result.
ASK_LIBRARY = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1])"
ASK_VERSION = ASK_LIBRARY + "; told = ctypes.c_int(0); ask = getattr(library, sys.argv[2]); " \
                            "ask.restype = ctypes.c_size_t; result = ask(ctypes.byref(told)); print(told.value or result)"


def version_number(path, function):
    """22809; None where it does not say. A process of its own asks, because libraries may crash."""
    try:
        done = subprocess.run([sys.executable, "-c", ASK_VERSION, path, function], capture_output=True, text=True, timeout=SMI_SECONDS)
        return int(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def library_text(path, function):
    """"2.28.9, /usr/lib/libnccl.so.2"."""
    if path is None:
        return "none"
    number = version_number(path, function)
    if number is None:
        return f"of unknown version, {path}"
    first = 10000 if number >= 10000 else 1000
    return f"{number // first}.{number % first // 100}.{number % 100}, {path}"


def loads(name):
    """True if programs find a library of this name."""
    try:
        return subprocess.run([sys.executable, "-c", ASK_LIBRARY, name], capture_output=True, timeout=SMI_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def with_nvrtc(parts):
    """cuDNN loads NVRTC by its name alone; where it is a Python package's, no program finds it so."""
    if not any("cudnn" in part.name for part in parts):
        return parts
    folders = dict.fromkeys(os.path.dirname(path) for path in of_wheels("*", "lib", "libnvrtc.so.*") if not loads(os.path.basename(path)))
    if not folders:
        return parts
    path = os.pathsep.join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *folders]))
    return [dataclasses.replace(part, environment={**part.environment, "LD_LIBRARY_PATH": path}) if "cudnn" in part.name else part
            for part in parts]


def gpu_of(place):
    """The output of gpu_probe, or None and its reason if there is no GPU."""
    try:
        done = subprocess.run([place.test("gpu_probe")], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise Unsuited("gpu_probe does not end") from None
    if done.returncode == 0:
        return json.loads(done.stdout), ""
    said = done.stderr.strip().splitlines()
    reason = said[-1] if said else f"gpu_probe ended with {done.returncode}"
    if done.returncode != runner.NO_GPU:
        raise Unsuited(reason)
    return None, reason


def ask_smi(fields):
    """The output of nvidia-smi about the cards. Changes no setting."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, timeout=SMI_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(done.stdout.strip().splitlines())


def stamp_of(date):
    """The run and its card. Stored with results, because a report may have several runs' results."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards = ask_smi("uuid")
    return {"run": date, "card": f"{cards}, of which CUDA_VISIBLE_DEVICES={visible}" if cards and visible is not None else cards}


def verdict(code, only, facts=None):
    """In words; of a selection it says that it is one."""
    said = VERDICTS[code]
    if code == runner.FAILED and any(fact["status"] == "not run" for fact in (facts or {}).values()):
        said = "Something failed, and not all parts have run: run it again for the others."
    return f"Of {', '.join(sorted(set(only)))} alone: {said}" if only else said


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="Runs everything that a GPU is needed for.")
    parser.add_argument("--out", default="gpu_report", help="folder of the report and of what has finished")
    parser.add_argument("--fresh", action="store_true", help="forget what has finished")
    parser.add_argument("--seconds", type=int, default=ALL_SECONDS,
                        help=f"for all parts together, and for what is asked of the machine before (default: {ALL_SECONDS})")
    parser.add_argument("--jobs", type=int, default=schedule.default_jobs(),
                        help="parts beside one another, measurements aside (default: half of the CPUs, %(default)s here)")
    parser.add_argument("--only", action="append", help="a part by its name; again for more")
    parser.add_argument("--list", action="store_true", help="name the parts")
    return parser.parse_args(arguments)


def chosen(parts, only):
    unknown = set(only or ()) - {part.name for part in parts}
    if unknown:
        print(f"tests/gpu/run.sh: no part {', '.join(sorted(unknown))}", file=sys.stderr)
        raise SystemExit(runner.USAGE)
    return [part for part in parts if not only or part.name in only]


VERDICTS = {runner.PASSED: "All parts passed or were skipped with a reason.", runner.FAILED: "Something failed.",
            runner.NOT_ALL: "Not all parts have run: run it again.", runner.STOPPED: "It was stopped: run it again for the others.",
            runner.BROKEN: "The runner itself is at fault."}


class Told:
    """The report, rewritten after each new result: a killed run leaves the last version."""

    def __init__(self, out, date, machine, only, titles):
        self._out, self._date, self._machine, self._only, self._titles = out, date, machine, only, titles
        self._facts = {}

    def tell(self, facts):
        """A report that is at fault stops no part."""
        self._facts = facts
        try:
            self.end(schedule.exit_code(facts))
        except Exception:
            traceback.print_exc()

    def end(self, code):
        """The verdict on what is known."""
        said = verdict(code, self._only, self._facts)
        report.write(self._out, self._date, self._machine, said, self._facts, self._titles)
        return said


def main(arguments):
    flags = parse(arguments)
    try:
        place = Bundle(ROOT) if os.path.exists(os.path.join(ROOT, MANIFEST)) else Build(ROOT)
        began = time.monotonic()
        gpu, reason = gpu_of(place)
    except Unsuited as error:
        print(f"tests/gpu/run.sh: {error}", file=sys.stderr)
        return runner.UNSUITED
    place.nccl = find_library("ANNULUS_NCCL_LIBRARY", NCCL_NAME, "nccl", "ncclGetVersion") or place.bundled_nccl
    place.cudnn = find_library("ANNULUS_CUDNN_LIBRARY", CUDNN_NAME, "cudnn", "cudnnGetVersion")
    place.hopper = gpu is None or gpu["capability"] == 90
    parts = with_nvrtc(chosen(all_parts(place), flags.only))
    if flags.list:
        print("\n".join(f"{part.name}: {part.title} (at most {part.seconds} s)" for part in parts))
        return runner.PASSED
    if gpu is None:
        print(f"tests/gpu/run.sh: no GPU to run on: {reason}", file=sys.stderr)
        return runner.NO_GPU
    before = ask_smi(CLOCKS)
    libraries = {"NCCL": library_text(place.nccl, "ncclGetVersion"), "cuDNN": library_text(place.cudnn, "cudnnGetVersion")}
    out = os.path.abspath(flags.out)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    stamp = stamp_of(date)
    probe = Part("gpu_probe", "whether the GPU answers after a part that hung", PROBE_SECONDS, [place.test("gpu_probe")])
    machine = {"commit": place.commit, "GPU": gpu["description"], "multiprocessors": gpu["multiprocessors"],
               "memory": f"{gpu['memory_bytes'] / 2**30:.1f} GiB", **libraries, "CPUs": len(os.sched_getaffinity(0)),
               "clocks before": before, "card": stamp["card"], "programs": place.digest, "asked": CLOCKS, "system": platform.platform()}
    told = Told(out, date, machine, flags.only, {part.name: part.title for part in (*parts, probe)})
    # Its results are valid for any machine with such a GPU.
    identity = f"{place.digest} {gpu['device']} sm_{gpu['capability']}"
    left = flags.seconds - (time.monotonic() - began)
    code = runner.BROKEN
    try:
        code, _ = schedule.run(parts, out, identity, left, flags.fresh, stamp=stamp, jobs=flags.jobs, probe=probe, told=told.tell)
        machine["clocks after"] = ask_smi(CLOCKS)
    except KeyboardInterrupt:
        code = runner.STOPPED
        raise
    finally:
        said = told.end(code)
    print(f"{said} {os.path.join(out, 'report.md')}")
    return code


def guarded(arguments):
    """Runs main(). Unexpected errors have a separate exit code, so that they do not look like a
    failed part."""
    # Like Ctrl-C: the parts that run are killed with all that they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # If the parent process ignores SIGCHLD, every part would seem to have ended with 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        return main(arguments)
    except KeyboardInterrupt:
        print("tests/gpu/run.sh: stopped; what has finished is kept", file=sys.stderr)
        return runner.STOPPED
    except Exception:
        traceback.print_exc()
        print("tests/gpu/run.sh: the runner itself is at fault", file=sys.stderr)
        return runner.BROKEN


if __name__ == "__main__":
    sys.exit(guarded(sys.argv[1:]))
