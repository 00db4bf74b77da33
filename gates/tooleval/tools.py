"""The tools of the tool scenarios: declarations, requests for them, what they return, answers from that.

A tool is a few templates over named values; `values` draws them.  Knows nothing of conversations.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.harness.seeded import number, pick, words

Values = Mapping[str, Any]

CITIES: Final = words(
    "Oslo Rome Paris Lima Cairo Delhi Berlin Madrid Vienna Dublin Athens Prague Boston Sydney"
)
UNICODE_CITIES: Final = (
    "Zürich", "Malmö", "Łódź", "Kraków", "Genève", "Tromsø", "Århus", "Besançon", "Αθήνα", "Москва",
    "東京", "京都",
)  # fmt: skip
PEOPLE: Final = words("Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karin Leo Mia Nina Oscar Paula")
DAYS: Final = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ROOMS: Final = words("kitchen bedroom bathroom office hall garage cellar balcony")
DISHES: Final = words("soup pizza salad rice noodles fish curry pancakes")
EXTRAS: Final = words("cheese onion pepper bread lemon butter garlic herbs")
GOODS: Final = words("milk bread eggs apples coffee tea sugar salt flour butter")
SUBJECTS: Final = words("meeting holiday invoice party report garden project travel birthday contract")
SENTENCES: Final = (
    "See you soon.", "The door is open.", "Please call me.", "Lunch is ready.", "I am late.",
    "The train is full.", "Bring an umbrella.", "All is well.", "We start at noon.", "It works now.",
)  # fmt: skip
LANGUAGES: Final = words("French German Spanish Italian Dutch Polish Greek Danish")
MONEY: Final = words("EUR USD GBP JPY CHF SEK")
SYMBOLS: Final = words("ABC XYZ QRS LMN DEF GHI")
SKIES: Final = words("rain snow sun wind fog clouds")
DOMAINS: Final = words("mail.org post.net box.com")

_DRAWN: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "city": lambda draw: pick(draw, CITIES),
    "other_city": lambda draw: pick(draw, CITIES),
    "place": lambda draw: pick(draw, UNICODE_CITIES),
    "person": lambda draw: pick(draw, PEOPLE),
    "day": lambda draw: pick(draw, DAYS),
    "room": lambda draw: pick(draw, ROOMS),
    "dish": lambda draw: pick(draw, DISHES),
    "extra": lambda draw: pick(draw, EXTRAS),
    "goods": lambda draw: pick(draw, GOODS),
    "subject": lambda draw: pick(draw, SUBJECTS),
    "text": lambda draw: pick(draw, SENTENCES),
    "language": lambda draw: pick(draw, LANGUAGES),
    "money": lambda draw: pick(draw, MONEY),
    "other_money": lambda draw: pick(draw, MONEY),
    "symbol": lambda draw: pick(draw, SYMBOLS),
    "sky": lambda draw: pick(draw, SKIES),
    "days": lambda draw: number(draw, 2, 9),
    "hour": lambda draw: number(draw, 7, 22),
    "minutes": lambda draw: number(draw, 2, 59),
    "people": lambda draw: number(draw, 2, 9),
    "count": lambda draw: number(draw, 2, 20),
    "level": lambda draw: number(draw, 1, 100),
    "degrees": lambda draw: number(draw, 10, 30),
    "half": lambda draw: number(draw, 15, 25) + 0.5,
    "amount": lambda draw: number(draw, 10, 900),
    "price": lambda draw: number(draw, 100, 999),
    "phone": lambda draw: f"{number(draw, 100, 999)}-{number(draw, 100, 999)}",
    "email": lambda draw: f"{pick(draw, PEOPLE).lower()}{number(draw, 10, 99)}@{pick(draw, DOMAINS)}",
    "path": lambda draw: f"/{pick(draw, SUBJECTS)}/{pick(draw, GOODS)}{number(draw, 10, 99)}.txt",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One tool.

    `arguments` maps each argument to the value it takes, nested objects and lists too; `returns` likewise.
    """

    name: str
    description: str
    arguments: Mapping[str, Any]
    requests: tuple[str, ...]
    returns: Mapping[str, Any]
    answer: str

    def declaration(self) -> dict[str, Any]:
        """The function object of a request's `tools`."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": {
                "type": "object",
                "properties": {key: _schema(value) for key, value in self.arguments.items()},
                "required": list(self.arguments),
            },
        }

    def call(self, values: Values) -> dict[str, Any]:
        """The arguments of a call with these values."""
        return {key: _filled(value, values) for key, value in self.arguments.items()}

    def result(self, values: Values) -> str:
        """What a call returns, as JSON text."""
        return json.dumps(
            {key: _filled(value, values) for key, value in self.returns.items()}, ensure_ascii=False
        )

    def needed(self, values: Values) -> tuple[str, ...]:
        """What an answer must name: each value returned, as it is written."""
        return tuple(str(_filled(value, values)) for value in self.returns.values())


def draw_values(draw: random.Random) -> dict[str, Any]:
    """A value of every name; the two of a pair differ."""
    while True:
        values = {name: make(draw) for name, make in _DRAWN.items()}
        if values["city"] != values["other_city"] and values["money"] != values["other_money"]:
            return values


def _filled(value: Any, values: Values) -> Any:
    if isinstance(value, dict):
        return {key: _filled(part, values) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    return values[value]


_NUMBERS: Final = {
    "days": "integer", "hour": "integer", "minutes": "integer", "people": "integer", "count": "integer",
    "level": "integer", "amount": "integer", "price": "integer", "degrees": "integer", "half": "number",
}  # fmt: skip


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: _schema(part) for key, part in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _schema(value[0])}
    return {"type": _NUMBERS.get(value, "string")}


WEATHER: Final = Kind(
    "get_weather",
    "Weather of a city",
    {"city": "city", "days": "days"},
    (
        "How will the weather be in {city} for {days} days?",
        "Give me the weather of {city} for the next {days} days.",
    ),
    {"sky": "sky", "degrees": "degrees"},
    "The weather in {city} is {sky} with {degrees} degrees.",
)
CONTACT: Final = Kind(
    "find_contact",
    "Email of a person",
    {"name": "person"},
    ("What is the email of {person}?", "Find the email address of {person}."),
    {"email": "email"},
    "The email of {person} is {email}.",
)
EMAIL: Final = Kind(
    "send_email",
    "Send an email",
    {"to": "email", "subject": "subject", "text": "text"},
    ("Send an email to {email} about {subject} with the text: {text}",),
    {"sent": "count"},
    "The email was sent as number {count}.",
)
SEARCH: Final = Kind(
    "search_files",
    "Find a file by a word",
    {"query": "goods"},
    ("Which file is about {goods}?", "Find the file about {goods}."),
    {"path": "path"},
    "The file is {path}.",
)
READ: Final = Kind(
    "read_file",
    "Read a file",
    {"path": "path"},
    ("What is in the file {path}?", "Read the file {path} to me."),
    {"content": "text"},
    "The file says: {text}",
)
STOCK: Final = Kind(
    "get_stock",
    "Price of a stock",
    {"symbol": "symbol"},
    ("What is the price of the stock {symbol}?", "How much is one {symbol}?"),
    {"price": "price"},
    "The stock {symbol} is at {price}.",
)
NOTE: Final = Kind(
    "save_note",
    "Save a note",
    {"title": "subject", "number": "price"},
    ("Save {price} in a note named {subject}.", "Write a note named {subject} with the number {price}."),
    {"pages": "count"},
    "The note {subject} is saved, you have {count} pages.",
)
MESSAGE: Final = Kind(
    "send_message",
    "Send a short message",
    {"name": "person", "word": "sky"},
    ("Send the word {sky} to {person}.", "Message {person} with the word {sky}."),
    {"hour": "hour"},
    "The message reached {person} at {hour}.",
)

PLAIN: Final = (
    WEATHER,
    CONTACT,
    EMAIL,
    SEARCH,
    READ,
    STOCK,
    NOTE,
    MESSAGE,
    Kind(
        "get_time",
        "Local time of a city",
        {"city": "city"},
        ("What time is it in {city}?", "Tell me the time in {city}."),
        {"hour": "hour"},
        "In {city} it is {hour} o'clock.",
    ),
    Kind(
        "create_event",
        "Put an event into the calendar",
        {"title": "subject", "day": "day", "hour": "hour"},
        ("Put {subject} into my calendar for {day} at {hour}.", "Plan the {subject} on {day} at {hour}."),
        {"events": "count"},
        "The {subject} is planned, you have {count} events.",
    ),
    Kind(
        "set_timer",
        "Start a timer",
        {"minutes": "minutes"},
        ("Wake me in {minutes} minutes.", "Start a timer of {minutes} minutes."),
        {"hour": "hour"},
        "The timer ends at {hour}.",
    ),
    Kind(
        "translate",
        "Translate a text",
        {"text": "text", "language": "language"},
        ("Translate into {language}: {text}", "How do you say in {language}: {text}"),
        {"words": "count"},
        "The {language} text has {count} words.",
    ),
    Kind(
        "convert_money",
        "Convert an amount of money",
        {"amount": "amount", "from": "money", "to": "other_money"},
        ("How much is {amount} {money} in {other_money}?", "Change {amount} {money} into {other_money}."),
        {"result": "price"},
        "You get {price} {other_money}.",
    ),
    Kind(
        "find_flight",
        "Find a flight",
        {"from": "city", "to": "other_city", "day": "day"},
        (
            "Find a flight from {city} to {other_city} on {day}.",
            "I want to fly from {city} to {other_city} on {day}.",
        ),
        {"hour": "hour", "price": "price"},
        "A flight leaves at {hour} and costs {price}.",
    ),
    Kind(
        "book_table",
        "Book a table",
        {"people": "people", "day": "day", "hour": "hour"},
        ("Book a table for {people} on {day} at {hour}.", "We are {people}, get us a table {day} at {hour}."),
        {"table": "count"},
        "You have table {count} on {day}.",
    ),
    Kind(
        "add_to_list",
        "Put something on the shopping list",
        {"item": "goods", "count": "count"},
        ("Put {count} {goods} on my shopping list.", "I need to buy {count} {goods}."),
        {"items": "people"},
        "The list has {people} items now.",
    ),
    Kind(
        "set_light",
        "Set the light of a room",
        {"room": "room", "level": "level"},
        ("Set the light in the {room} to {level}.", "Make the {room} light {level} percent."),
        {"watts": "minutes"},
        "The {room} light takes {minutes} watts.",
    ),
    Kind(
        "delete_file",
        "Delete a file",
        {"path": "path"},
        ("Delete the file {path}.", "Remove {path} from the disk."),
        {"left": "count"},
        "It is deleted, {count} files are left.",
    ),
)
HARD: Final = (  # numeric with a fraction, nested, unicode
    Kind(
        "set_heating",
        "Set the heating of a room",
        {"room": "room", "degrees": "half"},
        ("Heat the {room} to {half} degrees.", "Set the heating in the {room} to {half}."),
        {"hour": "hour"},
        "The {room} is warm at {hour}.",
    ),
    Kind(
        "order_food",
        "Order food",
        {"order": {"dish": "dish", "count": "count", "extras": ["extra"]}},
        ("Order {count} {dish} with {extra}.", "I want {count} {dish} and {extra} on it."),
        {"price": "price"},
        "The {dish} costs {price}.",
    ),
    Kind(
        "create_contact",
        "Save a person",
        {"contact": {"name": "person", "phone": "phone", "city": "place"}},
        (
            "Save {person} from {place} with the phone {phone}.",
            "New contact: {person}, {phone}, {place}.",
        ),
        {"contacts": "count"},
        "{person} is saved, you have {count} contacts.",
    ),
    Kind(
        "find_hotel",
        "Find a hotel in a city",
        {"city": "place", "nights": "days"},
        ("Find a hotel in {place} for {days} nights.", "I need a hotel in {place}, {days} nights."),
        {"price": "price"},
        "A hotel in {place} costs {price}.",
    ),
)
EVERY: Final = (*PLAIN, *HARD)
