"""Gradients of rows whose LSE is too large for fp32: a bias of -1e9 or finfo.min on all keys of a row, as masks of Hugging Face have it.

Judged by weights that are normalised by their own sum, without a look at any LSE.
"""

import json
import os
import unittest

import numpy

from tests.end_to_end.harness.attend_case import ALL_LAYOUTS, ALL_STRATEGIES, PATHS, every_pair, load_tensors, ranks, rounded, save_tensors
from tests.end_to_end.harness.gradient_case import GradientCase

Q_LEN, KV_LEN, HEADS = 40, 50, 4
LOWEST = {"fp32": float(numpy.finfo(numpy.float32).min), "bf16": -(2.0 - 2.0**-7) * 2.0**127}


def exact_gradients(tensors):
    """dq, dk and dv, with scores as fp32 has them and all else in float64."""
    q, k, v, out, d_out, bias = (tensors[name].astype(numpy.float64) for name in ("q", "k", "v", "output", "d_out", "bias"))
    group, scale = q.shape[1] // k.shape[1], q.shape[2] ** -0.5
    dq, dk, dv = (numpy.zeros(array.shape) for array in (q, k, v))
    for head in range(q.shape[1]):
        of = head // group
        scores = (q[:, head] @ k[:, of].T * scale + bias[0]).astype(numpy.float32).astype(numpy.float64)
        weights = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        delta = (d_out[:, head] * out[:, head]).sum(axis=1) - tensors["d_lse"][head]
        d_scores = weights * (d_out[:, head] @ v[:, of].T - delta[:, None])
        dq[:, head] = d_scores @ k[:, of] * scale
        dk[:, of] += d_scores.T @ q[:, head] * scale
        dv[:, of] += weights.T @ d_out[:, head]
    return {"dq": dq, "dk": dk, "dv": dv}


class CoarseLseTest(GradientCase):
    WORKERS = 4

    def forward_of(self, hidden, dtype, *flags):
        """Every second row is masked by a finite number."""
        made = self.made(numpy.random.default_rng(21), Q_LEN, KV_LEN, heads=(HEADS, 2), dtype=dtype)
        made["bias"] = numpy.zeros((1, Q_LEN, KV_LEN), numpy.float32)
        made["bias"][:, ::2] = hidden
        source, target = (os.path.join(self.folder, name) for name in ("in", "out"))
        save_tensors(source, made, dtype, fp32=("bias",) if hidden == -1e9 else ())
        facts = self.attend("--input", source, "--output", target, *flags)
        answer, _ = load_tensors(target)
        random = numpy.random.default_rng(7)
        made.update(answer)
        made["d_out"] = rounded(random.standard_normal(answer["output"].shape), dtype)
        made["d_lse"] = random.standard_normal(answer["lse"].shape).astype(numpy.float32)
        return facts, made

    def save(self, tensors, dtype, hidden):
        path = os.path.join(self.folder, "upstream")
        save_tensors(path, tensors, dtype, fp32=("lse", "lse_rest", "d_lse") + (("bias",) if hidden == -1e9 else ()))
        return path

    def assert_right(self, answer, tensors, dtype, what):
        for name, right in exact_gradients(tensors).items():
            off = numpy.abs(answer[name].astype(numpy.float64) - right).max() / numpy.abs(right).max()
            self.assertLessEqual(off, 2e-5 if dtype == "fp32" else 2e-2, f"{what} {name}")

    def test_every_strategy_with_the_rest_of_the_lse(self):
        for strategy, layout, dtype, lowest, path, deterministic in every_pair(ALL_STRATEGIES, ALL_LAYOUTS, ("fp32", "bf16"), (True, False), PATHS,
                                                                             (True, False)):
            hidden = LOWEST[dtype] if lowest else -1e9
            if strategy in ("ring-pass-q", "tree"):
                deterministic = False
            more = ("--deterministic",) if deterministic else ()
            if deterministic and strategy in ("ulysses", "ulysses-ring"):
                more = ()
            with self.subTest(strategy=strategy, layout=layout, dtype=dtype, hidden=hidden, path=path, more=more):
                _, tensors = self.forward_of(hidden, dtype, "--lse-rest", *more)
                source, target = self.save(tensors, dtype, hidden), os.path.join(self.folder, "gradients")
                self.gradients("--input", source, "--output", target, *ranks(strategy, 4), "--layout", layout, "--path", path, *more,
                               "--verify", "20")
                answer, _ = load_tensors(target)
                self.assert_right(answer, tensors, dtype, strategy)

    def test_a_kept_state_always_has_it(self):
        for dtype in ("fp32", "bf16"):
            for hidden in (LOWEST[dtype], -1e9):
                with self.subTest(dtype=dtype, hidden=hidden):
                    facts, tensors = self.forward_of(hidden, dtype, "--keep-for", "60s", "--world-size", "3", "--verify", "20")
                    self.assertNotIn("lse_rest", tensors)
                    upstream, target = os.path.join(self.folder, "d_out"), os.path.join(self.folder, "gradients")
                    save_tensors(upstream, {name: tensors[name] for name in ("d_out", "d_lse")}, dtype, fp32=("d_lse",))
                    self.gradients("--input", upstream, "--output", target, "--handle", facts["job_id"], "--release")
                    answer, _ = load_tensors(target)
                    self.assert_right(answer, tensors, dtype, f"kept {dtype}")

    def test_without_it_the_job_is_refused(self):
        for path in PATHS:
            _, tensors = self.forward_of(-1e9, "fp32")
            source = self.save(tensors, "fp32", -1e9)
            error = self.gradients("--input", source, "--path", path, "--world-size", "2", expect=3)["error"]
            self.assertEqual(error["reason"], "LSE_TOO_COARSE", json.dumps(error))
            self.assertIn("lse_rest", error["message"])
            self.assertIn("1e+09", error["message"])


if __name__ == "__main__":
    unittest.main()
