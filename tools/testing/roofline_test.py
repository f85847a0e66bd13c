import unittest
import xml.etree.ElementTree

from tools.testing import roofline


def entries(lengths=(4096, 8192)):
    made = []
    for length in lengths:
        name = f"forward bf16 S{length} D128 full MHA, 2 threads"
        made.append({"name": f"{name}, of AMX peak", "value": length / 4, "ceiling": 4000.0,
                     "compared_to": "AMX peak on Some CPU, path amx, in turn"})
        made.append({"name": f"{name}, over PyTorch", "value": length / 4, "ceiling": 4000.0,
                     "compared_to": "PyTorch 2.9.1 SDPA at 800 GFLOP/s, in turn"})
    made.append({"name": "gradients bf16 S4096 D128 full MHA, 2 threads, of FMA peak", "value": 1.0, "ceiling": 1.0, "compared_to": ""})
    return made


class RooflineTest(unittest.TestCase):
    def test_curves_are_what_the_entries_say(self):
        found, roofs, facts = roofline.curves(entries())
        self.assertEqual(found, {("bf16", "full"): {
            "ours": [(4096, 1024.0), (8192, 2048.0)], "PyTorch": [(4096, 800.0), (8192, 800.0)],
            "roof": [(4096, 4000.0), (8192, 4000.0)]}})
        self.assertEqual(roofs, {("bf16", "full"): "AMX peak"})
        self.assertEqual(facts, ["PyTorch 2.9.1", "Some CPU, path amx"])

    def test_the_picture_has_every_line_and_says_where_it_is_from(self):
        picture = roofline.draw(entries(), "2026-01-02, commit abc")
        root = xml.etree.ElementTree.fromstring(picture)
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 3)
        for words in ("Some CPU, path amx", "PyTorch 2.9.1", "2026-01-02, commit abc", "bf16, full", "AMX peak 4000"):
            self.assertIn(words, picture)

    def test_lines_are_labelled_apart_and_rates_counted_from_0(self):
        self.assertEqual(roofline.apart({"a": 100.0, "b": 95.0, "c": 50.0}, 13), {"c": 50.0, "b": 95.0, "a": 108.0})
        self.assertEqual(roofline.ticks(1236), [0, 250, 500, 750, 1000, 1250])
        self.assertEqual(roofline.ticks(4200), [0, 1000, 2000, 3000, 4000, 5000])

    def test_other_entries_are_no_picture(self):
        with self.assertRaises(ValueError):
            roofline.draw([{"name": "small job", "value": 1.0}], "")


if __name__ == "__main__":
    unittest.main()
