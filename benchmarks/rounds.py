"""Code shared by benchmarks of peers that alternate with ours: our side of a round, and an entry of
its results."""

import json
import os
import statistics
import subprocess

THREADS = 2


class Rounds:
    """A benchmark NAME_rounds, which answers line by line."""

    def __init__(self, name, *arguments, in_runfiles=False):
        self.name = f"{name}_rounds"
        program = os.path.join(os.environ["ANNULUS_BENCH_BIN"], "benchmarks", self.name)
        folder = program + ".runfiles/annulus" if in_runfiles else None
        self.process = subprocess.Popen([program, *arguments], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended at {line!r}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def kernel_rounds():
    return Rounds("kernel", "--threads", str(THREADS))


def alternate(ours, what, theirs, repeats):
    """GFLOP/s of the roof, of ours and of theirs, in turn; `what` is ours' answer to the case."""
    roofs, own, other = [], [], []
    for _ in range(repeats):
        roofs.append(ours.ask("roof")["gflops"])
        own.append(what["flops"] / ours.ask("run")["seconds"] / 1e9)
        other.append(what["flops"] / theirs.run() / 1e9)
    return roofs, own, other


def entry(name, value, unit, compared_to, ratios, bar, ceiling, better="higher"):
    ratio = statistics.median(ratios)
    met = None if bar is None else ratio >= bar if better == "higher" else ratio <= bar
    return {
        "name": name, "value": value, "unit": unit, "compared_to": compared_to, "ratio": ratio, "better": better, "bar": bar,
        "met": met, "ceiling": ceiling, "repeats": len(ratios),
        "spread": (max(ratios) - min(ratios)) / ratio,
    }
