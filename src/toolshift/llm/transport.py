"""One attempt at one request through the openai package, and what its errors mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolshift.llm.endpoint import Endpoint
from toolshift.llm.errors import EndpointError
from toolshift.llm.outcomes import Answer, Invalid, Usage
from toolshift.llm.request import Request

# Servers word it differently: OpenAI and vLLM "maximum context length", llama.cpp "exceed_context_size_error".
_OVERFLOW = ("context_length_exceeded", "context length", "context size", "context_size", "context window")
_LONGEST_DETAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One outcome. retry_after_s: how long the server asks to wait; None where it says nothing."""

    outcome: Answer | Invalid
    retry_after_s: float | None = None


Transport = Callable[[Request], Attempt]


def openai_transport(endpoint: Endpoint) -> Transport:
    """A transport for an endpoint that was checked; safe to call from several threads.

    Its attempts raise `EndpointError` where the server refuses the key, the address or the model: no other request
    would fare better.
    """
    import openai

    key = endpoint.key()
    client = openai.OpenAI(
        base_url=endpoint.base_url,
        api_key=key or "none",
        timeout=endpoint.timeout_s,
        max_retries=0,  # retries are counted and recorded here, not hidden in the library
    )
    create: Callable[..., Any] = client.chat.completions.create

    def attempt(request: Request) -> Attempt:
        try:
            reply = create(**request.body)
        except openai.OpenAIError as error:
            return _failure(error, secret=key)
        except json.JSONDecodeError as error:
            return _invalid("malformed", f"the reply is no JSON: {error}", secret=key)
        return Attempt(outcome=_read(reply, secret=key))

    return attempt


def _read(reply: Any, *, secret: str) -> Answer | Invalid:
    """The answer out of a reply; a server that speaks another protocol may send anything."""
    try:
        choice = reply.choices[0]
        text, finish = choice.message.content or "", choice.finish_reason
        paid = reply.usage
        usage = Usage(int(paid.prompt_tokens or 0), int(paid.completion_tokens or 0)) if paid else Usage()
        served_by = str(reply.model or "")
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        return Invalid(reason="malformed", detail=_clean(f"no chat completion: {error}", secret))
    if finish == "length":
        return Invalid(reason="cut", detail=f"cut after {usage.completion_tokens} tokens", usage=usage)
    if not isinstance(text, str) or not text.strip():
        return Invalid(reason="empty", detail=_clean(f"finish_reason {finish!r}", secret), usage=usage)
    return Answer(text=text, usage=usage, served_by=served_by)


def _failure(error: Exception, *, secret: str) -> Attempt:
    import openai

    said = str(error)
    if isinstance(error, openai.APITimeoutError):
        return _invalid("timeout", said, secret=secret)
    if isinstance(error, openai.APIConnectionError):
        return _invalid("unreachable", said, secret=secret)
    if isinstance(error, openai.APIStatusError):
        return _refusal(error, said=said, secret=secret)
    return _invalid("malformed", said, secret=secret)


def _refusal(error: Any, *, said: str, secret: str) -> Attempt:
    """An HTTP status of 400 and above."""
    status, wait = int(error.status_code), _retry_after(error)
    if status in (401, 403, 404):
        raise EndpointError(
            f"the endpoint refuses every request (HTTP {status}): check the key's variable, the address and the "
            f"model's name; it said: {_clean(said, secret)}"
        ) from None
    if status == 429:
        return _invalid("rate_limited", said, secret=secret, wait=wait)
    if status in (408, 504):
        return _invalid("timeout", said, secret=secret, wait=wait)
    if status >= 500:
        return _invalid("server_error", said, secret=secret, wait=wait)
    words = f"{said} {error.code} {error.body}".lower()  # the message alone leaves the code out
    overflow = status == 413 or any(word in words for word in _OVERFLOW)
    return _invalid("context_overflow" if overflow else "rejected", said, secret=secret)


def _retry_after(error: Any) -> float | None:
    """Seconds of the Retry-After header; its other form, a date, is left to the backoff."""
    try:
        return max(float(error.response.headers.get("retry-after")), 0.0)
    except (TypeError, ValueError, AttributeError):
        return None


def _invalid(reason: Any, said: str, *, secret: str, wait: float | None = None) -> Attempt:
    return Attempt(outcome=Invalid(reason=reason, detail=_clean(said, secret)), retry_after_s=wait)


def _clean(said: str, secret: str) -> str:
    """One short line without the key, which servers like to echo."""
    line = " ".join((said.replace(secret, "***") if secret else said).split())
    return line if len(line) <= _LONGEST_DETAIL else line[:_LONGEST_DETAIL] + "..."
