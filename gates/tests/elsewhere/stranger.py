"""A small model of another family, made in seconds: it has learned how an answer looks, not what is right.

Owns its numbers, its tokenizer and its training, and writes it in the two forms that public servers read: a
folder for transformers, a file for llama.cpp.  Nothing of the engine is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gates.quality.mini import arithmetic, choice, code
from gates.quality.mini import format as formats
from gates.quality.mini.item import Draw, drawn

SEED: Final = 20261130
ROLES: Final = ("<|system|>", "<|user|>", "<|assistant|>")
END: Final = "<|end|>"
TEMPLATE: Final = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONTEXT: Final = 4096
VOCABULARY: Final = 640
STEPS: Final = 240
ROWS: Final = 12  # of a batch
LEARNING_RATE: Final = 4e-3
IGNORED: Final = -100  # the label of a token that nobody predicts
KINDS: Final[tuple[Draw, ...]] = (
    partial(arithmetic.draw_item, steps=1),
    partial(arithmetic.draw_item, steps=2),
    choice.draw_item,
    partial(code.draw_item, form="docstring"),
    partial(code.draw_item, form="asserts"),
    formats.draw_item,
)


@dataclass(frozen=True, slots=True)
class Stranger:
    """The trained model with its tokenizer."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast

    def save(self, folder: Path) -> Path:
        """The folder that transformers loads."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return folder


def trained() -> Stranger:
    """The model after its few steps, the same on every machine of one kind."""
    torch.manual_seed(SEED)
    tokenizer = _tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.eos_token_id,
        )
    )
    _train(model, tokenizer)
    return Stranger(model.eval(), tokenizer)


def _train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=STEPS)
    rows = _rows(tokenizer)
    for _ in range(STEPS):
        batch = list(islice(rows, ROWS))
        width = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in batch])
        labels = torch.tensor([wanted + [IGNORED] * (width - len(wanted)) for _, wanted in batch])
        model(input_ids=ids, labels=labels).loss.backward()  # padding stands behind what sees it
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def _rows(tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[list[int], list[int]]]:
    """Ids of a question with its answer, and the same with only the answer to be predicted."""
    for question, answer in _pairs():
        asked = tokenizer.encode(f"<|user|>{question}{END}<|assistant|>")
        said = tokenizer.encode(f"{answer}{END}")
        yield asked + said, [IGNORED] * len(asked) + said


def _pairs() -> Iterator[tuple[str, str]]:
    draw = Random(SEED)
    while True:
        item = drawn(draw, draw.choice(KINDS), judging=False)
        yield item.prompt, item.reply


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, trained on what the model will see."""
    bpe: Any = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((text for pair in islice(_pairs(), 1200) for text in pair), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
