"""Tokenizers that need no download: plain bytes, or a byte-level BPE trained on the corpus itself."""

from collections.abc import Iterable
from typing import Protocol

BYTES_END = 256  # end of a document in the byte vocabulary
END_TOKEN = "<|end|>"  # noqa: S105 - closes a document, opens nothing


class Tokenizer(Protocol):
    """Text to token numbers. `end` closes each document."""

    kind: str
    vocab_size: int
    end: int

    def encode(self, text: str) -> list[int]:
        """Token numbers of a text, without the end token."""
        ...

    def file_content(self) -> str:
        """What must be stored beside the tokens to decode them, "" for nothing."""
        ...


class ByteTokenizer:
    """One token per UTF-8 byte."""

    kind = "bytes"
    vocab_size = 257
    end = BYTES_END

    def encode(self, text: str) -> list[int]:
        """Bytes of the text."""
        return list(text.encode(errors="replace"))

    def file_content(self) -> str:
        """Nothing to store."""
        return ""


class BpeTokenizer:
    """Byte-level BPE in the format of the tokenizers package (tokenizer.json)."""

    kind = "bpe"

    def __init__(self, content: str) -> None:
        from tokenizers import Tokenizer as Library

        self._library = Library.from_str(content)
        self.vocab_size: int = self._library.get_vocab_size()
        end = self._library.token_to_id(END_TOKEN)
        if end is None:
            raise ValueError(f"the tokenizer has no {END_TOKEN}")
        self.end: int = end

    @classmethod
    def train(cls, texts: Iterable[str], *, vocab_size: int) -> "BpeTokenizer":
        """Learn the merges from these texts. The same texts give the same tokenizer."""
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, models, pre_tokenizers, trainers

        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_TOKEN],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        library.train_from_iterator(texts, trainer)
        return cls(library.to_str())

    def encode(self, text: str) -> list[int]:
        """Token numbers of the text."""
        numbers: list[int] = self._library.encode(text).ids
        return numbers

    def file_content(self) -> str:
        """tokenizer.json, as transformers and the tokenizers package read it."""
        content: str = self._library.to_str(pretty=True)
        return content
