"""What the format items write about: a few words for each topic, and the sentences made of them.

A topic always gives the same sentences in the same order, so that there is one ideal reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_STOCK: Final = """
river|long|cold|in the valley|the summer|boats and fish
baker|kind|busy|in the old town|the morning|bread and cakes
garden|green|quiet|behind the house|the spring|flowers and herbs
market|loud|colourful|on the main square|the morning|fruit and cheese
library|large|quiet|near the station|the evening|books and maps
harbour|old|windy|at the end of the road|the winter|ships and sailors
school|small|bright|on the hill|the autumn|lessons and games
forest|dark|deep|behind the village|the autumn|deer and mushrooms
bridge|narrow|strong|over the river|the night|walkers and carts
castle|grey|famous|above the town|the summer|towers and stories
kitchen|warm|clean|on the first floor|the evening|soup and bread
station|busy|modern|in the north of the town|the morning|trains and people
farm|large|old|outside the village|the spring|cows and horses
museum|quiet|famous|in the city centre|the winter|pictures and statues
mountain|high|steep|in the south of the country|the winter|snow and rocks
beach|wide|sunny|at the sea|the summer|sand and shells
theatre|old|elegant|on the long street|the evening|plays and music
hospital|white|modern|near the park|the night|doctors and nurses
island|small|green|in the middle of the lake|the summer|birds and trees
workshop|dusty|loud|beside the church|the day|tools and wood
doctor|calm|clever|in the small town|the night|patients and letters
teacher|patient|friendly|in the village school|the day|children and books
horse|brown|strong|in the field|the morning|grass and water
cat|grey|lazy|on the roof|the night|mice and milk
train|fast|long|on the new line|the evening|travellers and bags
church|old|cold|in the middle of the village|the winter|candles and songs
lake|blue|calm|behind the mountain|the summer|swans and boats
hotel|small|comfortable|near the beach|the summer|guests and keys
tower|tall|round|at the city wall|the evening|stairs and bells
park|green|open|in the east of the city|the spring|trees and paths
"""


@dataclass(frozen=True, slots=True)
class Topic:
    """The words of one topic."""

    noun: str
    first: str
    second: str
    place: str
    time: str
    pair: str

    def sentences(self) -> tuple[str, ...]:
        """Its six sentences, of which the third and the sixth hold a comma."""
        return (
            f"The {self.noun} is {self.first} and {self.second}.",
            f"You can find the {self.noun} {self.place}.",
            f"In {self.time}, many people like to visit the {self.noun}.",
            f"There are {self.pair} that belong to the {self.noun}.",
            f"My friend says that the {self.noun} is very {self.first}.",
            f"When I think of {self.pair}, I remember the {self.noun}.",
        )


TOPICS: Final = tuple(Topic(*line.split("|")) for line in _STOCK.strip().splitlines())
