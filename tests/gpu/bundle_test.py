"""A bundle of programs for a machine with a GPU: what it takes along, where it starts, and one that finds no GPU."""

import contextlib
import io
import os
import platform
import stat
import subprocess
import tarfile
import tempfile
import unittest
from unittest import mock

from tests.gpu import parts, results, run, runner
from tools.testing import gpu_bundle


class BundleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_what_a_machine_may_lack_is_taken_along(self):
        text = "\tlinux-vdso.so.1 (0x1)\n\tlibgrpc.so.29 => /usr/lib/libgrpc.so.29 (0x2)\n\tlibc.so.6 => /lib/libc.so.6 (0x3)\n" \
               "\tlibstdc++.so.6 => /lib/libstdc++.so.6 (0x5)\n\tlibgcc_s.so.1 => /lib/libgcc_s.so.1 (0x6)\n" \
               "\tlibm.so.6 => /lib/libm.so.6 (0x3)\n\tlibcrypto.so.3 => /lib/libcrypto.so.3 (0x4)\n\t/lib64/ld-linux-x86-64.so.2 (0x5)\n"
        self.assertEqual(sorted(gpu_bundle.libraries_in(text)), ["libcrypto.so.3", "libgrpc.so.29"])
        with self.assertRaises(gpu_bundle.BundleError):
            gpu_bundle.libraries_in("\tlibx.so => not found\n")
        self.assertEqual(gpu_bundle.glibcxx_in("GLIBC_2.34 GLIBCXX_3.4.9 GLIBCXX_3.4.30 CXXABI_1.3.9"), (3, 4, 30))
        self.assertEqual(gpu_bundle.glibc_in("GLIBC_2.4 GLIBC_2.34 GLIBC_2.9 GLIBCXX_3.4.30"), (2, 34))

    def test_a_machine_that_cannot_run_it_is_told_so(self):
        manifest = {"machine": "x86_64", "glibc": "2.36"}

        def why(machine, libc):
            with self.assertRaises(run.Unsuited) as refused:
                run.check_machine(manifest, lambda: machine, lambda: libc)
            return str(refused.exception)

        self.assertEqual(why("x86_64", (2, 31)), "glibc here is 2.31, and the bundle needs 2.36")
        self.assertIn("not glibc", why("x86_64", None))
        self.assertIn("aarch64", why("aarch64", (2, 40)))
        run.check_machine(manifest, lambda: "x86_64", lambda: (2, 100))
        manifest["glibcxx"] = "3.4.30"
        for have in (None, (3, 4, 29)):
            with self.assertRaises(run.Unsuited):
                run.check_machine(manifest, lambda: "x86_64", lambda: (2, 100), lambda: have)
        run.check_machine(manifest, lambda: "x86_64", lambda: (2, 100), lambda: (3, 4, 30))
        self.assertGreater(run.libstdcxx_version(), (3, 4))

    def test_it_starts_from_its_own_folder_and_finds_no_gpu(self):
        probe = os.path.join(self.folder, "gpu_probe")
        with open(probe, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 'this machine has no NVIDIA driver' >&2\nexit 3\n")
        os.chmod(probe, os.stat(probe).st_mode | stat.S_IXUSR)
        filled = os.path.join(self.folder, "filled")
        manifest = gpu_bundle.fill(filled, {"gpu_probe": probe, "annulus": "/bin/true"}, "abc")
        self.assertEqual((manifest["commit"], manifest["machine"]), ("abc", platform.machine()))
        self.assertGreater(run.version(manifest["glibc"]), (2, 1))
        archive = os.path.join(self.folder, "bundle.tar.xz")
        self.assertLess(gpu_bundle.pack(filled, archive), gpu_bundle.MOST_BYTES)
        self.assertLessEqual(gpu_bundle.MOST_BYTES, 48 << 20)
        with tarfile.open(archive) as packed:
            packed.extractall(self.folder)
        environment = {"PATH": os.environ["PATH"]}
        command = [os.path.join(self.folder, "annulus-gpu", "run.sh"), "--out", os.path.join(self.folder, "report")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd="/")
        self.assertEqual((done.returncode, done.stdout), (runner.NO_GPU, ""), done.stderr)
        self.assertEqual(done.stderr, "tests/gpu/run.sh: no GPU to run on: this machine has no NVIDIA driver\n")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "report")))
        listed = subprocess.run([*command, "--list"], env=environment, capture_output=True, text=True, timeout=60, cwd="/")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("virtual_ranks: ", listed.stdout)

    def bundle(self, name, probe):
        """Unpacked, with a probe that is a script of that text."""
        source = os.path.join(self.folder, name + "_probe")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + probe)
        folder = os.path.join(self.folder, name)
        gpu_bundle.fill(folder, {"gpu_probe": source}, "abc+changes")
        return folder

    def start(self, folder, cwd="/", path=os.environ["PATH"]):
        return subprocess.run([os.path.join(folder, "run.sh"), "--list"], env={"PATH": path}, capture_output=True, text=True, timeout=60,
                              cwd=cwd)

    def test_what_was_run_is_known_by_its_contents(self):
        one, same, other = (run.Bundle(self.bundle(name, text)) for name, text in (("one", "exit 3"), ("same", "exit 3"), ("other", "exit 4")))
        self.assertEqual(one.commit, other.commit)
        self.assertEqual(one.digest, same.digest)
        self.assertNotEqual(one.digest, other.digest)
        with open(os.path.join(self.folder, "same", "tests", "gpu", "peers.py"), "a", encoding="utf-8") as file:
            file.write("# Changed.\n")
        self.assertNotEqual(run.Bundle(os.path.join(self.folder, "same")).digest, one.digest)

    def test_it_takes_nothing_of_the_current_folder_for_its_own(self):
        os.makedirs(os.path.join(self.folder, "here", "tests"))
        with open(os.path.join(self.folder, "here", "tests", "__init__.py"), "w", encoding="utf-8") as file:
            file.write("raise SystemExit('not these tests')\n")
        here = os.path.join(self.folder, "here")
        done = self.start(self.bundle("b", "exit 3"), cwd=here)
        self.assertEqual((done.returncode, done.stderr), (runner.PASSED, ""))
        done = subprocess.run(parts.script("end_to_end", "--help"), cwd=here, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_torch_that_is_too_old_is_none(self):
        os.makedirs(os.path.join(self.folder, "torch"))
        with open(os.path.join(self.folder, "torch", "__init__.py"), "w", encoding="utf-8") as file:
            file.write("__version__ = '1.13'\nclass cuda:\n    is_available = staticmethod(lambda: True)\n")
        done = subprocess.run(parts.script("peers", "figures", "f.json"), capture_output=True, text=True, timeout=60, cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": self.folder})
        self.assertEqual(done.returncode, results.SKIPPED_CODE, done.stderr)
        self.assertIn("torch 1.13 is too old", done.stdout)

    def test_what_the_runner_did_not_expect_is_no_failed_part(self):
        folder = self.bundle("b", "echo no JSON")
        done = self.start(folder)
        self.assertEqual(done.returncode, runner.BROKEN, done.stderr)
        self.assertIn("the runner itself", done.stderr)
        old = os.path.join(self.folder, "python3")
        with open(old, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 1\n")
        os.chmod(old, 0o755)
        done = self.start(folder, path=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual((done.returncode, done.stderr), (runner.UNSUITED, "tests/gpu/run.sh: no python3 here of 3.8 or newer\n"))

    def test_what_programs_share_is_packed_once(self):
        shared = os.path.join(self.folder, "shared")
        os.makedirs(shared)
        kernels = os.urandom(10 << 20)  # More than xz sees of its own accord.
        for name in ("one", "other"):
            with open(os.path.join(shared, name), "wb") as file:
                file.write(kernels)
        self.assertLess(gpu_bundle.pack(shared, os.path.join(self.folder, "shared.tar.xz")), 11 << 20)

    def test_nccl_is_taken_along_and_used_where_the_machine_has_none(self):
        library = os.path.abspath("tests/worker/comm/libnccl_fake.so")
        probe = os.path.join(self.folder, "probe")
        with open(probe, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        gpu_bundle.check_nccl(library)
        gpu_bundle.fill(os.path.join(self.folder, "with"), {"gpu_probe": probe}, "abc", library)
        bundle = run.Bundle(os.path.join(self.folder, "with"))
        self.assertEqual(bundle.bundled_nccl, os.path.join(self.folder, "with", "nccl", "libnccl.so.2"))
        self.assertNotEqual(bundle.digest, run.Bundle(self.bundle("without", "")).digest)
        self.assertIsNone(run.Bundle(self.bundle("without", "")).bundled_nccl)
        used = []

        def all_parts(place):
            used.append(place.nccl)
            return []

        for found in (None, "/of/the/machine.so"):
            with contextlib.ExitStack() as stack:
                for name, value in (("ROOT", os.path.join(self.folder, "with")), ("gpu_of", lambda _: (None, "none")), ("all_parts", all_parts),
                                    ("find_library", lambda *_, found=found: found)):
                    stack.enter_context(mock.patch.object(run, name, value))
                stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
                self.assertEqual(run.main([]), runner.NO_GPU)
        self.assertEqual(used, [bundle.bundled_nccl, "/of/the/machine.so"])

    def test_what_is_no_nccl_is_told_in_a_line_before_anything_is_built(self):
        probe = os.path.join(self.folder, "text")
        with open(probe, "w", encoding="utf-8") as file:
            file.write("text")
        for path, why in ((probe, "is not a library of NCCL"), ("/bin/true", "is not a library of NCCL"), ("/no/such", "No such file")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), mock.patch.object(gpu_bundle, "build", side_effect=AssertionError):
                self.assertEqual(gpu_bundle.main(["--nccl", path, os.path.join(self.folder, "b.tar.xz")]), 1)
            self.assertEqual(said.getvalue().count("\n"), 1)
            self.assertIn(why, said.getvalue())

    def test_one_that_is_too_large_is_none(self):
        os.makedirs(os.path.join(self.folder, "noise", "nccl"))
        with open(os.path.join(self.folder, "noise", run.BUNDLED_NCCL), "wb") as file:
            file.write(os.urandom(3 << 20))
        target = os.path.join(self.folder, "b.tar.xz")
        limit, gpu_bundle.MOST_BYTES = gpu_bundle.MOST_BYTES, 1 << 20
        try:
            with self.assertRaises(gpu_bundle.BundleError) as refused:
                gpu_bundle.pack(os.path.join(self.folder, "noise"), target)
        finally:
            gpu_bundle.MOST_BYTES = limit
        self.assertEqual(str(refused.exception),
                         f"{target} would be of 3.0 MiB, and may be of 1, of NCCL 3.0 MiB before packing: give a thinned copy")
        self.assertFalse(os.path.exists(target))


if __name__ == "__main__":
    unittest.main()
