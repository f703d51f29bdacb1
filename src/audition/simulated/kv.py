"""Block accounting of the KV cache, and the prefix cache on top of it.

Each sequence owns whole blocks. Shared prefixes are counted once for each user (conservative). The prefix cache
remembers the chained hashes of the prompt blocks it has seen, least recently used first to go, and never more of them
than the cache has blocks. Generated tokens are not remembered.

What must not live here: scheduling decisions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from audition.simulated.tokens import split_tokens


class KvCache:
    """Free and used blocks of `block_size` tokens each."""

    def __init__(self, tokens: int, block_size: int) -> None:
        self.block_size = block_size
        self.total = tokens // block_size
        self.free = self.total

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0 to 1."""
        return 1.0 - self.free / self.total

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_size)


class PrefixCache:
    """Which prompt blocks are remembered.

    drop_last: under speculative decoding one matched block less is used (vLLM #38182), so a prompt of L tokens seen
    before hits max(0, floor((L - 1) / unit) - 1) * unit tokens, and floor((L - 1) / unit) * unit without.
    """

    def __init__(self, unit: int, capacity_blocks: int, drop_last: bool) -> None:
        self.unit = unit
        self.capacity = capacity_blocks
        self.drop_last = drop_last
        self._seen: OrderedDict[int, None] = OrderedDict()

    def hashes(self, prompt: str) -> list[int]:
        """Chained hash of each full block of the prompt."""
        tokens = split_tokens(prompt)
        chained, result = 0, []
        for start in range(0, len(tokens) - self.unit + 1, self.unit):
            chained = hash((chained, *tokens[start : start + self.unit]))
            result.append(chained)
        return result

    def lookup(self, hashes: Sequence[int], prompt_tokens: int) -> int:
        """Tokens of the prompt that need not be computed; at least one token always is."""
        matched = 0
        for block in hashes:
            if block not in self._seen:
                break
            self._seen.move_to_end(block)
            matched += 1
        matched = min(matched, (prompt_tokens - 1) // self.unit)
        if self.drop_last:
            matched = max(0, matched - 1)
        return matched * self.unit

    def remember(self, hashes: Sequence[int]) -> None:
        """Remember the blocks of a prompt that was computed."""
        for block in hashes:
            self._seen[block] = None
            self._seen.move_to_end(block)
        while len(self._seen) > self.capacity:
            self._seen.popitem(last=False)
