"""Events, effects, inputs and replies as short lines, with names for the ids: how playbooks and failing stories read.

An id of a client, like ``msg_a``, is shown as ``a``; minted ones as ``m1`` (messages), ``S1`` (steps), ``T1`` (turns),
``O1`` (offers), ``R1`` (requests), ``P1`` (parts), in the order in which they are first seen.
"""

from typing import Any

import msgspec

from gateway.core import effects as fx
from gateway.core import events as ev
from gateway.core.content import Content, Text
from gateway.core.errors import GatewayError
from gateway.core.inputs import UNSET, By, Input
from gateway.core.model import Answered, Selected
from gateway.core.replies import Admission, Reconciled, Settled, Settlement, Verdict, Wait

LETTERS = {"trn": "T", "off": "O", "per": "R", "que": "R", "prt": "P"}


class Names:
    """Short names for ids, the same one for the same id."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {"": "-"}
        self.ids: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def __call__(self, value: str | None, letter: str = "") -> str:
        if value is None:
            return "-"
        if value not in self.of:
            prefix, _, rest = value.partition("_")
            if len(rest) == 26:
                letter = letter or LETTERS.get(prefix, "m" if prefix == "msg" else prefix)
                self.counts[letter] = self.counts.get(letter, 0) + 1
                name = f"{letter}{self.counts[letter]}"
            else:
                name = rest if prefix == "msg" and rest else value
            self.of[value] = name
            self.ids.setdefault(name, value)
        return self.of[value]

    def many(self, values: Any) -> str:
        return " ".join(self(v) for v in values)


def words(content: Content) -> str:
    return repr("|".join(b.text if isinstance(b, Text) else f"[{type(b).__name__.lower()}]" for b in content))


def outcome(value: Answered) -> str:
    if isinstance(value, Selected):
        return value.option_id
    told = getattr(value, "why", "") or getattr(value, "message", "")
    return type(value).__name__.lower() + (f":{told}" if told else "")


def _some(**facts: object) -> str:
    return "".join(f" {k}" if v is True else f" {k}={v}" for k, v in facts.items() if v)


def event(n: Names, e: ev.Event, before: Any = None) -> str:  # noqa: PLR0911, PLR0912 (one line an event)
    """``before``: the session's info until now, to tell what a SessionUpdated changed."""
    match e:
        case ev.SessionCreated(info):
            return "session created" + _some(parent=bool(info.parent_id))
        case ev.SessionUpdated(info):
            old = msgspec.structs.asdict(before) if before is not None else {}
            new = msgspec.structs.asdict(info)
            return "session" + _some(**{k: v for k, v in new.items() if k != "updated" and v != old.get(k)})
        case ev.SessionDeleted():
            return "session deleted"
        case ev.MessageAdmitted(m):
            return f"admitted {n(m.id)} {m.lane}" + _some(held=m.held, group=n(m.group) if m.group != m.id else "")
        case ev.PendingReplaced():
            return f"replaced {n(e.message_id)} {words(e.content)}" + _some(question=e.question)
        case ev.MessagePlaced():
            return f"placed {n(e.message_id)}"
        case ev.MessagePromoted():
            return f"promoted {n(e.message_id)}"
        case ev.MessageDemoted():
            return f"demoted {n(e.message_id)}"
        case ev.MessageHeld():
            return f"held {n(e.message_id)} {e.why}"
        case ev.MessageReleased():
            return f"released {n(e.message_id)}"
        case ev.MessageRevoked():
            return f"revoked {n(e.message_id)}" + _some(uncertain=e.uncertain)
        case ev.MessagesOffered():
            return f"offered {n(e.offer_id)} {e.how} {n.many(e.message_ids)}"
        case ev.MessageReturned():
            return f"returned {n(e.message_id)} {e.why}" + _some(held=e.held, uncertain=e.uncertain)
        case ev.MessageDelivered(m):
            return f"delivered {n(m.id)} {n(m.turn_id)} {m.how}"
        case ev.MessageAliased():
            return f"alias {n(e.message_id)} {e.agent_id}"
        case ev.QuestionAsked():
            return f"~ question {n(e.message_id)} {e.question.number} {e.question.kind}"
        case ev.QuestionRefused():
            return f"~ cannot {n(e.message_id)} {e.number}"
        case ev.AbortAsked():
            return f"abort {n(e.turn_id)}" + (f" returning {n.many(e.returning)}" if e.returning else "")
        case ev.TurnStarted():
            return f"turn {n(e.turn_id)} {e.cause}"
        case ev.TurnCancelling():
            return f"cancelling {n(e.turn_id)} {e.why}"
        case ev.TurnEnded():
            return f"ended {n(e.turn_id)} {e.outcome}" + _some(error=e.error.code if e.error else "")
        case ev.StepStarted(s):
            return f"step {n(s.id, 'S')} {n(s.turn_id)}" + _some(answers=n(s.parent_id) if s.parent_id else "")
        case ev.StepEnded(s):
            return f"step end {n(s.id, 'S')} {s.outcome}"
        case ev.PartOpened():
            more = "" if e.first else " more"
            return f"part {n(e.part_id)} {n(e.step_id)} {e.role} {n(e.message_id)}{more}"
        case ev.TextDelta():
            return f"~ {n(e.part_id)} {e.text!r}"
        case ev.PartEnded():
            return f"part end {n(e.part_id)} {e.text!r}"
        case ev.BlockAdded():
            more = "" if e.first else " more"
            return f"block {n(e.part_id)} {n(e.step_id)} {e.role} {n(e.message_id)}{more} {words((e.block,))}"
        case ev.MessageReplaced():
            parts = " ".join(f"{n(p.part_id)}={words((p.block or Text(p.text),))}" for p in e.parts)
            return f"message {n(e.message_id)} drops {n.many(e.dropped)} has {parts or 'nothing'}"
        case ev.ToolUpdated(c):
            return f"tool {c.call_id} {n(c.part_id)} {n(c.step_id)} {c.status}" + _some(new=e.first)
        case ev.MessageRefs():
            told = {k: v for k, v in msgspec.structs.asdict(e.refs).items() if v}
            return f"refs {n(e.message_id)}" + _some(**told)
        case ev.RequestOpened(r):
            return f"request {n(r.id)} {r.kind}" + _some(tool=r.call_id)
        case ev.RequestSettled():
            return f"settled {n(e.request_id)} {outcome(e.outcome)}" + _some(rule=e.rule, tool=e.call_id)
        case ev.ChildUpdated(c):
            return f"child {c.agent_session}" + _some(state=c.state, new=e.first)
        case ev.AgentStateChanged():
            return f"~ agent {e.state}" + _some(steer=e.can_steer, error=e.error.code if e.error else "")
        case ev.AgentWorking():
            return f"~ agent {'works' if e.working else 'rests'}"
        case ev.OfferAccepted():
            return f"~ accepted {n(e.offer_id)}"
        case ev.PlanUpdated() | ev.UsageUpdated() | ev.ModesUpdated() | ev.ConfigUpdated() | ev.CommandsUpdated():
            return type(e).__name__.removesuffix("Updated").lower()
        case ev.BackgroundUpdated():
            return f"background {len(e.items)}"
        case ev.AgentUpdated():
            return f"update {e.kind}"


def effect(n: Names, e: fx.AnyEffect) -> str:
    match e:
        case fx.OfferPrompt() | fx.OfferSteer():
            return f"!! {type(e).__name__} {n(e.offer_id)} {n.many(m.id for m in e.messages)}"
        case fx.Withdraw():
            new = f" {words(e.content)}" if e.content is not None else ""
            return f"!! Withdraw {n(e.message_id)} {e.question}{new}"
        case fx.CancelTurn():
            return f"!! CancelTurn {n(e.turn_id)}"
        case fx.AnswerAgent():
            return f"!! AnswerAgent {e.agent_ref} {outcome(e.outcome)}"
        case fx.ConfigureAgent():
            return "!! ConfigureAgent" + _some(mode=e.mode, model=e.model, config=e.config)
        case fx.CancelChild():
            return f"!! CancelChild {e.agent_session}"
        case fx.CancelWork():
            return f"!! CancelWork {e.agent_session or 'root'} {e.kind} {e.id}"
        case fx.StartCommand():
            return f"!! StartCommand {n(e.turn_id)} {e.command!r}"
        case fx.StopCommand():
            return f"!! StopCommand {n(e.turn_id)}"
        case fx.StartAgent() | fx.KillAgent():
            return f"!! {type(e).__name__}"


def reply(n: Names, r: object) -> str:
    match r:
        case GatewayError():
            return f"== {type(r).__name__}"
        case Admission():
            return f"== {r.state} {n(r.message_id)}" + _some(duplicate=r.duplicate, uncertain=r.uncertain)
        case Reconciled():
            return "== reconciled" + "".join(" " + n(a.message_id) for a in r.new) + _some(edited=r.edited)
        case Verdict():
            return f"== {r.kind} {n(r.message_id)}" + _some(uncertain=r.uncertain)
        case Wait():
            return f"== wait {n(r.message_id)} {r.question}"
        case Settled():
            return f"== {outcome(r.outcome)}" + _some(first=r.first)
        case Settlement():
            told = _some(why=r.why, uncertain=r.uncertain, error=r.error.code if r.error else "")
            return f"{r.kind} {n(r.message_id)}" + (f" {n(r.turn_id)} {r.outcome}" if r.turn_id else "") + told
        case None:
            return ""
        case _:
            return f"== {type(r).__name__}"


def given(n: Names, item: Input) -> str:
    """An input, with the fields that say something."""
    shown = []
    for name, value in msgspec.structs.asdict(item).items():
        if name in ("by", "source", "part_ids") and (not value or isinstance(value, By)):
            continue
        default = item.__struct_defaults__[item.__struct_fields__.index(name)] if _has_default(item, name) else ...
        if value is UNSET or value == default:
            continue
        if name == "content" and isinstance(value, tuple):
            shown.append(words(value))
        elif isinstance(value, str) and (name.endswith("_id") or name == "message_id"):
            shown.append(f"{name}={n(value)}")
        else:
            shown.append(f"{name}={value!r}")
    return f">> {type(item).__name__} " + " ".join(shown)


def _has_default(item: Input, name: str) -> bool:
    # keyword-only structs list their defaults beside all fields, NODEFAULT where there is none
    fields, defaults = item.__struct_fields__, item.__struct_defaults__
    return len(defaults) == len(fields) and defaults[fields.index(name)] is not msgspec.NODEFAULT
