"""The exception tree of the engine.

EngineError                 anything the engine reports to a person or a client
├── ModelFileError          the model file is wrong, truncated, hostile or of another architecture
├── SettingError            a setting from file, environment or command line is wrong
├── RequestError            the client's request is wrong (HTTP 400)
└── CapacityError           the request cannot be admitted now; a retry can help (HTTP 503)
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors that carry one clear message for a person: wrong, found, allowed, what to do."""

    status = 500
    code = "engine_error"
    retryable = False


class ModelFileError(EngineError):
    """The model file cannot be used; the message names the tensor or key."""

    code = "model_file"


class SettingError(EngineError):
    """A setting has a value that is not allowed."""

    code = "setting"


class RequestError(EngineError):
    """The request is wrong; `param` names the field."""

    status = 400
    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class CapacityError(EngineError):
    """No room for this request now."""

    status = 503
    code = "overloaded"
    retryable = True
