# SPDX-License-Identifier: BSL-1.0
"""Each key of a TOML file has its line, whatever texts and comments are around it."""

from tools.toml_lines import line_of, lines

TEXT = '''# "title" = [
title = "a # no comment [["
many = [ 1, # one, two
  2,
  [3, 4],
]
about = """
title = 5
[[arms]]
"""
[[arms]]
name = 'Neap ]'
words = ["a=b",
  "c=d"]
[arms.inner]
x.y = 1
[[arms]]
name = "Linux"
place = { a = 1, b = [
 2] }
[settings]
"itr_us" = [2, 4]
'''


def test_each_key_has_its_line():
    found = lines(TEXT)
    assert found["title",] == 2
    assert [found["many", number] for number in range(3)] == [3, 4, 5]
    assert found["arms", 0] == 11 and found["arms", 0, "name"] == 12
    assert [found["arms", 0, "words", number] for number in range(2)] == [13, 14]
    assert found["arms", 0, "inner", "x", "y"] == 16
    assert found["arms", 1] == 17 and found["arms", 1, "name"] == 18
    assert found["settings", "itr_us"] == found["settings", "itr_us", 1] == 22
    assert not any(path[0] == "title" and line != 2 for path, line in found.items() if path)


def test_an_unknown_path_has_the_line_of_the_table_around_it():
    found = lines(TEXT)
    assert line_of(("arms", 1, "place", "a"), found) == 19
    assert line_of(("arms", 1, "cores"), found) == 17
    assert line_of(("arms", 7, "cores"), found) == 1
    assert line_of((), found) == 1
