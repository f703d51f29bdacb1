"""Tokens of the simulation: how text is cut, and how a conversation becomes one prompt.

A token is one special marker, up to 8 word characters, or one other character, each with at most one space before it;
any other run of white space is one token. An image counts IMAGE_TOKENS. /tokenize, usage and metrics all use this rule.

What must not live here: answers, HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from zlib import crc32

IMAGE_TOKENS = 256
VOCABULARY = 248_320  # size of Qwen3.6's vocabulary; ids are a hash into it
_TOKEN = re.compile(r"<\|\w{1,16}\|>|\s?\w{1,8}|\s?(?!<\|\w{1,16}\|>)[^\w\s]|\s+")
IMAGE = "<|image_pad|>"


def split_tokens(text: str) -> list[str]:
    """Cut text into tokens; joined again they are the text."""
    return _TOKEN.findall(text)


def token_id(token: str) -> int:
    """A stable id of a token."""
    return crc32(token.encode("utf-8", "surrogatepass")) % VOCABULARY


def content_text(content: object) -> str:
    """The text of a message's content: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    parts = []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, Mapping):
            parts.append(str(part.get("text", "")) if part.get("type") == "text" else IMAGE * IMAGE_TOKENS)
    return "".join(parts)


def render_chat(messages: Sequence[Mapping[str, object]], tools: object, thinking: bool) -> str:
    """Lay a conversation out as one prompt, in the manner of Qwen's chat template."""
    lines = []
    if tools:
        lines.append(f"<|im_start|>system\n# Tools\n{json.dumps(tools)}<|im_end|>\n")
    for message in messages:
        text = content_text(message.get("content"))
        if message.get("tool_calls"):
            text += json.dumps(message["tool_calls"])
        lines.append(f"<|im_start|>{message.get('role', 'user')}\n{text}<|im_end|>\n")
    lines.append("<|im_start|>assistant\n" + ("<think>\n" if thinking else "<think>\n\n</think>\n\n"))
    return "".join(lines)
