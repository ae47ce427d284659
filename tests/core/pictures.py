"""The pictures of docs/flow.md: sequences that the core itself plays. ``python -m tests.core.pictures`` writes them.

Nothing in them is drawn by hand: the inputs are given, and every arrow is an event, an effect or a reply of theirs.
"""

import re
from collections.abc import Callable
from pathlib import Path

from gateway.core.inputs import Abort, AgentFact, AgentReady, Input, Recover, Replace, Revoke, Submit, WithdrawVerdict
from gateway.core.session import Policy
from tests.core.play import Play, died, ended, say, submit, text, verdict, written

DOCS = Path(__file__).resolve().parents[2] / "docs" / "flow.md"
BEGIN, END = "<!-- made by tests/core/pictures.py -->\n", "<!-- end -->\n"
HEAD = """sequenceDiagram
    participant C as clients
    participant G as session
    participant L as log (stored, then shown to all)
    participant A as agent
"""
# what every turn has and no delivery is about
HIDDEN = ("session", "step", "part", "placed", "~ P", "~ agent", "alias", "tool")
TOLD = {"== ": "G-->>C: ", "!! ": "G->>A: "}


class Picture:
    def __init__(self, policy: Policy = Policy()) -> None:
        self.play = Play(policy)
        self.lines: list[str] = []

    def put(self, *items: Input, note: str = "") -> "Picture":
        start = len(self.play.world.lines)
        if isinstance(items[0], Recover):
            self.play.restart()
        else:
            self.play.put(*items)
        told = self.play.world.lines[start:]
        if note:
            self.lines.append(f"Note over G: {note}")
        for line in told:
            if line.startswith(">>"):
                self._given(line, items)
        events = [t.removeprefix("<< ").strip() for t in told if t.startswith("<<") and t[3:5] not in ("!!", "==")]
        shown = [_short(event) for event in events if not event.startswith(HIDDEN)]
        if shown:
            self.lines.append("G->>L: " + "<br/>".join(shown))
        bare = [line.removeprefix("<< ").strip() for line in told]
        for mark in TOLD:  # who asked is answered, then the agent is told
            self.lines += [TOLD[mark] + line[3:] for line in bare if line.startswith(mark)]
        return self

    def _given(self, line: str, items: tuple[Input, ...]) -> None:
        word, _, rest = line[3:].partition(" ")
        item = next(i for i in items if type(i).__name__ == word)
        if isinstance(item, Submit):
            name = str(item.message_id).removeprefix("msg_")
            more = f" (on abort: {item.on_abort})" if item.on_abort != "hold" else ""
            self.lines.append(f"C->>G: Submit {name} {item.delivery}{more}")
            return
        if isinstance(item, AgentReady):
            rest = "(can be steered)" if item.can_steer else ""
        fields = re.sub(r"(message_id|offer_id|if_busy|own_id|can_steer|can_withdraw|question)=", "", rest)
        fields = (
            re.sub(r"(on_abort|delivery|outcome|verdict)=", "", fields).replace("'", "").replace("done=True", "done")
        )
        said = " ".join(f"{word} {fields}".split())
        if isinstance(item, AgentFact):
            self.lines.append(f"A->>G: {said}")
        elif isinstance(item, Recover):
            self.lines.append("Note over G: the gateway starts again")
        else:
            self.lines.append(f"C->>G: {said}")

    def mermaid(self) -> str:
        return HEAD + "".join(f"    {line}\n" for line in self.lines)


def _short(event: str) -> str:
    return event.replace("~ ", "").replace("question", "asked").replace(";", ",")


# --- the stories -----------------------------------------------------------------------------------------------------


def _running(p: Picture, steer: bool = True) -> Picture:
    """What comes before is in the first picture."""
    p.play.running(steer=steer)
    p.lines.append("Note over C,A: the turn T1 runs: the agent works at the message a")
    return p


def idle() -> Picture:
    p = Picture().put(submit("a")).put(AgentReady(can_steer=True, can_withdraw=True))
    return p.put(written(p.play, "O1")).put(text("hello")).put(ended(p.play, "O1"))


def queue() -> Picture:
    p = _running(Picture())
    p.put(submit("b")).put(submit("c"))
    p.put(ended(p.play, "O1")).put(written(p.play, "O2"))
    return p.put(ended(p.play, "O2"))


def steer_injected() -> Picture:
    p = _running(Picture())
    p.put(submit("s", "steer"))
    p.put(verdict(p.play, "O2", "accepted"), note="the agent holds it, the model has not read it")
    return p.put(verdict(p.play, "O2", "injected")).put(ended(p.play, "O1"))


def steer_next_turn() -> Picture:
    p = _running(Picture())
    p.put(submit("q"))
    p.put(submit("s", "steer"))
    p.put(verdict(p.play, "O2", "refused"), note="it is not asked again in this turn")
    return p.put(ended(p.play, "O1")).put(written(p.play, "O3"))


def steer_interrupt() -> Picture:
    p = _running(Picture(Policy(steer_fallback="interrupt")), steer=False)
    p.put(submit("s", "steer"))
    return p.put(ended(p.play, "O1", "cancelled")).put(written(p.play, "O2"))


def revoke_pending() -> Picture:
    p = _running(Picture())
    p.put(submit("b")).put(Revoke(message_id=p.play.id("b")))
    return p.put(Revoke(message_id=p.play.id("b")), note="once more: a success")


def revoke_offered() -> Picture:
    p = _running(Picture())
    p.put(submit("s", "steer")).put(Revoke(message_id=p.play.id("s")))
    return p.put(_withdrawn(p.play, "O2", "s", 1, True))


def revoke_too_late() -> Picture:
    p = _running(Picture())
    p.put(submit("s", "steer")).put(Revoke(message_id=p.play.id("s")))
    p.put(verdict(p.play, "O2", "injected"), note="who asked is answered: already_delivered")
    return p


def replace_offered() -> Picture:
    p = _running(Picture())
    p.put(submit("s", "steer")).put(Replace(message_id=p.play.id("s"), content=say("better")))
    p.put(_withdrawn(p.play, "O2", "s", 1, True))
    return p.put(verdict(p.play, "O2", "injected"))


def abort() -> Picture:
    p = _running(Picture())
    p.put(submit("b")).put(submit("k", on_abort="keep")).put(submit("r", on_abort="revoke"))
    p.put(Abort())
    p.put(ended(p.play, "O1", "cancelled"))
    p.put(written(p.play, "O2")).put(ended(p.play, "O2"))
    return p.put(submit("n"), note="the next prompt takes along what was held")


def death() -> Picture:
    p = _running(Picture())
    p.put(submit("s", "steer")).put(submit("b"))
    p.put(died(), note="what it was offered may have reached it")
    return p.put(submit("n"), note="the uncertain one is not sent by itself")


def crash() -> Picture:
    p = _running(Picture())
    p.put(submit("b"))
    return p.put(Recover(checkpoints={}))


def _withdrawn(p: Play, offer: str, name: str, question: int, done: bool) -> WithdrawVerdict:
    return WithdrawVerdict(offer_id=p.id(offer), message_id=p.id(name), question=question, done=done)


STORIES: dict[str, Callable[[], Picture]] = {
    "An idle session": idle,
    "Queue": queue,
    "Steer, injected": steer_injected,
    "Steer, refused: first in the next turn": steer_next_turn,
    'Steer an agent that cannot be steered, `steer_fallback = "interrupt"`': steer_interrupt,
    "Revoke, first layer: it waits in the gateway": revoke_pending,
    "Revoke, second layer: the agent holds it": revoke_offered,
    "Revoke, too late": revoke_too_late,
    "Replace what the agent holds": replace_offered,
    "Abort with a queue": abort,
    "The agent dies": death,
    "The gateway is killed": crash,
}


def markdown() -> str:
    return "\n".join(f"### {title}\n\n```mermaid\n{story().mermaid()}```\n" for title, story in STORIES.items())


def main() -> None:
    page = DOCS.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(before + BEGIN + "\n" + markdown() + "\n" + END + after)


if __name__ == "__main__":
    main()
