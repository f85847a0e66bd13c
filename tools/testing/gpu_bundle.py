"""The program behind tools/gpu_bundle: one archive that tests/gpu/run.sh runs from, wherever there is a GPU."""

import argparse
import json
import lzma
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile

from tests.gpu.run import BUNDLED_NCCL, MANIFEST, PROGRAMS, SCRIPTS, TESTS

MOST_BYTES = 48 << 20
# Programs of some 30 MB have the same kernels in them: the second is small where the first is still in the dictionary.
PACKING = {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 128 << 20}
# Libraries that the machine must supply: parts of glibc, which belong to its kernel and loader, and
# the compiler's libraries. Ours would need a newer glibc than the programs do.
OF_MACHINE = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|nsl|util|anl|mvec|stdc\+\+|gcc_s))\.so.*")
# The runner, and what it uses of the tests of whole jobs.
SOURCES = (*(f"tests/gpu/{name}.py" for name in ("run", "runner", "schedule", "results", "report")), *SCRIPTS)
# A package of this name that a machine has installed must not be taken for ours.
PACKAGES = ("tests/__init__.py", "tests/gpu/__init__.py", "tests/end_to_end/__init__.py", "tests/end_to_end/harness/__init__.py")
# Programs look beside themselves for their libraries, and so do these: nothing else on the machine sees them.
LINK = "--linkopt=-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"


class BundleError(Exception):
    """No bundle; one line why."""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BundleError(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def libraries_in(ldd):
    """Name -> path of what `ldd` says a program loads and a machine may lack."""
    found = {}
    for line in ldd.splitlines():
        if "not found" in line:
            raise BundleError(f"a library is missing here: {line.strip()}")
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if match and not OF_MACHINE.fullmatch(match[1]):
            found[match[1]] = match[2]
    return found


def glibc_in(versions):
    """The newest version of glibc that `readelf --version-info` names, as (2, 36); (0, 0) where it names none."""
    return max(((int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", versions)), default=(0, 0))


def glibcxx_in(versions):
    """The newest GLIBCXX that it names, as (3, 4, 30); () where it names none."""
    return max((tuple(map(int, found)) for found in re.findall(r"\bGLIBCXX_(\d+)\.(\d+)\.(\d+)", versions)), default=())


def install(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, 0o755)
    subprocess.run(["strip", "--strip-unneeded", target], stderr=subprocess.DEVNULL)  # Scripts stay as they are.


def check_nccl(path):
    """Raises where the file is no NCCL; a loader is not asked, because a thinned copy is for another machine."""
    try:
        with open(path, "rb") as file:
            known = file.read(4) == b"\x7fELF"
    except OSError as error:
        raise BundleError(f"--nccl: {path}: {error.strerror}") from None
    if not known or " ncclGetVersion" not in run("nm", "--dynamic", "--defined-only", path):
        raise BundleError(f"--nccl: {path} is not a library of NCCL")


def fill(folder, programs, commit, nccl=None):
    """Puts programs (name -> path), their libraries, the runner, the manifest and, where it is given, NCCL into the folder."""
    libraries = {}
    for name, path in programs.items():
        install(path, os.path.join(folder, "bin", name))
        if subprocess.run(["readelf", "-h", path], capture_output=True).returncode == 0:
            libraries.update(libraries_in(run("ldd", path)))
    os.makedirs(os.path.join(folder, "lib"), exist_ok=True)
    for name, path in libraries.items():
        install(os.path.realpath(path), os.path.join(folder, "lib", name))
    if nccl:
        install(os.path.realpath(nccl), os.path.join(folder, BUNDLED_NCCL))
    need, need_cxx = (2, 0), ()
    for place in ("bin", "lib"):
        for name in sorted(os.listdir(os.path.join(folder, place))):
            done = subprocess.run(["readelf", "--version-info", os.path.join(folder, place, name)], capture_output=True, text=True)
            need, need_cxx = max(need, glibc_in(done.stdout)), max(need_cxx, glibcxx_in(done.stdout))
    for source in SOURCES:
        os.makedirs(os.path.dirname(os.path.join(folder, source)), exist_ok=True)
        shutil.copyfile(source, os.path.join(folder, source))
    for package in PACKAGES:
        with open(os.path.join(folder, package), "w", encoding="utf-8"):
            pass
    shutil.copy("tests/gpu/run.sh", os.path.join(folder, "run.sh"))
    manifest = {"commit": commit, "machine": platform.machine(), "glibc": f"{need[0]}.{need[1]}", "glibcxx": ".".join(map(str, need_cxx))}
    with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
    return manifest


def pack(folder, target):
    """The archive's size; without it where that is too much."""
    with lzma.open(target, "wb", filters=[PACKING]) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname="annulus-gpu")
    size = os.path.getsize(target)
    if size > MOST_BYTES:
        os.remove(target)
        nccl = os.path.join(folder, BUNDLED_NCCL)
        why = f", of NCCL {os.path.getsize(nccl) / 2**20:.1f} MiB before packing: give a thinned copy" if os.path.exists(nccl) else ""
        raise BundleError(f"{target} would be of {size / 2**20:.1f} MiB, and may be of {MOST_BYTES >> 20}{why}")
    return size


def build():
    """Program -> path, and the commit."""
    bazel = shlex.split(os.environ.get("BAZEL", "bazel"))
    flags = shlex.split(os.environ.get("BAZEL_FLAGS", ""))
    labels = ["//:programs", *(f"//tests/gpu:{name}" for name in TESTS)]
    if subprocess.call([*bazel, "build", "--curses=no", "--show_progress_rate_limit=10", *flags, LINK, *labels]) != 0:
        raise BundleError("it does not build; a CUDA toolkit is needed (docs/how-to/gpu-workers.md)")
    place = run(*bazel, "info", *flags, "bazel-bin").strip()
    programs = {name: os.path.join(place, "bin", name) for name in PROGRAMS}
    programs.update({name: os.path.join(place, "tests", "gpu", name) for name in TESTS})
    changes = "+changes" if run("git", "status", "--porcelain") else ""
    return programs, run("git", "rev-parse", "HEAD").strip() + changes


def main(arguments):
    parser = argparse.ArgumentParser(prog="tools/gpu_bundle", description="Packs what tests/gpu/run.sh runs.")
    parser.add_argument("target", nargs="?", default="gpu_bundle.tar.xz", metavar="FILE.tar.xz")
    parser.add_argument("--nccl", metavar="PATH", help="a libnccl.so.2 to take along, for machines that have none")
    flags = parser.parse_args(arguments)
    target = flags.target
    try:
        if flags.nccl:
            check_nccl(flags.nccl)
        programs, commit = build()
        with tempfile.TemporaryDirectory() as folder:
            manifest = fill(folder, programs, commit, flags.nccl)
            size = pack(folder, target)
    except BundleError as error:
        print(f"tools/gpu_bundle: {error}", file=sys.stderr)
        return 1
    print(f"{target}: {size / 2**20:.1f} MiB, {manifest['machine']}, glibc {manifest['glibc']} or newer, commit {manifest['commit']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
