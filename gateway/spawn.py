"""How a child process begins: what it sees of our environment, and that it does not outlive us."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

_BASE = {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME", "SHELL", "TZ"}
_BASE |= {"NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_PATH", "NODE_ENV"}
_PREFIXES = ("LC_", "XDG_", "npm_config_", "NPM_CONFIG_")
_SECRET = ("auth", "token", "password", "secret")  # npm's own, among npm_config_*
_PR_SET_PDEATHSIG = 1


def environment(outer: Mapping[str, str], pass_env: Sequence[str], extra: Mapping[str, str]) -> dict[str, str]:
    """What an agent sees: a base list, the names in ``pass_env``, and ``extra``; nothing else of ``outer``."""
    names = set(pass_env)

    def passes(name: str) -> bool:
        if name in _BASE or name in names:
            return True
        return name.startswith(_PREFIXES) and not any(word in name.lower() for word in _SECRET)

    return {**{name: value for name, value in outer.items() if passes(name)}, **extra}


def spawn(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], child_in: int, child_out: int, child_err: int
) -> "subprocess.Popen[bytes]":
    """A child that leads a kernel session and dies with the thread that forked it. Raises OSError, ValueError."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        prctl = None  # not Linux: the reaper has to do
    parent = os.getpid()

    def in_child() -> None:
        # Between fork and exec: only what was looked up before. A launcher's own children are the reaper's matter.
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)

    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=child_in,
        stdout=child_out,
        stderr=child_err,
        start_new_session=True,
        preexec_fn=in_child,
    )
