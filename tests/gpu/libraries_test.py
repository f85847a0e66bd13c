"""Tests the choice of a machine's libraries for a run on a GPU."""

import os
import tempfile
import unittest
from unittest import mock

from tests.gpu import run
from tests.gpu.runner import Part


class LibrariesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # No Python package of this machine's is looked at.
        for patch in (mock.patch.object(run.sys, "path", [self.folder]), mock.patch.object(run.site, "getsitepackages", list)):
            patch.start()
            self.addCleanup(patch.stop)

    def wheel(self, package, name):
        path = os.path.join(self.folder, "nvidia", package, "lib", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            return path

    def find(self, system, versions, environment=None):
        """Calls find_library as if the system had these libraries with these versions."""
        known = mock.Mock(stdout="".join(f"\tlibcudnn.so.9 (libc6,x86-64) => {path}\n" for path in system))
        with mock.patch.object(run.subprocess, "run", return_value=known), mock.patch.dict(os.environ, environment or {}), \
                mock.patch.object(run, "version_number", lambda path, function: versions[path]):
            return run.find_library("ANNULUS_CUDNN_LIBRARY", "libcudnn.so.9", "cudnn", "cudnnGetVersion")

    def test_the_newest_is_taken_wherever_it_is(self):
        wheel, system = self.wheel("cudnn", "libcudnn.so.9"), "/usr/lib/libcudnn.so.9"
        self.assertEqual(self.find([system], {system: 91400, wheel: 91900}), wheel)
        self.assertEqual(self.find([system], {system: 92000, wheel: 91900}), system)
        self.assertEqual(self.find([system], {system: 91900, wheel: 91900}), system)
        self.assertEqual(self.find([system], {system: None, wheel: 8907}), wheel)
        self.assertEqual(self.find(["/a/libcudnn.so.9", system], {"/a/libcudnn.so.9": 91400, system: 91900, wheel: 91500}), system)

    def test_one_alone_is_not_asked(self):
        self.assertIsNone(self.find([], {}))
        self.assertEqual(self.find(["/usr/lib/libcudnn.so.9"], {}), "/usr/lib/libcudnn.so.9")
        wheel = self.wheel("cudnn", "libcudnn.so.9")
        self.assertEqual(self.find([], {}), wheel)
        link = os.path.join(self.folder, "link.so")
        os.symlink(wheel, link)
        self.assertEqual(self.find([link], {}), link)

    def test_what_the_environment_names_is_taken(self):
        wheel = self.wheel("cudnn", "libcudnn.so.9")
        self.assertEqual(self.find([], {wheel: 91900}, {"ANNULUS_CUDNN_LIBRARY": "/mine.so"}), "/mine.so")

    def test_a_library_says_its_version(self):
        self.assertEqual(run.version_number(os.path.abspath("tests/worker/comm/libnccl_fake.so"), "ncclGetVersion"), 22809)
        self.assertIsNone(run.version_number("libno-such.so", "ncclGetVersion"))

    def test_parts_with_cudnn_find_the_wheels_nvrtc_where_the_machine_has_none(self):
        parts = [Part("bench", "", 1, []), Part("cudnn_jobs", "", 1, [], environment={"A": "b"}), Part("bench_cudnn", "", 1, [])]
        self.assertEqual(run.with_nvrtc(parts), parts)
        folder = os.path.dirname(self.wheel("cu13", "libnvrtc.so.13"))
        self.wheel("cuda_nvrtc", "libnvrtc.so.12")
        with mock.patch.object(run, "loads", lambda name: name == "libnvrtc.so.12"), mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/mine"}):
            given = run.with_nvrtc(parts)
        self.assertEqual([part.environment for part in given], [
            {}, {"A": "b", "LD_LIBRARY_PATH": f"/mine:{folder}"}, {"LD_LIBRARY_PATH": f"/mine:{folder}"}])
        with mock.patch.object(run, "loads", lambda _: True):
            self.assertEqual(run.with_nvrtc(parts), parts)
        with mock.patch.object(run, "loads", lambda _: self.fail("no part with cuDNN")):
            self.assertEqual(run.with_nvrtc(parts[:1]), parts[:1])

    def test_what_programs_find_is_known(self):
        self.assertTrue(run.loads("libc.so.6"))
        self.assertFalse(run.loads("libnvrtc.so.999"))

    def test_a_run_asks_for_it(self):
        class Built:
            bundled_nccl = None

        part = Part("cudnn_jobs", "", 1, [])
        with mock.patch.object(run, "Build", lambda _: Built), mock.patch.object(run, "gpu_of", lambda _: (None, "none")), \
                mock.patch.object(run, "find_library", lambda *_: None), mock.patch.object(run, "all_parts", lambda _: [part]), \
                mock.patch.object(run, "with_nvrtc", return_value=[]) as asked, mock.patch("sys.stderr"):
            self.assertEqual(run.main([]), run.runner.NO_GPU)
        asked.assert_called_once_with([part])


if __name__ == "__main__":
    unittest.main()
