"""Finding: names, lines by an expression."""

import asyncio
import os
from pathlib import Path

import pytest

from adapters.opencode import files, search_process
from tests.fake_port import Farm
from tests.opencode.support import gateway
from tests.opencode.test_files import ask, fill, git, write


async def test_names_best_first(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, src__app_dot_py="", src__deep__happy_dot_md="", app="", zz__a_p_p_dot_c="", other="")
        assert await ask(one, "/find/file", query="app") == [
            "app",
            "src/app.py",
            "src/deep/happy.md",
            "zz/a_p_p.c",
        ]
        assert await ask(one, "/find/file", query="app", limit=1) == ["app"]
        assert await ask(one, "/find/file", query="src", type="directory") == ["src/", "src/deep/"]
        assert await ask(one, "/find/file", query="src", type="file") == ["src/app.py", "src/deep/happy.md"]
        assert await ask(one, "/find/file", query="deep", dirs="false") == ["src/deep/happy.md"]
        assert "src/" in await ask(one, "/find/file", query="")
        assert await ask(one, "/find/file", query="nothing like it") == []


async def test_what_is_ignored_or_deleted_is_not_found(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        assert await ask(one, "/find/file", query="", type="file") == [".gitignore", "a.py", "new.txt"]
        assert await ask(one, "/find", pattern="noise|TWO") == [
            {
                "path": {"text": "a.py"},
                "lines": {"text": "TWO\n"},
                "line_number": 2,
                "absolute_offset": 4,
                "submatches": [{"match": {"text": "TWO"}, "start": 0, "end": 3}],
            }
        ]


async def test_lines_are_counted_in_bytes_and_binary_files_left_out(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        (one.workspace / "a").write_bytes("é one é\r\ntwo é one\n".encode() + b"\xff one\n")
        (one.workspace / "b").write_bytes(b"\0 one")
        found = await ask(one, "/find", pattern="o[n]e")
        assert [(f["line_number"], f["absolute_offset"], f["submatches"][0]["start"]) for f in found] == [
            (1, 0, 3),
            (2, 11, 7),
            (3, 22, 4),  # what is no UTF-8 is told as U+FFFD: three bytes and a space
        ]
        assert await ask(one, "/find", pattern="^$|x*") == []  # an empty match is none


async def test_nothing_of_outside_is_found(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        (tmp_path / "secret.txt").write_text("the secret\n")
        (one.workspace / "link.txt").symlink_to(tmp_path / "secret.txt")
        (one.workspace / "up").symlink_to(tmp_path)
        for _ in ("without git", "with it"):
            assert await ask(one, "/find", pattern="secret") == []
            assert not any("secret" in path for path in await ask(one, "/find/file", query="secret"))
            git(one.workspace, "init", "-q")


@pytest.mark.parametrize("path", ["/find/file", "/api/fs/find"])
async def test_letters_in_order_take_no_time(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, **{"a" * 200: ""})
        async with asyncio.timeout(20):
            found = await ask(one, path, query="a" * 100 + "!")
        assert (found["data"] if path.startswith("/api") else found) == []


def test_letters_in_order_are_nearer_where_they_take_fewer_characters() -> None:
    assert files.rank("abc", ["a-b-c", "a--b--c", "xaxbxc", "acb", "ab"], 10) == ["a-b-c", "xaxbxc", "a--b--c"]
    assert files.rank("aa", ["a-b", "a-a"], 10) == ["a-a"]


@pytest.mark.parametrize("added", [False, True])
async def test_a_repository_in_the_repository_is_no_file(tmp_path: Path, added: bool) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        (one.workspace / "nested").mkdir()
        write(one.workspace / "nested", b="needle\n")
        git(one.workspace / "nested", "init", "-q")
        git(one.workspace / "nested", "add", "b")
        git(one.workspace / "nested", "commit", "-qm", "first")
        if added:
            git(one.workspace, "add", "nested")
        write(one.workspace, z_dot_txt="needle\n")
        assert [f["path"]["text"] for f in await ask(one, "/find", pattern="needle")] == ["z.txt"]
        assert await ask(one, "/find/file", query="nested") == []


def test_a_search_skips_what_is_no_file_and_what_leads_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, out = tmp_path / "in", tmp_path / "out"
    write(root, a="needle\n", folder__b="")
    write(out, c="needle\n")
    (root / "up").symlink_to(out)
    os.mkfifo(root / "pipe")
    job = {"folder": str(root), "pattern": "needle", "limit": 9, "largest": 99}
    job["files"] = ["folder", "folder/", "pipe", "gone", "up/c", "a"]
    assert [one["path"]["text"] for one in search_process.search(job)["found"]] == ["a"]
    # the folder becomes a symlink after it was looked at
    monkeypatch.setattr(os.path, "realpath", lambda path: str(path))
    assert [one["path"]["text"] for one in search_process.search(job)["found"]] == ["a"]

    def changing(path: str) -> str:
        if path.endswith("up"):
            raise OSError("no symlink any more")
        return path

    monkeypatch.setattr(os.path, "realpath", changing)
    assert [one["path"]["text"] for one in search_process.search(job)["found"]] == ["a"]


async def test_a_pattern_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SEARCH_SECONDS", 1.0)
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, a="a" * 60 + "!\n")
        async with asyncio.timeout(30):
            error = await ask(one, "/find", 400, pattern="(a+)+$")
        assert "longer than" in error["data"]["message"] and '["pattern"]' in error["data"]["message"]
        assert await ask(one, "/find", pattern="a{60}!") != []  # and the next one is answered


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/find", "pattern"),
        ("/find?pattern=", "pattern"),
        ("/find?pattern=%5B", "pattern"),
        ("/find?pattern=" + "x" * 1001, "pattern"),
        ("/find/file", "query"),
        ("/find/file?query=a&limit=0", "limit"),
        ("/find/file?query=a&limit=201", "limit"),
        ("/find/file?query=a&type=pipe", "type"),
        ("/find/file?query=a&dirs=perhaps", "dirs"),
        ("/find/symbol", "query"),
    ],
)
async def test_bad_words(tmp_path: Path, path: str, field: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        answer = await one.http.get(path)
        assert answer.status_code == 400 and f'["{field}"]' in answer.json()["data"]["message"], answer.text


async def test_there_are_no_symbols(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        assert await ask(one, "/find/symbol", query="x") == []
