"""The sweeps that the daemon steers while they run, and their controllers.

An order to steer a sweep is on disk before it is acknowledged. A controller that is killed is started again,
and goes on from the study, the queue and the runs' folders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from stoker.engine.controller_process import ControllerProcess, Line
from stoker.errors import StokerError
from stoker.store.database import Database
from stoker.store.search_records import SearchRecords
from stoker.wire import SearchBegun, SearchOrder, from_wire

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_AT_ONCE = 2  # controllers that begin at the same time: each imports Optuna


class SearchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An order to steer a sweep. One that is `closed` lets its runs end, and begins no more.

    `is_new` until a controller has begun with it; if none can, the order before counts again.
    """

    order: SearchOrder
    closed: bool = False
    is_new: bool = False
    previous: SearchRecord | None = None


Begun = asyncio.Future[SearchBegun]


class Searches:
    """Keeps one controller for each steered sweep. Belongs to one event loop.

    `on_begin` is called with the name of a sweep that is ordered, `on_over` when one is over.
    """

    def __init__(
        self,
        home: str,
        database: Database,
        notify: Callable[[str], None],
        on_begin: Callable[[str], None] = lambda _name: None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._home = home
        self._records = SearchRecords(database)
        self._notify = notify
        self._on_begin = on_begin
        self._on_over = on_over
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._open: dict[int, SearchRecord] = {
            number: msgspec.json.decode(data, type=SearchRecord)
            for number, data in self._records.all().items()
        }

    def start(self) -> None:
        """Start the controllers of all sweeps that were steered before."""
        for number in self._open:
            self._start(number)

    async def stop(self) -> None:
        """End all controllers; their sweeps are steered again by the next daemon."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def begin(self, order: SearchOrder) -> SearchBegun:
        """Steer a sweep from now on; return when its first run is queued.

        An order that its controller refuses is forgotten, and an earlier order for the same sweep goes on.
        """
        self._on_begin(order.name)
        cwd = from_wire(order.cwd)
        number = self._records.number_of(order.name, cwd)
        record = SearchRecord(order=order, is_new=True, previous=self._open.get(number))
        self._records.put(number, msgspec.json.encode(record))
        previous = self._tasks.pop(number, None)
        self._open[number] = record
        if previous is not None:
            previous.cancel()
            await asyncio.gather(previous, return_exceptions=True)
        begun: asyncio.Future[SearchBegun] = asyncio.get_running_loop().create_future()
        begun.add_done_callback(lambda future: future.exception())  # the client may have gone
        self._start(number, begun)
        return await asyncio.shield(begun)

    def close(self, project: str | None) -> None:
        """Begin no more runs of a project, or with None of any sweep; what runs goes on."""
        for number, record in list(self._open.items()):
            if project in (None, record.order.submission.project) and not record.closed:
                self._open[number] = closed = msgspec.structs.replace(record, closed=True)
                self._records.put(number, msgspec.json.encode(closed))
                self._start_again(number)

    def has_open(self, project: str | None) -> bool:
        """Whether a sweep of a project, or with None any sweep, may begin more runs."""
        return any(
            project in (None, record.order.submission.project) for record in self._open.values()
        )

    def _start(self, number: int, begun: Begun | None = None) -> None:
        self._tasks[number] = asyncio.ensure_future(self._steer(number, begun))

    def _start_again(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()
        self._start(number)

    async def _steer(self, number: int, begun: Begun | None) -> None:
        """Run controllers of one sweep, one after the other, until the sweep is over."""
        pause_s, told = _FIRST_PAUSE_S, ""
        clock = asyncio.get_running_loop().time
        while True:
            record, began = self._open[number], clock()
            try:
                await self._run_once(number, begun)
                break
            except StokerError as error:
                if begun is not None and not begun.done():
                    begun.set_exception(error)
                if self._open[number].is_new:
                    self._go_back(number)
                    return
                text = f"sweep {record.order.name}: {error}; trying again"
                if text != told:
                    self._notify(text)
                told = text
            if clock() - began > _LONGEST_PAUSE_S:
                pause_s, told = _FIRST_PAUSE_S, ""  # it worked, and what ended it is another thing
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._forget(number)

    def _go_back(self, number: int) -> None:
        """Forget an order that its controller has refused."""
        previous = self._open[number].previous
        self._forget(number)
        if previous is not None:
            self._records.put(number, msgspec.json.encode(previous))
            self._open[number] = previous
            self._start(number)

    async def _run_once(self, number: int, begun: Begun | None) -> None:
        order = msgspec.json.encode(self._open[number])
        is_begun = asyncio.Event()
        notices: list[str] = []

        def on_line(line: Line) -> None:
            if line.notice is not None:
                self._notify(line.notice)
                notices.append(line.notice)
            if line.begun is not None:
                is_begun.set()
                self._accept(number)
                if begun is not None and not begun.done():
                    begun.set_result(msgspec.structs.replace(line.begun, notices=notices))

        process = ControllerProcess(self._home, order, on_line)
        async with self._few:
            running = asyncio.ensure_future(process.run())
            waiting = asyncio.ensure_future(is_begun.wait())
            try:
                await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                raise
            finally:
                waiting.cancel()
        await running

    def _accept(self, number: int) -> None:
        """Record that a controller has begun with the order of a sweep."""
        record = self._open[number]
        if record.is_new:
            self._open[number] = msgspec.structs.replace(record, is_new=False, previous=None)
            self._records.put(number, msgspec.json.encode(self._open[number]))

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        if self._tasks.get(number) is asyncio.current_task():
            del self._tasks[number]
        self._records.forget(number)
        self._on_over()
