"""One report of a run, as JSON and as Markdown."""

import json
import os

from tests.gpu import files

# Comparisons of our figures, if the same shape was measured with them: prefix of the peer's name,
# the words, the bar.
PEERS = (("cudnn ", "cuDNN"), ("sdpa ", "torch's FlashAttention"))
# Bars of cuDNN: the portable kernel's at 128 dimensions, and the Hopper kernel's at each. There is
# none for cuDNN's work in a worker.
BARS = {"": 0.35, "hopper ": 0.6, "with-cudnn ": None}
BACKWARD_BAR = 0.5
CEILING = "gemm bf16 8192"
# The limit of decoding: a sum over 1 GiB.
READ, READ_BAR = "read", 0.75
CAUSAL_BAR = 0.85


def together(ours, theirs):
    """The reason why two parts' figures may or may not be compared, in words."""
    cards = "card unknown"
    if ours.get("card") and theirs.get("card"):
        cards = "same card" if ours["card"] == theirs["card"] else "another card"
    return f"{cards}, {'same run' if ours.get('run') == theirs.get('run') else 'another run'}"


def compared(parts):
    """Ours with their ratios to peers, to the ceiling and between causal and full, as figures of their own."""
    figures = [(figure, facts) for facts in parts.values() for figure in facts.get("figures", [])]
    values = {figure["name"]: figure["value"] for figure, _ in figures}
    part = {figure["name"]: facts for figure, facts in figures}
    derived = []

    def add(name, ratio, to, bar):
        derived.append({"name": name, "value": ratio, "unit": "x", "compared_to": to, "ratio": ratio, "better": "higher",
                        "bar": bar, "met": None if bar is None else ratio >= bar})

    for name, value in values.items():
        cudnn = "cudnn " + name.removeprefix("hopper ")
        if name.startswith(("backward ", "hopper backward ")) and values.get(cudnn):
            add(f"{name} / cudnn", value / values[cudnn], f"cuDNN, {together(part[name], part[cudnn])}", BACKWARD_BAR)
        if "decode " in name and values.get(READ):
            add(f"{name} / read", value / values[READ], f"a plain read of 1 GiB, {together(part[name], part[READ])}", READ_BAR)
        kernel = next((known for known in BARS if name.startswith(known + "forward ")), None)
        if kernel is None:
            continue
        shape = name[len(kernel) :]
        for prefix, words in PEERS:
            bar = BARS[kernel] if prefix == "cudnn " and (kernel or " D128 " in shape) else None
            if values.get(prefix + shape):
                add(f"{name} / {prefix.strip()}", value / values[prefix + shape], f"{words}, {together(part[name], part[prefix + shape])}", bar)
        if values.get(CEILING):
            add(f"{name} / GEMM", value / values[CEILING], f"a product of 8192^3, {together(part[name], part[CEILING])}", None)
        full = name.replace(" causal", " full")
        if name.endswith(" causal") and values.get(full):
            add(f"{name} / full", value / values[full], "the same without a mask", CAUSAL_BAR)
    return derived


def figures_of(parts):
    return [figure for facts in parts.values() for figure in facts.get("figures", [])] + compared(parts)


def number(value):
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def markdown(report):
    lines = [f"# GPU report, {report['date']}", ""]
    lines += [f"- {name}: {cell(value)}" for name, value in report["machine"].items()]
    lines += ["", f"**{report['verdict']}**", "", "| part | what | result | cases | s |", "| --- | --- | --- | --- | --- |"]
    for name, facts in report["parts"].items():
        cases = facts.get("cases")
        count = f"{cases['passed']} passed, {cases['failed']} failed, {cases['skipped']} skipped" if cases else ""
        note = f": {cell(facts['note'])}" if facts["note"] else ""
        # Not of the run that this report is of.
        before = f" ({facts['run']})" if facts.get("run") not in (None, report["date"]) else ""
        lines.append(f"| {name} | {cell(facts['title'])} | {facts['status']}{before}{note} | {count} | {facts['seconds']} |")
    if report["figures"]:
        lines += ["", "| figure | value | unit | compared to | ratio | bar | met |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for figure in report["figures"]:
        met = {True: "yes", False: "no"}.get(figure.get("met"), "")
        lines.append(f"| {cell(figure['name'])} | {number(figure['value'])} | {figure['unit']} | {cell(figure.get('compared_to', ''))}"
                     f" | {number(figure.get('ratio'))} | {number(figure.get('bar'))} | {met} |")
    for name, facts in report["parts"].items():
        for failure in facts.get("failures", []):
            lines += ["", f"{cell(failure['name'])} of {name}:", ""] + ["    " + line for line in failure["message"].splitlines()]
        if facts["tail"]:
            lines += ["", f"What {name} said:", ""] + ["    " + line for line in facts["tail"]]
    return "\n".join(lines) + "\n"


def write(out, date, machine, verdict, parts, titles):
    """report.json and report.md in `out`, in place of earlier ones; the report."""
    known = {name: {**facts, "title": titles[name]} for name, facts in parts.items()}
    report = {"date": date, "verdict": verdict, "machine": machine, "parts": known, "figures": figures_of(known)}
    files.replace(os.path.join(out, "report.json"), json.dumps(report, indent=2))
    files.replace(os.path.join(out, "report.md"), markdown(report))
    return report
