"""Events cross from the engine's thread in order, with fewer wake-ups than letters."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.core import Event, Generated
from engine.server.mailbox import Mailbox


def test_letters_of_many_threads_arrive_once_and_in_the_order_of_each() -> None:
    heard: list[tuple[int, int]] = []

    async def play() -> None:
        loop, mailbox = asyncio.get_running_loop(), Mailbox()

        def write(thread: int) -> None:
            def take(event: Event) -> None:
                assert isinstance(event, Generated)
                heard.append((thread, event.token))

            for number in range(500):
                mailbox.post(loop, take, Generated(number))
                mailbox.wake()

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(heard) < 2000:
            await asyncio.sleep(0)
        for thread in threads:
            thread.join()

    asyncio.run(asyncio.wait_for(play(), 20))

    assert all([(t, n) for n in range(500)] == [entry for entry in heard if entry[0] == t] for t in range(4))


def test_many_letters_need_one_wake_up() -> None:
    heard: list[Event] = []

    class Counting(asyncio.SelectorEventLoop):
        wakes = 0

        def _write_to_self(self) -> None:
            self.wakes += 1
            super()._write_to_self()  # type: ignore[misc]

    loop, mailbox = Counting(), Mailbox()
    for number in range(100):
        mailbox.post(loop, heard.append, Generated(number))
    early = loop.wakes
    mailbox.wake()
    mailbox.wake()
    wakes = loop.wakes
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert (0, 1, 100) == (early, wakes, len(heard))


def test_a_closed_loop_is_told_to_whoever_posts() -> None:
    loop, mailbox = asyncio.new_event_loop(), Mailbox()
    loop.close()

    with pytest.raises(RuntimeError):
        mailbox.post(loop, lambda _: None, Generated(1))
    with pytest.raises(RuntimeError):
        mailbox.post(loop, lambda _: None, Generated(2))


def test_a_loop_that_closes_before_it_is_woken_takes_nothing() -> None:
    heard: list[Event] = []
    loop, mailbox = asyncio.new_event_loop(), Mailbox()
    mailbox.post(loop, heard.append, Generated(1))
    loop.close()
    mailbox.wake()

    assert [] == heard


def test_letters_of_a_closed_loop_are_not_taken_on_the_next() -> None:
    """Not those of before a wake-up, nor those of one that never was answered."""
    heard: list[str] = []
    mailbox = Mailbox()
    for woken in (True, False):
        closed = asyncio.new_event_loop()
        mailbox.post(closed, lambda _: heard.append("closed"), Generated(1))
        if woken:
            mailbox.wake()
        closed.close()
        loop = asyncio.new_event_loop()
        mailbox.post(loop, lambda _: heard.append("open"), Generated(2))
        mailbox.wake()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    assert ["open", "open"] == heard


def test_a_second_loop_is_refused_while_the_first_is_open() -> None:
    first, second, mailbox = asyncio.new_event_loop(), asyncio.new_event_loop(), Mailbox()
    mailbox.post(first, lambda _: None, Generated(1))
    with pytest.raises(RuntimeError, match="a mailbox of its own"):
        mailbox.post(second, lambda _: None, Generated(2))
    first.close()
    second.close()
