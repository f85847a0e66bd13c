"""A picture: GFLOP/s over length for our kernel, PyTorch and the machine's roof, drawn from what
`tools/bench kernel --peers --json` has printed.

    python -m tools.testing.roofline kernel.json docs/pictures/roofline.svg
"""

import argparse
import datetime
import json
import math
import os
import re

from tools.testing.run_benchmarks import commit

CASE = re.compile(r"forward (\w+) S(\d+) D128 (full|causal) MHA, (\d+) threads, (of|over) (.+)")
PEER = re.compile(r"(PyTorch \S+) SDPA at (\S+) GFLOP/s")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 250, 56, 92, 40, 32
COLOURS = {"ours": "#1b6ca8", "PyTorch": "#c8553d", "roof": "#777777"}


def curves(entries):
    """(type, mask) -> line -> [(length, GFLOP/s)], (type, mask) -> the roof's name, and what is said of the run."""
    found, roofs, facts = {}, {}, set()
    for entry in entries:
        case = CASE.fullmatch(entry["name"])
        if case is None:
            continue
        lines = found.setdefault((case[1], case[3]), {name: [] for name in COLOURS})
        length = int(case[2])
        if case[5] == "of":
            lines["ours"].append((length, entry["value"]))
            lines["roof"].append((length, entry["ceiling"]))
            roofs[case[1], case[3]] = case[6]
            facts.add(entry["compared_to"].split(" on ", 1)[1].removesuffix(", in turn"))
        else:
            peer = PEER.match(entry["compared_to"])
            lines["PyTorch"].append((length, float(peer[2])))
            facts.add(peer[1])
    if not found:
        raise ValueError("no entry of the peers' kernel benchmark")
    return {key: {name: sorted(points) for name, points in lines.items()} for key, lines in found.items()}, roofs, sorted(facts)


def ticks(most):
    """Round numbers from 0 to at least `most`, four or five steps."""
    step = 10 ** math.floor(math.log10(most))
    while most / step < 4:
        step /= 2
    return [step * i for i in range(math.ceil(most / step) + 1)]


def apart(heights, least):
    """The same heights, in the same order, pushed down until neighbours are `least` apart."""
    placed = {}
    floor = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        floor = max(height, floor + least)
        placed[name] = floor
    return placed


def panel(title, lines, names, origin):
    """One diagram, lengths logarithmic, rates from 0, as SVG elements. `names`: what a line is called."""
    lines = {name: line for name, line in lines.items() if line}
    lengths = sorted({length for line in lines.values() for length, _ in line})
    marks = ticks(max(rate for line in lines.values() for _, rate in line))
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(length):
        span = math.log(lengths[-1] / lengths[0]) or 1
        return origin[0] + LEFT + inner_width * math.log(length / lengths[0]) / span

    def y(rate):
        return origin[1] + TOP + inner_height * (1 - rate / marks[-1])

    parts = [f'<text x="{origin[0] + LEFT}" y="{origin[1] + 24}" font-size="13" font-weight="bold">{title}</text>']
    for mark in marks:
        parts.append(f'<line x1="{origin[0] + LEFT}" x2="{origin[0] + WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{origin[0] + LEFT - 6}" y="{y(mark) + 4:.1f}" font-size="10" text-anchor="end">{mark:g}</text>')
    for length in lengths:
        parts.append(f'<text x="{x(length):.1f}" y="{origin[1] + HEIGHT - BOTTOM + 16}" font-size="10" text-anchor="middle">{length}</text>')
    labels = apart({name: y(line[-1][1]) for name, line in lines.items()}, 13)
    for name, line in lines.items():
        dash = ' stroke-dasharray="5 3"' if name == "roof" else ""
        path = " ".join(f"{x(length):.1f},{y(rate):.1f}" for length, rate in line)
        parts.append(f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="2"{dash} points="{path}"/>')
        parts += [f'<circle cx="{x(length):.1f}" cy="{y(rate):.1f}" r="3" fill="{COLOURS[name]}"/>' for length, rate in line]
        parts.append(f'<text x="{x(line[-1][0]) + 8:.1f}" y="{labels[name] + 4:.1f}" font-size="10" '
                     f'fill="{COLOURS[name]}">{names.get(name, name)} {line[-1][1]:.0f}</text>')
    return parts


def draw(entries, said):
    """The SVG; `said`: date and commit."""
    found, roofs, facts = curves(entries)
    columns = 2
    rows = (len(found) + columns - 1) // columns
    height = rows * HEIGHT + 28
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{height}" font-family="sans-serif">',
             f'<rect width="{columns * WIDTH}" height="{height}" fill="white"/>']
    for index, (key, lines) in enumerate(sorted(found.items())):
        origin = (index % columns * WIDTH, index // columns * HEIGHT)
        parts += panel(f"{key[0]}, {key[1]}, D = 128: GFLOP/s over length", lines, {"roof": roofs.get(key, "roof")}, origin)
    parts.append(f'<text x="12" y="{height - 10}" font-size="10">{"; ".join([*facts, said])}</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Draws what tools/bench kernel --peers --json has printed.")
    parser.add_argument("json", help="its output")
    parser.add_argument("svg", help="the picture to write")
    options = parser.parse_args()
    with open(options.json, encoding="utf-8") as file:
        entries = json.load(file)
    date = datetime.date.fromtimestamp(os.path.getmtime(options.json))
    picture = draw(entries, f"{date}, commit {commit()}")
    with open(options.svg, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
