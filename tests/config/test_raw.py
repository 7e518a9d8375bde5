"""Reading the file: what is no YAML, what YAML allows and we do not, and that reading always ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from maitred.config.raw import ConfigError, Raw, read_file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("maitred.yaml")


def test_every_value_knows_its_place(file: Path) -> None:
    file.write_text("a: 1\nb:\n  c:\n  - x\n  - y\nd:\n")
    root, errors = read_file(file)
    assert errors == []
    assert root == Raw(
        "maitred.yaml:1",
        {
            "a": Raw("maitred.yaml:1 a", "1"),
            "b": Raw(
                "maitred.yaml:2 b",
                {
                    "c": Raw(
                        "maitred.yaml:3 b.c",
                        [Raw("maitred.yaml:4 b.c[0]", "x"), Raw("maitred.yaml:5 b.c[1]", "y")],
                    )
                },
            ),
            "d": Raw("maitred.yaml:6 d", None),
        },
    )


def test_text_stays_as_written(file: Path) -> None:
    """YAML's own ideas of numbers and truth do not touch names and units."""
    file.write_text("[1_000, 0x10, 12:30, yes, 2026-01-01, 1e3, 'null', null]")
    root, _ = read_file(file)
    assert isinstance(root.value, list)
    assert [item.value for item in root.value] == [
        *("1_000", "0x10", "12:30", "yes", "2026-01-01", "1e3", "null"),
        None,
    ]


@pytest.mark.parametrize(
    ("content", "errors"),
    [
        ("a: 1\nb: 2\na: 3\n", ["maitred.yaml:3 a: is already set in line 1; leave one out"]),
        ("x: {a: 1,\n a: 2}\n", ["maitred.yaml:2 x.a: is already set in line 1; leave one out"]),
        ("[a]: 1\n", ["maitred.yaml:1: a key must be plain text"]),
        ("x:\n  ? {a: 1}\n  : 1\n", ["maitred.yaml:2 x: a key must be plain text"]),
        ("a: !env X\n", ["maitred.yaml:1 a: tag '!env' is not known; write the value itself"]),
        (
            'a: "x\\uD83D\\uDE00"\n',
            ["maitred.yaml:1 a: holds half a character; write it itself, or as \\U and eight digits"],
        ),
        ('a: "x\\U0001F600"\n', []),
    ],
)
def test_shapes_refused(file: Path, content: str, errors: list[str]) -> None:
    file.write_text(content)
    assert read_file(file)[1] == errors


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"a: [1\nb: 2\n", "maitred.yaml:2: is not YAML: expected ',' or ']', but got ':'"),
        (b"a: 1\n---\nb: 1\n", "maitred.yaml:2: is not YAML: but found another document"),
        (b"a: *b\n", "maitred.yaml:1: is not YAML: found undefined alias 'b'"),
        (
            b"a: \x00\n",
            "maitred.yaml: is not YAML: unacceptable character #x0000: special characters are not allowed",
        ),
        (b"a: \xff\n", "maitred.yaml: is not UTF-8 text"),
        (b"#" * (1024 * 1024 + 1), "maitred.yaml: is larger than 1048576 bytes"),
        (b"[" * 50_000, "maitred.yaml: is nested more than 32 deep"),
        (b"&a [*a]", "maitred.yaml:1 " + "[0]" * 32 + ": is nested more than 32 deep"),
    ],
    ids=["flow", "documents", "alias", "nul", "latin", "large", "deep", "endless"],
)
def test_files_that_cannot_be_read(file: Path, content: bytes, error: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    assert caught.value.errors == [error]


@pytest.mark.parametrize("content", ['["\\UFFFFFFFF"]', '["\\U00110000"]', f"%YAML 1.{'9' * 5000}\n--- a"])
def test_numbers_that_no_one_can_mean_are_not_yaml(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"^maitred.yaml: is not YAML: .+$"):
        read_file(file)


def test_aliases_are_allowed_but_bounded(file: Path) -> None:
    file.write_text("a: &x [1]\nb: *x\n")
    root, _ = read_file(file)
    assert [item.value for item in root.each("b")] == ["1"]
    bomb = "a0: &a0 [1]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
    )
    file.write_text(bomb)
    with pytest.raises(ConfigError, match="more than 50000 values, aliases counted"):
        read_file(file)


def test_a_missing_file_is_one_line(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    assert str(caught.value) == "maitred.yaml: No such file or directory"


def test_put_makes_the_sections_on_its_way_and_breaks_none() -> None:
    root = Raw("file", None)
    root.put("a.b", 5, "flag")
    root.put("a.c", True, "flag")
    root.put("l", ("x", "y"), "flag")
    assert root.at("a.b") == Raw("flag", "5")
    assert root.at("a.c") == Raw("flag", "true")
    assert root.each("l") == [Raw("flag[0]", "x"), Raw("flag[1]", "y")]
    wrong = Raw("file", {"a": Raw("file a", "text")})
    wrong.put("a.b", "1", "flag")
    assert wrong.at("a") == Raw("file a", "text")
    assert wrong.at("a.b") is None
