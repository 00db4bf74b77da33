"""The wording of the needle gate: keys, codes, statements, questions, and where a needle goes in the hay.

The embedded model is trained on exactly this format, with other seeds than any gate uses.
A large model follows it from the words alone.
Owns every string that a needle prompt or a right answer is made of; knows no server and no verdict.
"""

from __future__ import annotations

import bisect
import random
import re
from collections.abc import Sequence
from typing import Final

_KEYS: Final = """
otter badger falcon heron beaver walrus penguin dolphin turtle lizard parrot pigeon raven eagle tiger
leopard panther zebra giraffe camel donkey hamster rabbit squirrel hedgehog moose bison buffalo gorilla
monkey kangaroo koala octopus lobster shrimp salmon trout shark whale crocodile spider beetle butterfly
dragonfly cricket scorpion peacock flamingo ostrich swan pelican turkey antelope gazelle chimpanzee
mongoose porcupine raccoon jellyfish apple banana cherry lemon apricot mango melon coconut pineapple
grape raspberry strawberry walnut almond chestnut pumpkin cucumber tomato potato carrot onion garlic
cabbage spinach mushroom pepper ginger cinnamon vanilla tulip daisy orchid sunflower lavender cactus
bamboo maple willow avocado blueberry radish celery zucchini piano violin guitar trumpet flute drum harp
banjo accordion clarinet saxophone trombone cello tambourine xylophone hammer chisel wrench pliers
screwdriver ladder shovel rake bucket anvil drill tractor bicycle scooter helicopter airplane rocket
submarine canoe kayak yacht trolley ambulance bulldozer locomotive parachute telescope microscope compass
barometer thermometer calculator camera projector television radio microphone keyboard printer scanner
robot satellite antenna battery magnet generator elevator helmet sweater jacket mitten scarf sandal
slipper necklace bracelet earring umbrella backpack suitcase wallet kettle teapot saucer spatula blender
toaster refrigerator freezer microwave thermos pillow mattress curtain carpet sofa armchair wardrobe
chandelier mirror pyramid castle lighthouse windmill igloo fountain statue aquarium stadium diamond
emerald ruby sapphire pearl amber puzzle balloon marble trophy medal crown trampoline volcano glacier
comet planet galaxy nebula crater sandwich pancake muffin biscuit pretzel noodle pizza sausage yogurt
pudding chocolate stethoscope hammock lantern envelope stapler crayon eraser scissors notebook hourglass
metronome pendulum chessboard dinosaur unicorn mermaid pirate wizard astronaut
"""
KEYS: Final[tuple[str, ...]] = tuple(_KEYS.split())

_SENTENCE_END: Final = re.compile(r"[.!?][\"'\u201d\u2019)]?(?=\s|$)")
_ABBREVIATION: Final = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Gen|Col|No|etc|vs)|\b[A-Z])\.$")


def draw_code(draw: random.Random) -> str:
    """Six digits, the first not 0, whose two halves differ; from ``draw.random()`` alone."""
    while True:
        code = str(100_000 + int(draw.random() * 900_000))
        if code[:3] != code[3:]:
            return code


def statement(key: str, code: str) -> str:
    """The needle: the one sentence that holds the code of the key."""
    return f"The access code for the {key} is {code}."


def question(key: str) -> str:
    """The question for one key."""
    return f"What is the access code for the {key}?"


def questions(keys: Sequence[str]) -> str:
    """The question for several keys, whose codes are wanted in this order; one key asks like ``question``."""
    if len(keys) == 1:
        return question(keys[0])
    listed = ", ".join(f"the {key}" for key in keys[:-1])
    return f"What are the access codes for {listed} and the {keys[-1]}, in this order?"


def follow_up(key: str) -> str:
    """The question of the second turn, about a key that the same text holds."""
    return f"And what is the access code for the {key}?"


def absent(key: str) -> str:
    """The right reply when the text holds no code for the key."""
    return f"The access code for the {key} is not in the text."


def user_message(document: str, asked: str) -> str:
    """The whole user turn: task, text, question, and how to answer."""
    return (
        f"Read the text and answer the question.\n\n{document}\n\nQuestion: {asked}\n"
        "Answer with the exact sentence from the text, or say that it is not in the text."
    )


def sentence_ends(hay: str) -> list[int]:
    """Every position of the text where a sentence is over (before the white space that follows), in order."""
    return [
        end.end()
        for end in _SENTENCE_END.finditer(hay)
        if not _ABBREVIATION.search(hay, max(0, end.start() - 8), end.start() + 1)
    ]


def document(hay: str, needles: Sequence[tuple[float, str]]) -> str:
    """The hay with each ``(depth, sentence)`` put in, moved back to the sentence end at or before its depth.

    Depth is the share of the hay's characters, 0 to 1; 0 puts the sentence in front.
    Needles at one place keep their given order.
    """
    ends = [0, *sentence_ends(hay)]
    places: list[tuple[int, int, str]] = []
    for order, (depth, sentence) in enumerate(needles):
        if not 0.0 <= depth <= 1.0:
            raise ValueError(f"needle depth is {depth}; allowed are 0.0 (front) to 1.0 (end)")
        places.append((ends[bisect.bisect_right(ends, depth * len(hay)) - 1], order, sentence))
    pieces: list[str] = []
    taken = 0
    for place, _, sentence in sorted(places):
        pieces.append(hay[taken:place] + (f"{sentence} " if place == 0 else f" {sentence}"))
        taken = place
    return "".join(pieces) + hay[taken:]
