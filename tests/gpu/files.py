"""Files that are whole whenever their writer ends."""

import os


def replace(path, text):
    """Puts the text in the place of what the file held."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
