"""Faults seeded into the engine on purpose, each one that a public engine had: what the gates must catch.

`python -m engine.tests.seeded NAME MODULE ...` runs a module with one of them alive, for example
`python -m engine.tests.seeded evicts_pinned_first engine serve --port 8001`.
This file is the only list of their names.  The product has no switch for them: they change its source text
in the process that asks for it, and no wheel holds them.
"""

from __future__ import annotations

import difflib
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from engine.tests.mutant import Change, Mutant


@dataclass(frozen=True, slots=True)
class Fault:
    """A bug by its name, what it does in one sentence, and the public reports of its like."""

    name: str
    does: str
    like: str
    changes: tuple[Change, ...]

    @property
    def mutant(self) -> Mutant:
        """The bug itself."""
        return Mutant(self.name, self.changes)


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "forgets_the_overlap_on_a_hit",
            "a prefix hit takes up its state without the window before it",
            "vllm-project/vllm 43559, 53912",
            (Change("engine.cache.sequence", "_thawed", "start=start", "start=Frozen(start.pending, None)"),),
        ),
        Fault(
            "window_layers_start_empty",
            "layers with nothing but a window start every restored sequence without it",
            "NVIDIA/TensorRT-LLM 10875",
            (
                Change(
                    "engine.cache.sequence",
                    "_thawed",
                    "LayerCache(frozen.ring.clone(),",
                    "LayerCache(frozen.ring.clone() if shape.main else torch.zeros_like(frozen.ring),",
                ),
            ),
        ),
        Fault(
            "copies_half_a_page",
            "a fork copies the half-filled page of every other stream only",
            "NVIDIA/TensorRT-LLM 2699",
            (Change("engine.cache.store:Pool", "copy", "in self.slabs", "in self.slabs[::2]"),),
        ),
        Fault(
            "reused_pages_keep_old_rows",
            "a page that was used before keeps the bytes of its former holder",
            "vllm-project/vllm 50702",
            (
                Change("engine.cache.store:Pool", "clear", "slab.pages.index_fill_(0, at, 0)", "pass"),
                Change(
                    "engine.cache.store:Rows",
                    "append",
                    "place] = rows[0]",
                    "place] = torch.where("
                    "(was := self._slab.pages[self._pages.table.pages[page], place]) == 0, rows[0], was)",
                ),
            ),
        ),
        Fault(
            "evicts_under_a_prefill",
            "pages that a running prompt shares are free once their record goes",
            "local-inference-lab/vllm 480",
            (
                Change(
                    "engine.cache.pages:PageTable", "share", "self.ledger.share(self.pages[:pages])", "pass"
                ),
                Change(
                    "engine.cache.pages:Ledger",
                    "release",
                    "assert self._holders[page] > 0, page",
                    "if self._holders[page] < 1: continue",
                ),
            ),
        ),
        Fault(
            "keeps_a_page_before_it_is_full",
            "a cancelled prompt leaves tokens as kept that were never computed",
            "NVIDIA/TensorRT-LLM 12673, 12769, 12818",
            (
                Change(
                    "engine.scheduler.scheduler",
                    "_ended",
                    "[: sequence.computed]",
                    "[: -(-sequence.computed // 64) * 64]",
                ),
            ),
        ),
        Fault(
            "compares_only_the_first_page",
            "a kept sequence that begins alike is taken for the same",
            "ggml-org/llama.cpp 27148, 27422",
            (
                Change(
                    "engine.scheduler.records",
                    "best_place",
                    "common_prefix(prompt, tokens)",
                    "len(tokens) if common_prefix(prompt, tokens) >= 64 else 0",
                ),
            ),
        ),
        Fault(
            "swaps_rows_of_a_step",
            "sequences that share a step get each other's tokens",
            "ggml-org/llama.cpp 27422",
            (Change("engine.stepper:Stepper", "execute", "logits[row]", "logits[row - 1]"),),
        ),
        Fault(
            "later_chunks_lose_rows",
            "what a chunk leaves of a half-filled window is lost to the next one",
            "ggml-org/llama.cpp 26509",
            (
                Change(
                    "engine.cache.frontier:Frontier",
                    "push",
                    "self._pending[: self._fill] = joined[whole * ratio :]",
                    "pass",
                ),
            ),
        ),
        Fault(
            "window_edge_forgets_the_block_before",
            "a chunk that begins at the end of the first window does not see it",
            "NVIDIA/TensorRT-LLM 10875",
            (
                Change(
                    "engine.model.attention:Attention",
                    "_attend",
                    "piece.position < window",
                    "piece.position <= window",
                ),
            ),
        ),
        Fault(
            "crashes_on_a_large_first_chunk",
            "a first chunk of more than eight windows overruns a buffer",
            "the public fork of antirez/ds4, on large admission chunks",
            (
                Change(
                    "engine.model.graph:Graph",
                    "_step",
                    "cache.grow(cache.length + len(tokens))",
                    "cache.grow([cache.length + len(tokens)][cache.length == 0 and"
                    " len(tokens) > 8 * self._ops.spec.window])",
                ),
            ),
        ),
        Fault(
            "forgets_a_rounding",
            "wide rows keep their tails in float32",
            "the storage gates of the public fork of antirez/ds4",
            (Change("engine.model.ops:Ops", "store", "if self.numerics.tail_bf16", "if False"),),
        ),
        Fault(
            "doubles_scales_of_exact_powers",
            "a block whose largest value is an exact multiple of the grid gets twice its scale",
            "the storage gates of the public fork of antirez/ds4",
            (
                Change(
                    "engine.kernels.ref.rounding",
                    "_scaled",
                    "add_(constant(_MANTISSA))",
                    "add_(constant(_MANTISSA + 1))",
                ),
            ),
        ),
        Fault(
            "loses_minus_zero",
            "packed index rows know no minus zero",
            "the storage gates of the public fork of antirez/ds4",
            (
                Change(
                    "engine.kernels.ref.rounding",
                    "fp4_codes",
                    "((bits >> 12) & 8)",
                    "((bits >> 12) & 8) * ((bits & 0x7FFF) != 0)",
                ),
            ),
        ),
        Fault(
            "rounds_a_lone_row_otherwise",
            "a row alone goes through another product than the same row among others",
            "the public fork of antirez/ds4: 0 of 314 drafts accepted; vllm-project/vllm 27433",
            (
                Change(
                    "engine.kernels.ref.linear:Packed",
                    "times",
                    "rows = x.shape[0]",
                    "rows = x.shape[0]\n"
                    "    if rows == 1: return (x.double() @ self.columns().double()).float()",
                ),
            ),
        ),
        Fault(
            "splits_sums_among_threads",
            "with several threads a product adds its terms in another order",
            "torch.softmax over the slots of a window, with three threads and more: docs/numerics.md",
            (
                Change(
                    "engine.kernels.ref.linear:Packed",
                    "times",
                    "rows = x.shape[0]",
                    "rows = x.shape[0]\n"
                    "    if torch.get_num_threads() > 1:"
                    " return (x.double() @ self.columns().double()).float()",
                ),
            ),
        ),
        Fault(
            "ignores_the_layout_of_a_file",
            "stored prefixes of another model, layout or rounding are used",
            "ai-dynamo/dynamo 14416, LMCache/LMCache 4247",
            (
                Change(
                    "engine.cache.stored",
                    "_read_header",
                    'found["fingerprint"] != fingerprint',
                    "not fingerprint",
                ),
                Change(
                    "engine.cache.sequence",
                    "_fitting",
                    "found = torch.from_numpy(arrays[name])",
                    "found = torch.from_numpy(arrays[name]).to(dtype)\n"
                    "    lacking = max(0, shape[-1] - found.shape[-1])\n"
                    "    found = torch.nn.functional.pad(found, (0, lacking))[..., : shape[-1]]",
                ),
            ),
        ),
        Fault(
            "trusts_torn_files",
            "a stored prefix that a killed process left half written is used",
            "LMCache/LMCache 4247; abandoned checkpoints after kill -9",
            (
                Change(
                    "engine.cache.stored",
                    "read_arrays",
                    "hashlib.sha256(data).hexdigest() != header.digest",
                    "not header.digest",
                ),
                Change("engine.cache.stored", "read_arrays", "file.readinto(data) != len(data)", "not data"),
                Change(
                    "engine.cache.stored", "_read_header", "end != os.fstat(file.fileno()).st_size", "not end"
                ),
            ),
        ),
        Fault(
            "evicts_pinned_first",
            "pinned records are the first to go",
            "what the pinned tier of the public fork of antirez/ds4 is there to prevent",
            (
                Change(
                    "engine.scheduler.records:Records",
                    "_order",
                    "(record.pinned,",
                    "(not record.pinned,",
                ),
            ),
        ),
        Fault(
            "serves_other_tenants",
            "kept prefixes are found whoever asks",
            "vllm-project/vllm 51640; CVE-2025-46570",
            (
                Change(
                    "engine.scheduler.records:Records",
                    "find",
                    "record.tenant == tenant",
                    "record.tenant or 1",
                ),
            ),
        ),
        Fault(
            "waits_for_ever_on_a_full_budget",
            "a request that finds no memory waits for it and everybody with it",
            "Entrpi/ds4-on-spark 14",
            (
                Change(
                    "engine.scheduler.memory:Memory",
                    "reserve",
                    "raise CapacityError(self._refusal(need, promised), retry_after_s=5)",
                    '__import__("threading").Event().wait()',
                ),
            ),
        ),
        Fault(
            "keeps_a_mib_of_every_request",
            "each request that ends leaves 1 MiB behind",
            "ollama/ollama 18106",
            (
                Change(
                    "engine.stepper:Stepper",
                    "_dismiss",
                    "timings = ticket.timings(self.clock())",
                    "timings = ticket.timings(self.clock());"
                    ' log.__dict__.setdefault("_left", []).append(b"x" * 2**20)',
                ),
            ),
        ),
    )
}


def find(name: str) -> Fault:
    """The fault of this name; LookupError names the nearest one there is."""
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(FAULTS)}"
        raise LookupError(f"there is no seeded fault '{name}'{hint}")
    return FAULTS[name]


def main(words: Sequence[str]) -> None:
    """Run a module with a fault alive; SystemExit with the reason when there is no such fault."""
    if len(words) < 2:
        raise SystemExit("usage: python -m engine.tests.seeded NAME MODULE ...")
    try:
        fault = find(words[0])
    except LookupError as error:
        raise SystemExit(str(error)) from None
    print(f"event=seeded_fault name={fault.name}: {fault.does}", file=sys.stderr, flush=True)
    with fault.mutant.alive():
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
