"""Token counts and token ids without an answer: /tokenize, /detokenize, /v1/messages/count_tokens.

Reads bodies as the dialects do.  Never waits for the engine and leaves no trace in its cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from engine.chat.normalise import kind_of
from engine.chat.request import Prompt, RawPrompt
from engine.errors import RequestError
from engine.server.answers import json_response
from engine.server.ask import flag
from engine.server.dialects.anthropic import AnthropicMessages
from engine.server.dialects.completions import read_prompt
from engine.server.dialects.openai import OpenAIChat
from engine.server.endpoint import Intake
from engine.server.fields import Fields


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Answers about tokens."""

    intake: Intake

    async def tokenize(self, http: HttpRequest) -> Response:
        """Ids of a chat (`messages`), of a prompt as completions reads it, or of a bare text (`content`)."""
        service = self.intake.host.service
        body = await self.intake.read(http)
        prompt = await asyncio.to_thread(self._prompt, body)
        ids = await asyncio.to_thread(service.prompt_ids, prompt)
        return json_response({"count": len(ids), "max_model_len": service.context, "tokens": list(ids)})

    async def detokenize(self, http: HttpRequest) -> Response:
        """The text of ids, markers included; ids that the vocabulary lacks are refused."""
        service = self.intake.host.service
        body = await self.intake.read(http)
        ids = service.checked_ids(_ids(body.get("tokens")), "tokens")
        text = await asyncio.to_thread(service.tokenizer.decode, ids)
        return json_response({"prompt": text, "content": text})

    async def count(self, http: HttpRequest) -> Response:
        """The exact number of prompt tokens that a message would have."""
        service = self.intake.host.service
        body = await self.intake.read(http)
        ask = await asyncio.to_thread(AnthropicMessages().read, body, self.intake.defaults())
        ids = await asyncio.to_thread(service.prompt_ids, ask.prompt)
        return json_response({"input_tokens": len(ids)})

    def _prompt(self, body: Mapping[str, object]) -> Prompt:
        if isinstance(text := body.get("content"), str):
            return RawPrompt(text, opened=flag(Fields(body), "add_special", default=False))
        if body.get("prompt") is None:
            return OpenAIChat().read(body, self.intake.defaults()).prompt
        prompt = read_prompt(body)
        opened = flag(Fields(body), "add_special_tokens", default=True)
        return RawPrompt(prompt.text, prompt.ids, opened)


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise RequestError(f"tokens must be a list of token ids, found {kind_of(value)}", param="tokens")
    return tuple(value)
