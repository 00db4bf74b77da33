"""Token counts of one reply that cannot be true: against each other, the limit, the ids and the fragments.

Needs no tokenizer, and knows the fields of a history and nothing of gates.
"""

from __future__ import annotations

from gates.harness.history import Operation


def is_count(value: object) -> bool:
    """Whether a value is a number of tokens above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def fault(operation: Operation) -> str:
    """Why the counts of an answered request with `max_tokens` cannot be true; empty when they can."""
    prompt, completion = operation.get("prompt_tokens"), operation.get("completion_tokens")
    cached, total = operation.get("cached_tokens"), operation.get("total_tokens")
    if not is_count(prompt):
        return f"prompt_tokens is {prompt!r}"
    if not is_count(completion) and (operation.get("text") or completion != 0):
        how = "with" if operation.get("text") else "without"
        return f"completion_tokens is {completion!r} for a reply {how} text"
    if cached is not None and not 0 <= cached <= prompt:
        return f"cached_tokens is {cached} of {prompt} prompt tokens"
    if total is not None and total != prompt + completion:
        return f"total_tokens is {total}, but prompt and completion are {prompt} + {completion}"
    return _length(operation, completion)


def _length(operation: Operation, completion: int) -> str:
    allowed = operation.get("max_tokens")
    if completion > allowed:
        return f"completion_tokens is {completion} and max_tokens was {allowed}"
    if operation.get("finish_reason") == "length" and completion < allowed:
        return f"finish_reason is length after {completion} of {allowed} tokens"
    ids = len(operation.get("token_ids") or ())
    if ids and abs(ids - completion) > 1:  # the end mark may or may not be counted
        return f"completion_tokens is {completion}, but {ids} token ids came"
    fragments = operation.get("fragments", 0)
    if fragments > completion + 1:
        return f"completion_tokens is {completion}, but the text came in {fragments} fragments"
    return ""
