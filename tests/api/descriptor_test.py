"""The public API changes by addition alone, and never unnoticed."""

import unittest

from tests.api import descriptor

UPDATE = ".venv/bin/python -m tests.api.descriptor --update"


class GoldenTest(unittest.TestCase):
    def setUp(self):
        self.golden = descriptor.read_golden()
        self.files = descriptor.compile_protos()

    def broken_by(self, change):
        """The text of the breaking changes that `change(files by name)` makes. Additions are not
        allowed here."""
        change({file.name.rsplit("/", 1)[-1]: file for file in self.files.file})
        broken, _ = descriptor.compare(self.golden, descriptor.describe(self.files))
        return "\n".join(broken)

    def message(self, files, file, name):
        return next(m for m in files[file].message_type if m.name == name)

    def test_nothing_that_clients_rely_on_is_gone(self):
        broken, _ = descriptor.compare(self.golden, descriptor.describe(self.files))
        self.assertEqual(
            broken, [], "removed, renamed, renumbered or retyped: clients of annulus.v1 break"
        )

    def test_what_is_new_is_in_the_golden_file(self):
        _, added = descriptor.compare(self.golden, descriptor.describe(self.files))
        self.assertEqual(added, [], f"new in annulus.v1; if it is meant to stay, run {UPDATE}")

    def test_the_golden_file_holds_every_service(self):
        services = {line.split()[1] for line in self.golden if line.startswith("service ")}
        self.assertEqual(
            services, {f"annulus.v1.{name}" for name in ("Attention", "DataPlane", "Jobs")}
        )
        self.assertGreater(len(self.golden), 200)

    def test_a_removed_field_is_seen(self):
        def remove(files):
            del self.message(files, "types.proto", "Chunk").field[0]

        self.assertIn("Chunk field   1 tensor", self.broken_by(remove))

    def test_a_renumbered_field_is_seen(self):
        def renumber(files):
            self.message(files, "types.proto", "Chunk").field[-1].number = 16

        self.assertIn("Chunk field  15 data", self.broken_by(renumber))

    def test_a_retyped_field_is_seen(self):
        def retype(files):
            field = self.message(files, "types.proto", "Sequence").field[0]
            field.type = field.TYPE_SINT64

        self.assertIn("Sequence field   1 q_len", self.broken_by(retype))

    def test_a_field_that_leaves_its_oneof_is_seen(self):
        def leave(files):
            message = self.message(files, "jobs.proto", "JobEvent")
            next(field for field in message.field if field.name == "placed").ClearField("oneof_index")

        self.assertIn("JobEvent field   3 placed", self.broken_by(leave))

    def test_a_renamed_enum_value_is_seen(self):
        def rename(files):
            files["types.proto"].enum_type[0].value[1].name = "DATA_TYPE_FLOAT"

        self.assertIn("DATA_TYPE_FP32", self.broken_by(rename))

    def test_a_method_that_no_longer_streams_is_seen(self):
        def stop(files):
            service = files["attention.proto"].service[0]
            method = next(m for m in service.method if m.name == "Attend")
            method.server_streaming = False

        self.assertIn("method Attend(stream", self.broken_by(stop))

    def test_an_addition_breaks_nothing(self):
        def add(files):
            field = self.message(files, "types.proto", "Chunk").field.add()
            field.name, field.number, field.type = "more", 16, field.TYPE_BYTES
            field.label = field.LABEL_OPTIONAL

        self.assertEqual(self.broken_by(add), "")


if __name__ == "__main__":
    unittest.main()
