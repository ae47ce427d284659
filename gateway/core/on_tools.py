"""What the agent does and asks: tool calls, permissions, elicitations; and the rules that answer for people."""

import msgspec

from gateway.core import events as ev
from gateway.core import flow
from gateway.core.content import Json
from gateway.core.effects import AnswerAgent
from gateway.core.inputs import UNSET, AgentAsk, AgentTool
from gateway.core.model import TOOL_DONE, Answered, By, Cancelled, Request, Selected, ToolCall
from gateway.core.session import Draft, Node
from gateway.core.turn import TurnState

POLICY = By("policy", "gateway")  # whom an answer by a rule is owed to


def tool(d: Draft, node: Node, fact: AgentTool, asked: bool = False) -> ToolCall:
    """``asked``: a person is asked about it, so its input is complete though it does not work yet."""
    state = node.state
    call = node.tool(fact.call_id)
    if call is not None and fact.new and call.turn_id != flow.turn_of(node):
        call = None  # the agent counts its calls anew
    first = call is None
    if call is None:
        flow.close_part(d, node)
        if state.step is None:
            flow.start_step(d, node)
        step = state.step
        assert step is not None
        again = "tool " + fact.call_id in node.used
        call = ToolCall(fact.call_id, d.part_id(node), step.id, step.turn_id, d.created(node), again=again)
    changes: dict[str, object] = {
        name: getattr(fact, name)
        for name in ("status", "title", "kind", "name", "input", "output", "content", "locations", "meta", "can_cancel")
        if getattr(fact, name) is not UNSET
    }
    if fact.meta_patch is not UNSET:
        meta = {**(call.meta or {}), **(fact.meta_patch or {})}
        changes["meta"] = {key: value for key, value in meta.items() if value is not None} or None
    if fact.append is not UNSET:
        changes["content"] = [*(call.content or []), *(fact.append or [])]
    status = changes.get("status", call.status)
    now = max(d.now, call.created)
    if call.started is None and status != "pending":
        changes["started"] = now
    if status not in TOOL_DONE:
        changes["ended"] = None  # it works again, whatever was thought of it
    elif call.ended is None:
        changes["ended"] = now
    result = status in TOOL_DONE and not call.told
    given = changes.get("input", call.input)
    called = (status != "pending" or asked) and (not call.called or not _says(call.input, given))
    call = msgspec.structs.replace(call, **changes, told=call.told or result, called=call.called or called)
    d.emit(node, ev.ToolUpdated(call, first, fact.source, result, called))
    return call


def _says(before: Json, now: Json) -> bool:
    """Whether an input was told already: the same, or the same in more or less detail."""
    if isinstance(before, dict) and before and isinstance(now, dict) and now:
        few, many = sorted((before, now), key=len)
        return all(key in many and many[key] == value for key, value in few.items())
    return bool(before == now)


def ask(d: Draft, fact: AgentAsk) -> None:
    node = d.of_agent(fact.agent_session)
    if d.root.state.turn in (TurnState.STILLBORN, TurnState.CANCELLING):
        d.do(AnswerAgent(fact.agent_ref, Cancelled("abort")))  # too late: a cancelled turn asks nobody any more
        return
    call: ToolCall | None = None
    if fact.tool is not None:
        call = tool(d, node, fact.tool, asked=True)
        if fact.kind == "permission" and ruled(d, node, fact, call):
            return
    prefix = "per" if fact.kind == "permission" else "que"
    request = Request(
        d.request_id(node, prefix),
        fact.kind,
        fact.title or (call.title if call is not None else ""),
        d.now,
        fact.agent_ref,
        node.state.turn_id,
        call.call_id if call is not None else "",
        call.step_id if call is not None else node.state.step.id if node.state.step is not None else None,
        fact.options,
        fact.description,
        fact.schema,
        fact.url,
        fact.raw,
    )
    d.emit(node, ev.RequestOpened(request))


def ruled(d: Draft, node: Node, fact: AgentAsk, call: ToolCall) -> bool:
    """Answer by the settings' rule for this kind of tool, if there is one. Nobody is asked then; the tool call and the
    event say which rule it was. Allowed is this one call, never "always": where no option says just that, people are
    asked.
    """
    rules = d.policy.permissions
    rule = rules.get(call.kind) or rules.get("*", "ask")
    kinds = {option.kind: option for option in reversed(fact.options)}
    option = kinds.get({"allow": "allow_once", "deny": "reject_once"}.get(rule, ""))
    # an id of two options: the agent may take it as the other
    unclear = option is not None and [o.id for o in fact.options].count(option.id) > 1
    if rule == "ask" or (rule == "allow" and option is None) or unclear:
        return False
    outcome: Answered = Selected(option.id) if option is not None else Cancelled("policy")
    d.emit(node, ev.ToolUpdated(msgspec.structs.replace(call, rule=rule), False))
    settled = ev.RequestSettled(
        d.request_id(node, "per"),
        outcome,
        option_kind=option.kind if option is not None else "",
        turn_id=node.state.turn_id,
        rule=rule,
        call_id=call.call_id,
    )
    before, d.by = d.by, POLICY
    d.emit(node, settled)
    d.by = before
    d.do(AnswerAgent(fact.agent_ref, outcome))
    return True
