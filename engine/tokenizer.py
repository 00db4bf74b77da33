"""Bytes to ids and back, for the byte-level BPE vocabulary that a model file carries.

Owns pre-tokenisation, BPE, the look-up of marker tokens and incremental decoding.
Knows nothing of chat templates: what text becomes a marker is decided by the caller, segment by segment.
"""

from __future__ import annotations

import codecs
import functools
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar, cast

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as BpeTokenizer

from engine.errors import ModelFileError

if TYPE_CHECKING:
    from engine.gguf.file import GGUFFile

T = TypeVar("T", str, int)

REPLACEMENT = "\ufffd"
PRE_TOKENIZER_NAMES = ("joyai-llm", "deepseek-v3")  # what a file calls the three splits below

_NUMBERS = r"\p{N}{1,3}"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_WORDS = "|".join(
    (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


class TokenType(IntEnum):
    """Kinds of vocabulary entries, as `tokenizer.ggml.token_type` numbers them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def pre_tokenizer(*, drop_numbers: bool = False) -> pre_tokenizers.PreTokenizer:
    """The three splits of the published tokenizer in sequence, then the byte alphabet.

    `drop_numbers` removes the digit groups instead of isolating them; only vocabulary training asks for it.
    """
    numbers = "removed" if drop_numbers else "isolated"
    steps = [
        pre_tokenizers.Split(Regex(_NUMBERS), numbers),
        pre_tokenizers.Split(Regex(_CJK), "isolated"),
        pre_tokenizers.Split(Regex(_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return cast(pre_tokenizers.PreTokenizer, pre_tokenizers.Sequence(steps))


@functools.cache
def byte_symbols() -> tuple[str, ...]:
    """The printable character that stands for each byte value in vocabulary entries and merges.

    Printable Latin-1 stands for itself; the other 68 values are numbered from U+0100 on.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return tuple(chr(value if value in plain else next(hidden)) for value in range(256))


class Tokenizer:
    """One vocabulary: encodes any text, decodes any ids, finds marker tokens by their text."""

    def __init__(self, tokens: Sequence[str], token_types: Sequence[int], merges: Sequence[str]) -> None:
        """Build from the three lists of a file; raises ModelFileError when they do not fit together."""
        if len(tokens) != len(token_types):
            raise ModelFileError(
                f"tokenizer.ggml.token_type has {len(token_types)} entries but tokenizer.ggml.tokens has "
                f"{len(tokens)}; both need one entry for each token"
            )
        byte_level = (TokenType.NORMAL, TokenType.BYTE)
        vocabulary = {
            t: i for i, (t, kind) in enumerate(zip(tokens, token_types, strict=True)) if kind in byte_level
        }
        self._bpe = _build_bpe(vocabulary, merges)
        self._pieces = _token_bytes(tokens, token_types)
        self._specials = _literal_ids(tokens, token_types)
        self._vocabulary = vocabulary
        self.longest_token_bytes = max((len(piece) for piece in self._pieces), default=1)

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Tokenizer:
        """Read vocabulary, types and merges from a model file; raises ModelFileError naming the key."""
        found = file.metadata.get("tokenizer.ggml.pre")
        if found not in PRE_TOKENIZER_NAMES:
            raise ModelFileError(
                f"tokenizer.ggml.pre is {found!r}; this engine reads {', '.join(PRE_TOKENIZER_NAMES)}; "
                "use a DeepSeek-V4 model file"
            )
        tokens = _metadata_list(file, "tokenizer.ggml.tokens", str)
        types = _metadata_list(file, "tokenizer.ggml.token_type", int)
        merges = _metadata_list(file, "tokenizer.ggml.merges", str)
        return cls(tokens, types, merges)

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; marker texts inside it stay text.  Lone surrogates become U+FFFD."""
        if not text:
            return []
        # A batch of one: only batches are encoded without the interpreter's lock; a long text takes seconds,
        # during which the server must answer others.  `fast` keeps no offsets, which halves time and memory.
        batch = self._bpe.encode_batch_fast([_replace_surrogates(text)], add_special_tokens=False)
        return list(batch[0].ids)

    def special(self, text: str) -> int:
        """The one id whose text is exactly `text`; raises ModelFileError when there is none."""
        found = self._specials.get(text, self._vocabulary.get(text))
        if found is None:
            raise ModelFileError(
                f"the vocabulary has no token {text!r}; the chat format needs it as exactly one id; "
                "use a DeepSeek-V4 model file"
            )
        return found

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that plain text never becomes: markers, control and unused entries."""
        return frozenset(self._specials.values())

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes one id stands for, maybe a part of a character; U+FFFD for an unknown id."""
        if 0 <= token < len(self._pieces):
            return self._pieces[token]
        return REPLACEMENT.encode()

    def decode(self, ids: Iterable[int]) -> str:
        """Text of any ids, markers included; never raises: bad bytes and unknown ids become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def stream(self) -> TokenStream:
        """A fresh incremental decoder."""
        return TokenStream(self)


class TokenStream:
    """Decodes id by id and never hands out a part of a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Text that became complete with this id; empty while a character is still open."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an unfinished character, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def _replace_surrogates(text: str) -> str:
    """Valid Unicode: surrogate pairs joined, lone surrogates replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _build_bpe(vocabulary: dict[str, int], merges: Sequence[str]) -> BpeTokenizer:
    missing = [value for value, symbol in enumerate(byte_symbols()) if symbol not in vocabulary]
    if missing:
        raise ModelFileError(
            f"tokenizer.ggml.tokens lacks {len(missing)} of the 256 single-byte tokens, "
            f"first byte 0x{missing[0]:02x}; without them some text could not be encoded"
        )
    pairs = [_split_merge(index, merge) for index, merge in enumerate(merges)]
    for index, (left, right) in enumerate(pairs):
        absent = next((part for part in (left, right, left + right) if part not in vocabulary), None)
        if absent is not None:
            raise ModelFileError(
                f"tokenizer.ggml.merges[{index}] is {merges[index]!r} but {absent!r} is not in the vocabulary"
            )
    bpe = BpeTokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    bpe.pre_tokenizer = pre_tokenizer()
    return bpe


def _split_merge(index: int, merge: str) -> tuple[str, str]:
    left, gap, right = merge.partition(" ")
    if not (left and gap and right) or " " in right:
        raise ModelFileError(
            f"tokenizer.ggml.merges[{index}] is {merge!r}; a merge is two tokens with one blank between them"
        )
    return left, right


def _token_bytes(tokens: Sequence[str], token_types: Sequence[int]) -> list[bytes]:
    """Bytes of each token: byte alphabet for ordinary tokens, UTF-8 of the text for all others."""
    values = {symbol: value for value, symbol in enumerate(byte_symbols())}
    pieces = []
    for token, kind in zip(tokens, token_types, strict=True):
        if kind in (TokenType.NORMAL, TokenType.BYTE) and all(symbol in values for symbol in token):
            pieces.append(bytes(values[symbol] for symbol in token))
        else:
            pieces.append(_replace_surrogates(token).encode())
    return pieces


def _literal_ids(tokens: Sequence[str], token_types: Sequence[int]) -> dict[str, int]:
    """Text to id for everything that BPE never produces; a text with two ids is an error."""
    found: dict[str, int] = {}
    for index, (token, kind) in enumerate(zip(tokens, token_types, strict=True)):
        if kind in (TokenType.NORMAL, TokenType.BYTE):
            continue
        if token in found and kind != TokenType.UNUSED:
            raise ModelFileError(
                f"tokenizer.ggml.tokens has the marker {token!r} twice, at {found[token]} and {index}; "
                "each marker must be exactly one id"
            )
        found.setdefault(token, index)
    return found


def _metadata_list(file: GGUFFile, key: str, kind: type[T]) -> list[T]:
    """An array of the file's metadata with every element of one Python type."""
    value: object = file.metadata.get(key)
    entries = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None
    if entries is None or not all(isinstance(entry, kind) for entry in entries):
        raise ModelFileError(f"{key} must be an array of {kind.__name__}, found {type(value).__name__}")
    return entries
