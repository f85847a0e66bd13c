"""Hostile and wrong safetensors files: refused by the command line before a byte moves, and the next job runs."""

import json
import os
import struct
import tempfile
import unittest

import numpy
from safetensors.numpy import save

from tests.end_to_end import cluster


def header_of(whole):
    size = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8 : 8 + size]), whole[8 + size :]


def rebuilt(whole, change):
    """The file with a changed header and its data as they were."""
    header, data = header_of(whole)
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class FileInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(cluster.Serve(2, "--threads", "1"))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")))
        cls.tensors = {name: numpy.zeros((8, 2, 4), numpy.float32) for name in "qkv"}

    def tearDown(self):
        done = self.service.annulus("cluster", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for worker in json.loads(done.stdout)["workers"]:
            for pool in ("staging", "device", "sessions"):
                self.assertEqual(worker[pool]["used_bytes"], 0)
        self.assertEqual(self.attend(save(self.tensors)).returncode, 0)

    def attend(self, content, *flags, verb="attend"):
        path = os.path.join(self.folder, "in")
        with open(path, "wb") as file:
            file.write(content)
        return self.service.annulus(verb, "--json", "--input", path, *flags)

    def assert_refused(self, content, reason, what, *flags, verb="attend"):
        done = self.attend(content, *flags, verb=verb)
        self.assertEqual(done.returncode, 3, f"{what}: {done.stderr}")
        error = json.loads(done.stdout)["error"]
        self.assertEqual((error["code"], error["reason"]), ("INVALID_ARGUMENT", reason), what)
        return done.stderr

    def test_files_that_are_none(self):
        whole = save(self.tensors)
        bad = {
            "empty": b"",
            "cut header": whole[:20],
            "cut data": whole[:-1],
            "more data": whole + b"x",
            "huge header": struct.pack("<Q", 2**63) + whole[8:],
            "no JSON": struct.pack("<Q", 4) + b"abcd",
            "overflow": rebuilt(whole, lambda h: h["q"].update(shape=[2**62, 2**62, 4])),
            "overlap": rebuilt(whole, lambda h: h["k"].update(data_offsets=h["q"]["data_offsets"])),
            "negative": rebuilt(whole, lambda h: h["q"].update(shape=[-8, 2, 4])),
            "wrong size": rebuilt(whole, lambda h: h["q"].update(shape=[8, 2, 5])),
        }
        for what, content in bad.items():
            with self.subTest(what):
                self.assert_refused(content, "BAD_SAFETENSORS", what)

    def test_tensors_that_do_not_fit_each_other(self):
        wrong = {"k": (8, 2, 5), "v": (9, 2, 4), "q": (8, 3, 4)}
        for name, shape in wrong.items():
            with self.subTest(name):
                tensors = {**self.tensors, name: numpy.zeros(shape, numpy.float32)}
                self.assert_refused(save(tensors), "SHAPE_MISMATCH", name)
        missing = {name: self.tensors[name] for name in "qk"}
        self.assert_refused(save(missing), "MISSING_TENSOR", "no v")
        doubles = {name: array.astype(numpy.float64) for name, array in self.tensors.items()}
        self.assert_refused(save(doubles), "UNSUPPORTED_DTYPE", "fp64")

    def test_tensors_of_names_that_a_job_does_not_take(self):
        """Not computed without what the file may mean by them, and not verified without it either."""
        upstream = {name: numpy.zeros((8, 2, 4), numpy.float32) for name in ("output", "d_out")}
        upstream["lse"] = numpy.zeros((2, 8), numpy.float32)
        for verb, whole in (("attend", self.tensors), ("gradients", {**self.tensors, **upstream}), ("plan", self.tensors)):
            self.assertEqual(self.attend(save(whole), verb=verb).returncode, 0)
            for name in ("bit_mask", "attn_mask", "lse-offset"):
                with self.subTest(verb=verb, name=name):
                    file = save({**whole, name: numpy.zeros((2, 8, 8), bool)})
                    (line,) = self.assert_refused(file, "UNKNOWN_TENSOR", name, verb=verb).splitlines()
                    self.assertRegex(line, f" {name}, and this job takes q, k, v, bias, mask, lse_offset")
                    done = self.attend(file, "--ignore-tensors", name, verb=verb)
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_tensors_are_left_aside_by_name(self):
        digests = {}
        for what, visible, flags in (("plain", None, ()), ("masked", False, ()), ("aside", False, ("--ignore-tensors", "mask,notes"))):
            more = {} if visible is None else {"mask": numpy.full((8, 8), visible)}
            notes = {"notes": numpy.zeros(1)} if flags else {}
            done = self.attend(save({**self.tensors, **more, **notes}), *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            digests[what] = json.loads(done.stdout)["lse_crc32c"]
        self.assertEqual(digests["aside"], digests["plain"])
        self.assertNotEqual(digests["masked"], digests["plain"])
        self.assert_refused(save(self.tensors), "MISSING_TENSOR", "a name that is not there", "--ignore-tensors", "mask")
        for flags in (("--ignore-tensors", "a,,b"), ("--ignore-tensors", "")):
            self.assertEqual(self.attend(save(self.tensors), *flags).returncode, 2, flags)
        done = self.service.annulus("attend", "--synthetic", "1,8,8,2,2,4,fp32,1", "--ignore-tensors", "a")
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
