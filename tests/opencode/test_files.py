"""Files, version control: for reading only, and nothing of outside."""

import asyncio
import base64
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import uvloop

from adapters.opencode import changes, files
from adapters.opencode.git import Git, talk
from gateway.core.errors import Forbidden
from tests.fake_port import Farm
from tests.opencode.support import Gateway, gateway

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *words]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def fill(folder: Path) -> None:
    """A repository with a change, a new file, a deleted and an ignored one."""
    write(folder, a_dot_py="one\ntwo\n", sub__b_dot_txt="b\n", _dot_gitignore="*.log\n", x_dot_log="noise\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    write(folder, a_dot_py="one\nTWO\nthree\n", new_dot_txt="fresh")
    (folder / "sub" / "b.txt").unlink()


async def ask(one: Gateway, route: str, status: int = 200, **params: Any) -> Any:
    answer = await one.http.get(route, params=params)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_folder_and_what_is_ignored_in_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        listed = await ask(one, "/file", path="")
        assert [(n["path"], n["type"], n["ignored"]) for n in listed] == [
            (".git/", "directory", False),
            ("sub/", "directory", False),
            (".gitignore", "file", False),
            ("a.py", "file", False),
            ("new.txt", "file", False),
            ("x.log", "file", True),
        ]
        assert listed[3]["absolute"] == str(one.workspace / "a.py")
        assert await ask(one, "/file", path="sub/") == []
        assert len(await ask(one, "/file", path=str(one.workspace))) == 6


async def test_content_is_the_text_as_it_is_or_base64(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, a_dot_txt="  ä\n\n")
        (one.workspace / "shot.png").write_bytes(PNG)
        (one.workspace / "latin").write_bytes(b"caf\xe9")
        (one.workspace / "empty").write_bytes(b"")
        assert await ask(one, "/file/content", path="a.txt") == {"type": "text", "content": "  ä\n\n"}
        assert await ask(one, "/file/content", path="empty") == {"type": "text", "content": ""}
        shot = await ask(one, "/file/content", path="shot.png")
        encoded = base64.b64encode(PNG).decode()
        assert shot == {"type": "binary", "content": encoded, "encoding": "base64", "mimeType": "image/png"}
        latin = await ask(one, "/file/content", path="latin")
        assert latin["mimeType"] == "application/octet-stream" and base64.b64decode(latin["content"]) == b"caf\xe9"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("../secret", 403, '".."'),
        ("sub/../../secret", 403, '".."'),
        ("/etc/passwd", 403, "outside"),
        ("out.txt", 403, "outside"),
        ("outside/secret", 403, "outside"),
        ("dangling", 403, "symlink"),
        ("a\0b", 400, "NUL"),
        ("nope.txt", 404, "nope.txt"),
        ("x" * 300, 403, "cannot be resolved"),
        ("folder", 400, "folder"),
        ("pipe", 400, "regular"),
    ],
)
async def test_what_is_no_file_of_the_workspace_is_refused(tmp_path: Path, path: str, status: int, said: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        secret = tmp_path / "secret"
        secret.write_text("secret")
        (one.workspace / "out.txt").symlink_to(secret)
        (one.workspace / "outside").symlink_to(tmp_path)
        (one.workspace / "dangling").symlink_to(tmp_path / "later")
        (one.workspace / "folder").mkdir()
        os.mkfifo(one.workspace / "pipe")
        error = await ask(one, "/file/content", status, path=path)
        assert said in error["data"]["message"] and len(error["data"]["message"]) < 400
        assert "secret" not in {node["name"] for node in await ask(one, "/file", path="")}
        assert {node["name"] for node in await ask(one, "/file", path="")} == {
            "folder"
        }  # links that lead out are not told


async def test_limits_and_what_is_missing_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, a_dot_txt="x" * 100, sub__b="")
        monkeypatch.setattr(files.read, "__defaults__", (10, ""))
        monkeypatch.setattr(files, "LARGEST", 10)
        assert "too large" in (await ask(one, "/file/content", 413, path="a.txt"))["data"]["message"]
        assert "path" in (await ask(one, "/file/content", 400))["data"]["message"]
        assert "nope" in (await ask(one, "/file", 404, path="nope"))["data"]["message"]
        assert "not a folder" in (await ask(one, "/file", 400, path="a.txt"))["data"]["message"]
        where = str(one.workspace / "nope")
        for path in ("/file?path=", "/find?pattern=x", "/find/file?query=x", "/vcs", "/vcs/status", "/file/status"):
            answer = await one.http.get(f"{path}{'&' if '?' in path else '?'}directory={where}")
            assert answer.status_code == 400 and "Not a folder" in answer.json()["data"]["message"], path
        answer = await one.http.get("/file?path=&directory=/etc")
        assert answer.status_code == 403


async def test_a_folder_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("secret")
    real = files.inside(str(tmp_path / "in"), "sub/a", "x")  # it does not exist yet
    (tmp_path / "in" / "sub").symlink_to(tmp_path / "out")
    with pytest.raises(Forbidden, match="changed"):
        files.read(real)
    folder = files.inside(str(tmp_path / "in"), "", "x") / "sub"
    with pytest.raises(Forbidden, match="changed"):
        files.entries(str(tmp_path / "in"), folder, "sub")
    (tmp_path / "out" / "below").mkdir()
    with pytest.raises(Forbidden, match="changed"):
        files.entries(str(tmp_path / "in"), folder / "below", "below")


# --- git -----------------------------------------------------------------------------------------------------------


async def test_what_differs(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        assert await ask(one, "/vcs") == {"branch": "main", "default_branch": "main"}
        found = await ask(one, "/vcs/status")
        assert [(c["file"], c["additions"], c["deletions"], c["status"]) for c in found] == [
            ("a.py", 2, 1, "modified"),
            ("new.txt", 1, 0, "added"),
            ("sub/b.txt", 0, 1, "deleted"),
        ]
        told = await ask(one, "/file/status")
        assert [c["path"] for c in told] == ["a.py", "new.txt", "sub/b.txt"] and told[0]["added"] == 2
        diff = {c["file"]: c["patch"] for c in await ask(one, "/vcs/diff", mode="git")}
        assert diff["a.py"].startswith("diff --git a/a.py b/a.py\n") and "-two\n+TWO\n+three\n" in diff["a.py"]
        assert "@@ -0,0 +1 @@\n+fresh\n\\ No newline at end of file\n" in diff["new.txt"]
        short = {c["file"]: c["patch"] for c in await ask(one, "/vcs/diff", mode="git", context=0)}
        assert "\n one\n" in diff["a.py"] and "\n one\n" not in short["a.py"]
        raw = await one.http.get("/vcs/diff/raw")
        assert raw.headers["content-type"].startswith("text/x-diff")
        # what it tells can be applied
        git(one.workspace, "stash", "-u")
        (tmp_path / "patch").write_text(raw.text)
        git(one.workspace, "apply", str(tmp_path / "patch"))
        assert (one.workspace / "new.txt").read_text() == "fresh" and not (one.workspace / "sub" / "b.txt").exists()


async def test_a_branch_against_where_it_began(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        assert await ask(one, "/vcs/diff", mode="branch") == []
        git(one.workspace, "checkout", "-qb", "topic")
        git(one.workspace, "add", "-A")
        git(one.workspace, "commit", "-qm", "second")
        assert await ask(one, "/vcs/diff", mode="git") == []
        found = await ask(one, "/vcs/diff", mode="branch")
        assert [c["file"] for c in found] == ["a.py", "new.txt", "sub/b.txt"]
        assert await ask(one, "/vcs") == {"branch": "topic", "default_branch": "main"}


async def test_before_the_first_commit_and_without_git(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, a="1\n")
        for path in ("/vcs/status", "/file/status"):
            assert await ask(one, path) == []
        assert await ask(one, "/vcs") == {} and await ask(one, "/vcs/diff", mode="git") == []
        git(one.workspace, "init", "-q")
        git(one.workspace, "add", "-A")
        write(one.workspace, b="2\n")
        assert [(c["file"], c["status"]) for c in await ask(one, "/vcs/status")] == [("a", "added"), ("b", "added")]


async def test_a_folder_of_a_larger_repository_tells_nothing_of_the_rest(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        write(tmp_path, secret="s\n", work__a="a\n")
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "secret", "work/a")
        git(tmp_path, "commit", "-qm", "first")
        write(tmp_path, secret="changed\n", work__a="A\n", other="new\n")
        assert [c["file"] for c in await ask(one, "/vcs/status")] == ["a"]
        assert "secret" not in (await one.http.get("/vcs/diff/raw")).text
        assert await ask(one, "/find/file", query="") == ["a"]


async def test_a_repository_runs_no_programs_and_takes_no_locks(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        folder = one.workspace
        fill(folder)
        mark = tmp_path / "ran"
        script = tmp_path / "evil.sh"
        script.write_text(f"#!/bin/sh\necho ran >> {mark}\ncat\n")
        script.chmod(0o755)
        write(folder, _dot_gitattributes="* filter=evil diff=evil\n")
        for key in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager"):
            git(folder, "config", key, str(script))
        for key in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process"):
            git(folder, "config", key, str(script))
        git(folder, "config", "filter.evil.required", "true")
        git(folder, "config", "core.hooksPath", str(tmp_path))
        before = (folder / ".git" / "index").read_bytes()
        os.utime(folder / ".gitignore")  # so that git looks at its content
        mark.unlink(missing_ok=True)
        for path in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw", "/file?path=", "/find/file?query="):
            assert (await one.http.get(path)).status_code == 200
        assert len(await ask(one, "/vcs/status")) == 4
        assert not mark.exists() and (folder / ".git" / "index").read_bytes() == before


# names of filters in the form of git's configuration, and what .gitattributes calls them
HOSTILE = {
    "equals": (b"q=r", b"q=r"),
    "not UTF-8": (b"\xff", b"\xff"),
    "a command in our own option": (b"q.clean=touch MARK; cat #", b"q"),
    "line break and quote": (b'a\\"b c', b"e"),
}


@pytest.mark.parametrize("kind", ["clean", "process"])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_filter_is_not_run_whatever_its_name_is(tmp_path: Path, name: str, kind: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        folder, mark = one.workspace, tmp_path / "ran"
        fill(folder)
        written, used = (part.replace(b"MARK", str(mark).encode()) for part in HOSTILE[name])
        program = f"touch {mark}; cat".encode()
        with (folder / ".git" / "config").open("ab") as config:
            config.write(b'[filter "%s"]\n\t%s = "%s"\n' % (written, kind.encode(), program))
            config.write(b'[filter "e"]\n\tclean = "%s"\n' % program)
        (folder / ".gitattributes").write_bytes(b"* filter=" + used + b"\n")
        for path in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw", "/file?path=", "/find/file?query="):
            assert (await one.http.get(path)).status_code == 200
            assert not mark.exists(), path
        assert ("a.py", "modified") in [(c["file"], c["status"]) for c in await ask(one, "/vcs/status")]


async def test_too_many_filters_are_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        mark = tmp_path / "ran"
        many = "".join(f'[filter "f{n}"]\n\tclean = touch {mark}\n' for n in range(5000))
        with (one.workspace / ".git" / "config").open("a") as config:
            config.write(many)
        write(one.workspace, _dot_gitattributes="* filter=f7\n")
        for path in ("/vcs/status", "/vcs/diff?mode=git", "/file/status"):
            answer = await one.http.get(path)
            assert answer.status_code == 400 and "5000 filters" in answer.json()["data"]["message"], answer.text
        assert await ask(one, "/vcs") == {"branch": "main", "default_branch": "main"}
        assert not mark.exists()


@pytest.mark.parametrize(
    ("made", "said"), [("link", "cannot be read"), ("pipe", "no regular file"), ("huge", "larger")]
)
async def test_an_index_that_is_no_index_is_not_copied(tmp_path: Path, made: str, said: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        index = one.workspace / ".git" / "index"
        index.unlink()
        if made == "link":
            index.symlink_to("/dev/zero")
        elif made == "pipe":
            os.mkfifo(index)
        else:
            index.write_bytes(b"x")
            os.truncate(index, (256 << 20) + 1)
        async with asyncio.timeout(20):
            error = await ask(one, "/vcs/status", 400)
        assert said in error["data"]["message"] and "index" in error["data"]["message"]


@pytest.mark.parametrize("how", ["file", "link", "alternates", "alternates of alternates", "objects", "pack"])
async def test_a_repository_that_leads_out_of_the_workspace_is_none(tmp_path: Path, how: str) -> None:
    async with gateway(tmp_path, Farm()) as one:
        outside = tmp_path / "outside"
        outside.mkdir()
        fill(outside)
        folder = one.workspace / "in"
        folder.mkdir()
        write(folder, a="1\n")
        store = outside / ".git" / "objects"
        if how == "file":
            (folder / ".git").write_text(f"gitdir: {outside / '.git'}\n")
        elif how == "link":
            (folder / ".git").symlink_to(outside / ".git")
        else:
            git(folder, "init", "-q")
            own = folder / ".git" / "objects"
            if how == "alternates":
                (own / "info" / "alternates").write_text(os.path.relpath(store, own) + "\n")
            elif how == "alternates of alternates":
                (one.workspace / "second" / "info").mkdir(parents=True)
                (own / "info" / "alternates").write_text(f"# none\n{one.workspace / 'second'}\n")
                (one.workspace / "second" / "info" / "alternates").write_text(f"{store}\n")
            elif how == "objects":
                own.rename(folder / "old")
                own.symlink_to(store)
            else:
                git(outside, "gc", "-q")
                for pack in (store / "pack").iterdir():
                    (own / "pack" / pack.name).symlink_to(pack)
            head = git(outside, "rev-parse", "HEAD")
            (folder / ".git" / "refs" / "heads" / "main").write_text(head)
            assert "first" in git(folder, "log")  # git itself follows
        where = str(folder)
        assert await ask(one, "/vcs", directory=where) == {}
        assert await ask(one, "/vcs/diff", directory=where, mode="git") == []
        assert "a" in await ask(one, "/find/file", directory=where, query="a")
        assert "a" in [node["name"] for node in await ask(one, "/file", directory=where, path="")]


async def test_a_linked_work_tree_inside_of_the_workspace_is_one(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        (one.workspace / "main").mkdir()
        fill(one.workspace / "main")
        git(one.workspace / "main", "worktree", "add", "-q", "../topic")
        where = str(one.workspace / "topic")
        write(one.workspace / "topic", a_dot_py="changed\n")
        assert (await ask(one, "/vcs", directory=where))["branch"] == "topic"
        assert [c["file"] for c in await ask(one, "/vcs/status", directory=where)] == ["a.py"]
        topic, main = one.workspace / "topic", one.workspace / "main"
        assert await Git.open(topic, [topic]) is None  # its history is elsewhere
        assert await Git.open(topic, [topic, main]) is not None


def test_a_git_that_ends_at_once_is_no_error() -> None:
    """Before all was written to it; the gateway's loop is uvloop's, which says it in its own way."""

    async def told() -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("true", stdin=pipe, stdout=pipe)
        await process.wait()
        return await talk(process, b"x" * 100_000, 10)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(told()) == b""


async def test_a_slow_git_does_not_hold_up_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.opencode.routes.file.IGNORED_SECONDS", 0.2)
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        (one.workspace / ".git" / "config").unlink()
        os.mkfifo(one.workspace / ".git" / "config")  # git waits for a writer
        async with asyncio.timeout(8):
            listed = await ask(one, "/file", path="")
        assert {(node["name"], node["ignored"]) for node in listed} >= {("a.py", False), ("x.log", False)}


async def test_a_git_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (fake / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    monkeypatch.setattr("adapters.opencode.git.SECONDS", 0.2)
    async with gateway(tmp_path, Farm()) as one:
        write(one.workspace, a="1\n")
        async with asyncio.timeout(20):
            assert await ask(one, "/vcs") == {}
            assert await ask(one, "/find/file", query="a") == ["a"]
    assert "sleep\x001000" not in "".join(_commands())


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if (path.parent / "cwd").readlink().name == "work":
                found.append(path.read_text())
        except OSError:
            continue
    return found


async def test_a_large_patch_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PATCH", 200)
    async with gateway(tmp_path, Farm()) as one:
        fill(one.workspace)
        write(one.workspace, a_dot_py="x\n" * 1000, big="y\n" * 1000)
        found = {c["file"]: c for c in await ask(one, "/vcs/diff", mode="git")}
        assert found["a.py"]["additions"] == 1000 and "patch" not in found["a.py"]
        assert found["big"]["status"] == "added" and "patch" not in found["big"]
        assert "patch" in found["new.txt"]


async def test_bad_words(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as one:
        for path, field in (
            ("/vcs/diff", "mode"),
            ("/vcs/diff?mode=x", "mode"),
            ("/vcs/diff?mode=git&context=-1", "context"),
            ("/vcs/diff?mode=git&context=x", "context"),
        ):
            answer = await one.http.get(path)
            assert answer.status_code == 400 and f'["{field}"]' in answer.json()["data"]["message"], answer.text
