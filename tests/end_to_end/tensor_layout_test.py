"""`--tensor-layout`: files whose dimensions come in another order, there and back, for the same bits."""

import os
import unittest

import numpy

from tests.end_to_end.harness.attend_case import load_tensors, rounded, save_tensors
from tests.end_to_end.harness.gradient_case import GradientCase

# From the layout that a file without the flag has, with a batch and without one.
ORDERS = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3), "sbhd": (1, 0, 2, 3), "thd": (0, 1, 2), "hnd": (1, 0, 2)}
OF_ROWS = ("lse", "d_lse", "max_logit")


class TensorLayoutTest(GradientCase):
    WORKERS = 2

    def made_in(self, layout, dtype):
        """q, k, v and d_out as jobs have them, with a batch where the layout has one."""
        random = numpy.random.default_rng(len(layout))
        batch = (3,) if len(layout) == 4 else ()
        shapes = {"q": (70, 4, 24), "k": (90, 2, 24), "v": (90, 2, 16), "d_out": (70, 4, 16)}
        return {name: rounded(random.standard_normal(batch + shape), dtype) for name, shape in shapes.items()}

    def turned(self, tensors, layout):
        return {
            name: array if name in OF_ROWS else numpy.ascontiguousarray(array.transpose(ORDERS[layout]))
            for name, array in tensors.items()
        }

    def run_command(self, command, tensors, dtype, *flags):
        source, target = (os.path.join(self.folder, name) for name in ("laid", "answer"))
        save_tensors(source, tensors, dtype, fp32=("lse",))
        run = self.attend if command == "attend" else self.gradients
        facts = run("--input", source, "--output", target, "--mask", "causal", "--world-size", "2", *flags)
        return load_tensors(target)[0], facts

    def assert_same_bits(self, answer, plain, layout):
        self.assertEqual(answer.keys(), plain.keys())
        for name, array in self.turned(plain, layout).items():
            self.assertEqual(answer[name].shape, array.shape, name)
            numpy.testing.assert_array_equal(answer[name], array, name)

    def test_every_layout_has_the_bits_of_the_usual_one(self):
        for index, layout in enumerate(ORDERS):
            dtype, path = ("bf16", "fp32")[index % 2], ("direct", "gateway")[index // 2 % 2]
            how = ("--path", path, "--verify", "20")
            with self.subTest(layout=layout, dtype=dtype, path=path):
                tensors = self.made_in(layout, dtype)
                d_out = tensors.pop("d_out")
                plain, usual = self.run_command("attend", tensors, dtype, *how)
                named = ("--tensor-layout", layout, *how)
                answer, facts = self.run_command("attend", self.turned(tensors, layout), dtype, *named)
                self.assert_same_bits(answer, plain, layout)
                self.assertEqual(facts["output_crc32c"], usual["output_crc32c"])
                whole = {**tensors, "d_out": d_out, "output": plain["output"], "lse": plain["lse"]}
                plain, _ = self.run_command("gradients", whole, dtype, *how)
                answer, _ = self.run_command("gradients", self.turned(whole, layout), dtype, *named)
                self.assert_same_bits(answer, plain, layout)

    def test_gradients_by_a_state(self):
        """The file has only d_out."""
        tensors = self.made_in("bhsd", "fp32")
        d_out = tensors.pop("d_out")
        _, facts = self.run_command("attend", tensors, "fp32", "--keep-for", "1m")
        answers = {}
        for layout in ("bshd", "bhsd", "sbhd"):
            source, target = (os.path.join(self.folder, name) for name in ("upstream", "by_state"))
            save_tensors(source, self.turned({"d_out": d_out}, layout), "fp32")
            self.gradients("--input", source, "--output", target, "--handle", facts["job_id"], "--tensor-layout", layout)
            answers[layout], _ = load_tensors(target)
        for layout, answer in answers.items():
            self.assert_same_bits(answer, answers["bshd"], layout)

    def test_what_does_not_fit_is_refused(self):
        source = os.path.join(self.folder, "thd")
        save_tensors(source, self.made_in("thd", "fp32"), "fp32")
        for flags, code, words in (
            (("--input", source, "--tensor-layout", "bhsd"), 3, r"q: has shape \[70, 4, 24\], but must be \[batch, heads, tokens, dim\]"),
            (("--input", source, "--tensor-layout", "hdt"), 2, "'hdt' is not one of auto.thd.hnd.bshd.bhsd.sbhd"),
            (("--synthetic", "1,8,8,1,1,8,fp32,1", "--tensor-layout", "bhsd"), 2, "--tensor-layout requires --input"),
        ):
            done = self.service.annulus("attend", *flags)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, words)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
