"""Files of endpoints: lists in YAML and JSON, and every error with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from maitred.config.endpoints_file import read_endpoints
from maitred.config.raw import ConfigError

BOTH = ("http://10.0.0.1:8000", "http://b")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("qwen.yaml")


@pytest.mark.parametrize(
    ("content", "urls"),
    [
        ("- http://10.0.0.1:8000\n- HTTP://B:80/  # the new one\n", BOTH),
        ('["http://10.0.0.1:8000", "http://b"]', BOTH),
        ("endpoints:\n- http://10.0.0.1:8000\n- http://b\n", BOTH),
        ('{"endpoints": ["http://10.0.0.1:8000", "http://b"]}', BOTH),
        ("[]", ()),
        ("endpoints: []", ()),
    ],
)
def test_the_forms_of_a_file(path: Path, content: str, urls: tuple[str, ...]) -> None:
    path.write_text(content)
    assert read_endpoints(path) == urls


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ":1: must be a list of URLs such as [http://127.0.0.1:8001]; write [] for none"),
        ("# soon\n", ":1: must be a list of URLs such as [http://127.0.0.1:8001]; write [] for none"),
        ("http://a", ":1: must be a list of URLs such as [http://127.0.0.1:8001]; write [] for none"),
        ("endpoints:\n", ":1: endpoints is missing; write endpoints: [http://127.0.0.1:8001]"),
        ("endpoint: [http://a]", ":1 endpoint: unknown key; did you mean endpoints?"),
        ("endpoints: http://a", ":1 endpoints: must be a list, each item behind a dash or all within [ ]"),
        ("- http://a\n- htp://b\n", ":2 [1]: 'htp://b': scheme must be http or https"),
        ("- http://a\n- http://A:80\n", ":2 [1]: 'http://a' is in this list already; leave one out"),
        ("- http://a\n-\n", ":2 [1]: must be one value, such as http://127.0.0.1:8001"),
        ("[http://a", ":1: is not YAML: expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_errors_name_file_and_line(path: Path, content: str, said: str) -> None:
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_endpoints(path)
    assert caught.value.errors[0] == f"qwen.yaml{said}"


def test_all_errors_come_at_once(path: Path) -> None:
    path.write_text("- a\n- http://b\n- c\n")
    with pytest.raises(ConfigError) as caught:
        read_endpoints(path)
    assert [error.split(":", 2)[1] for error in caught.value.errors] == ["1 [0]", "3 [2]"]


def test_a_missing_file(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^qwen\.yaml: No such file or directory$"):
        read_endpoints(path)
