"""KV events for Dynamo's router: which blocks of tokens the slots contain."""

from __future__ import annotations

from typing import Any

from penstock.llamacpp.slots import Changes, Slots


class KvEvents:
    """Publishes the changes of the slots; nothing before the runtime has a publisher."""

    def __init__(self, slots: Slots) -> None:
        self._block_size = slots.block_size
        self._publisher: Any = None

    def start(self, publisher: Any) -> None:
        self._publisher = publisher

    def publish(self, changes: Changes) -> None:
        if self._publisher is None:
            return
        if changes.removed:
            self._publisher.publish_removed(list(changes.removed))
        if changes.stored:
            first = changes.stored[0]
            self._publisher.publish_stored(
                token_ids=[token for block in changes.stored for token in block.tokens],
                num_block_tokens=[self._block_size] * len(changes.stored),
                block_hashes=[block.hash for block in changes.stored],
                parent_hash=first.parent,
            )
