"""The exception tree of the engine.

EngineError                 anything the engine reports to a person or a client
├── ModelFileError          the model file is wrong, truncated, hostile or of another architecture
├── SettingError            a setting from file, environment or command line is wrong
├── RuleError               an answer can no longer keep to its grammar (HTTP 500, this request only)
├── NumericsError           the model produced numbers that cannot be used (HTTP 500, this request only)
├── TalkError               `engine chat` got no answer; stands in `engine.talk`
├── BrokenCallError         a tool call that a stream has begun to show broke off (HTTP 500, in the stream)
├── RequestError            the client's request is wrong (HTTP 400)
│   ├── ContextLengthError  the prompt does not fit the context (HTTP 400)
│   ├── UnauthorizedError   no or a wrong API key (HTTP 401)
│   ├── NotFoundError       no such path or model (HTTP 404)
│   ├── MethodError         the path exists, the method does not (HTTP 405)
│   ├── BodyTimeoutError    the body did not come in time; a retry can help (HTTP 408)
│   ├── BodyTooLargeError   the body exceeds the limit (HTTP 413)
│   ├── HeadTooLargeError   too many header lines (HTTP 431)
│   └── BodyEncodingError   the body is compressed (HTTP 415)
└── CapacityError           the request cannot be admitted now; a retry can help (HTTP 503)
    └── NotReadyError       the model is loading or the server is shutting down (HTTP 503)
"""

from __future__ import annotations

SHOWN_CHARACTERS = 60  # of a value in a message


def shown(value: object) -> str:
    """A client's value for a message, quoted and short, whatever was sent."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a very large number"
    # Of a long text only its head is quoted: the whole may be as long as a body.
    text = repr(value[:SHOWN_CHARACTERS] if isinstance(value, str) else value)
    whole = len(text) <= SHOWN_CHARACTERS and not (isinstance(value, str) and len(value) > SHOWN_CHARACTERS)
    return text if whole else text[: SHOWN_CHARACTERS - 3] + "..."


class EngineError(Exception):
    """Base of all errors that carry one clear message for a person: wrong, found, allowed, what to do."""

    status = 500
    code = "internal_error"
    retryable = False


class ModelFileError(EngineError):
    """The model file cannot be used; the message names the tensor or key."""

    code = "model_file"


class SettingError(EngineError):
    """A setting has a value that is not allowed."""

    code = "setting"


class RuleError(EngineError):
    """A request's own rule cannot go on; only that request fails, and the message is for its client."""

    code = "grammar"


class NumericsError(EngineError):
    """Logits hold no usable number; only the request they belong to fails."""


class BrokenCallError(EngineError):
    """The model broke off a tool call of which the client has seen the beginning."""

    code = "broken_tool_call"


class RequestError(EngineError):
    """The request is wrong; `param` names the field by its dotted path, `code` the kind of fault."""

    status = 400
    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        if code is not None:
            self.code = code


class ContextLengthError(RequestError):
    """The prompt leaves no room in the context for one generated token."""

    code = "context_length_exceeded"

    def __init__(self, *, prompt_tokens: int, context_tokens: int, param: str = "messages") -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens; the context holds {context_tokens} "
            "and needs at least one for the answer; shorten the conversation",
            param=param,
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class UnauthorizedError(RequestError):
    """The API key is missing or wrong."""

    status = 401
    code = "invalid_api_key"


class NotFoundError(RequestError):
    """No such path, or no such model."""

    status = 404
    code = "not_found"


class MethodError(RequestError):
    """The path exists but not with this method; `allowed` lists the methods that do."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class BodyTimeoutError(RequestError):
    """The request body did not come in time."""

    status = 408
    code = "request_timeout"
    retryable = True


class BodyTooLargeError(RequestError):
    """The request body exceeds the configured limit."""

    status = 413
    code = "request_too_large"


class HeadTooLargeError(RequestError):
    """The request has too many header lines."""

    status = 431
    code = "request_too_large"


class BodyEncodingError(RequestError):
    """The request body is compressed, which this server does not read."""

    status = 415
    code = "unsupported_encoding"


class CapacityError(EngineError):
    """No room for this request now; `retry_after_s` is a hint for the client."""

    status = 503
    code = "overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReadyError(CapacityError):
    """The model is still loading, or the server is shutting down."""

    code = "not_ready"
