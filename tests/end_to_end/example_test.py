"""The examples, run as a reader runs them."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import grpc
import numpy

from tests.end_to_end.harness import cluster
from tools.testing import proto_stubs


class ExampleTest(unittest.TestCase):
    def test_it_computes_attention(self):
        proto_stubs.load("annulus/v1/attention.proto")
        from examples import attend as example

        random = numpy.random.default_rng(2)
        # A view, as in PyTorch.
        q = random.standard_normal((4, 3000, 64), numpy.float32).transpose(1, 0, 2)
        k, v = (random.standard_normal((2500, 2, 64), numpy.float32) for _ in range(2))
        with cluster.Serve(2) as service, grpc.insecure_channel(service.address) as channel:
            out, lse = example.attend(channel, q, k, v)
            with self.assertRaises(grpc.RpcError) as refused:
                example.attend(channel, q[:, :3], k, v)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        for head in range(4):
            scores = q[:, head].astype(float) @ k[:, head // 2].T.astype(float) / 8
            total = numpy.exp(scores).sum(axis=1)
            exact = numpy.exp(scores) / total[:, None] @ v[:, head // 2]
            numpy.testing.assert_allclose(out[:, head], exact, atol=1e-5)
            numpy.testing.assert_allclose(lse[:, head], numpy.log(total), rtol=1e-5)

    def test_what_is_no_float32_is_refused(self):
        proto_stubs.load("annulus/v1/attention.proto")
        from examples import attend as example

        right = numpy.ones((4, 2, 8), numpy.float32)
        for wrong, told in (("<f8", "<f8"), (">f4", ">f4"), ("<f2", "<f2"), ("<i4", "<i4")):
            for place, name in enumerate("qkv"):
                arrays = [right] * 3
                arrays[place] = right.astype(wrong)
                with self.subTest(wrong=wrong, name=name), self.assertRaisesRegex(TypeError, f"^{name} is {told}, not little-endian float32"):
                    example.attend(None, *arrays)
        with self.assertRaisesRegex(ValueError, r"^k is \[2, 8\], not \[tokens, heads, dim\]$"):
            example.attend(None, right, right[0], right)

    def test_its_instructions_can_be_followed(self):
        with tempfile.TemporaryDirectory() as root, cluster.Serve(2) as service:
            shutil.copytree("proto", os.path.join(root, "proto"))
            path = os.path.join(root, "examples", "attend.py")
            os.makedirs(os.path.dirname(path))
            shutil.copy("examples/attend.py", path)
            install, generate, run = instructions(path)
            self.assertEqual(install, "pip install grpcio-tools numpy")
            self.follow(root, generate)
            done = self.follow(root, run.replace("127.0.0.1:8001", service.address))
            self.assertEqual(done.stdout, "output (1000, 4, 64) lse (1000, 4) first row equals v: True\n")
            told = self.follow(root, run.replace("127.0.0.1:8001", ""), expect=1)
            self.assertEqual(told.stderr, "usage: python examples/attend.py HOST:PORT\n")

    def test_the_cpp_examples(self):
        says = {
            "attend_c": r"annulus \d+\.\d+\.\d+, first row equals v: true",
            "attend": r"[12] workers, first row equals v: true",
            "gradients": r"dv of one column sums to (499\.9|500\.0)\d over 500 queries",
            "sequences": r"501 queries over 1400 keys, first row equals v: true",
        }
        with cluster.Serve(2) as service:
            for name, line in says.items():
                with self.subTest(name):
                    done = subprocess.run([f"examples/{name}", service.address], capture_output=True, text=True, timeout=100, check=False)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertRegex(done.stdout, f"^{line}\n$")
            nobody = subprocess.run(["examples/attend", "127.0.0.1:1"], capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(nobody.returncode, 1)
            self.assertIn("UNAVAILABLE", nobody.stderr)
        self.assertEqual(subprocess.run(["examples/attend"], capture_output=True, timeout=100, check=False).returncode, 2)

    def follow(self, root, command, expect=0):
        """Runs `python ...` in the root, with nothing of this test on its path."""
        python, *arguments = shlex.split(command)
        self.assertEqual(python, "python")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, expect, f"{command}\n{done.stdout}\n{done.stderr}")
        return done


def instructions(path):
    """The indented lines at the top of a script, those that go on put together."""
    with open(path, encoding="utf-8") as file:
        top = file.read().split('"""')[1]
    lines = [line.strip() for line in top.replace("\\\n", " ").splitlines() if line.startswith("    ")]
    return [" ".join(line.split()) for line in lines]


if __name__ == "__main__":
    unittest.main()
