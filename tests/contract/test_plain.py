"""No phrase of Python's or pydantic's reaches people: what is wrong, where, what to do."""

import errno
import os

import pytest

from contract.config import ConfigError, load, parse
from contract.plain import plainly


@pytest.mark.parametrize(
    ("error", "en", "zh"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/b"), "/b does not exist: is the path right?", "/b 不存在，请检查路径"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/a/b"), "/a does not exist: is the path right?", "/a 不存在，请检查路径"),
        (
            OSError(errno.EROFS, "Read-only file system", "/r/requests/.1796.json.tmp"),
            "/r/requests is on a read-only file system; run the command where it can be written",
            "/r/requests 所在的文件系统只读，请在能写的机器上运行",
        ),
        (PermissionError("t-1 belongs to uid 7, not to you"), "t-1 belongs to uid 7, not to you", "t-1 belongs to uid 7, not to you"),
        (OSError(errno.EIO, "Input/output error", "/a/b"), "/a/b: Input/output error", "/a/b: Input/output error"),
        (ValueError("its own words"), "its own words", "its own words"),
    ],
)  # fmt: skip
def test_an_error_of_the_system_is_a_sentence(error, en, zh) -> None:
    assert (plainly(error), plainly(error, "zh")) == (en, zh)


def test_every_error_of_the_system_has_both_languages_and_no_number() -> None:
    for number in errno.errorcode:
        for language in ("en", "zh"):
            said = plainly(OSError(number, os.strerror(number), "/place/file"), language)
            assert "/place" in said
            assert "Errno" not in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"run": 3}, "run: is 3; a table of keys belongs here"),
        ({"run": {"name": "Big_Run", "steps": 3}}, "at most 40 of a-z, 0-9 and -"),
        ({"job": {"partition": "a b"}}, "no spaces"),
    ],
)
def test_what_a_value_must_be_is_said_in_words(value, said) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(value, source="recipe", bases=())
    assert said in str(caught.value)
    for phrase in ("should match pattern", "valid dictionary", "Value error", "value error"):
        assert phrase not in str(caught.value)


def test_a_recipe_that_is_no_text_is_said(tmp_path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="is no text in UTF-8: is it the right file"):
        load(path)
