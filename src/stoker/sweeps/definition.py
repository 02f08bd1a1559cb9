"""Parsing and checking of a sweep definition; every error names its line."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import msgspec

from stoker.containers.command import read_image
from stoker.core.durations import parse_limit
from stoker.core.early_stopping import StopRule
from stoker.core.job import OnNan
from stoker.core.selector import check_name
from stoker.core.size import parse_size
from stoker.errors import UsageError
from stoker.sweeps import wandb
from stoker.sweeps.cell import check_text, make_cell
from stoker.sweeps.conditions import Condition, Match
from stoker.sweeps.objective import Metric, read_metrics, read_stop_rule
from stoker.sweeps.overrides import override
from stoker.sweeps.parameters import Reader, list_values, plain
from stoker.sweeps.space import SEED, Block, Dimension, Method, Space, check_parameter, order
from stoker.sweeps.template import Template
from stoker.sweeps.tree import DefinitionError, Map, Seq, did_you_mean
from stoker.warm.command import NEVER, check_modules

_OURS = (
    *("name", "command", "resources", "fixed", "method", "samples", "seed", "repeats"),
    *("parameters", "exclude", "metric", "early_terminate", "dir", "warm"),
)
_WANDB = ("program", "run_cap", "description", "project", "entity")
_RESOURCES = (
    *("gpus", "gpu_mem", "cpus", "mem", "timeout", "retries", "priority"),
    *("image", "on_nan", "stall", "idle"),
)
_T = TypeVar("_T")
_BAYES = "bayes"  # as W&B calls tpe
_DIR = "results/{name}/{id}"


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Resources and limits of each run. `timeout` is in the user's notation."""

    gpus: int | None = None
    gpu_mem_bytes: int | None = None
    cpus: int | None = None
    mem_bytes: int | None = None
    timeout: str | None = None
    retries: int | None = None
    priority: int | None = None
    image: str | None = None
    on_nan: str | None = None
    stall_s: float | None = None  # 0: never
    idle_s: float | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A checked sweep definition."""

    name: str
    template: Template
    space: Space
    dir: str = _DIR
    resources: Resources = Resources()
    metrics: tuple[Metric, ...] = ()
    stop_rule: StopRule | None = None
    warm: tuple[str, ...] | None = None  # modules that a warm worker imports before a run starts
    notes: tuple[str, ...] = ()
    wandb_groups: tuple[str, ...] | None = None  # of a W&B file: its nested parameters


def read_definition(tree: Map, words: Sequence[str] = ()) -> Definition:
    """Parse the sweep of a file or a mapping; parameters in `words` override those in it."""
    tree.check_keys((*_OURS, *_WANDB, *wandb.IGNORED_KEYS), "unknown key")
    method = _method(tree)
    is_wandb = wandb.is_wandb(tree.get("command"), tree.get("program"))
    reader = Reader()
    reader.notes += [f"{key}: has no effect here" for key in wandb.IGNORED_KEYS if key in tree]
    template = _template(tree, reader.notes)
    fixed = _fixed(tree)
    blocks = _blocks(tree, reader)
    fixed, blocks = override(fixed, blocks, words, reader, strict="parameters" in tree)
    if method is Method.GRID and (is_wandb or tree.get("samples", tree.get("run_cap")) is None):
        blocks = _list_values(tree, blocks)
    space = Space(
        fixed=tuple((name, make_cell(value)) for name, value in fixed.items()),
        blocks=tuple(_block(tree, dimensions) for dimensions in blocks),
        exclude=_exclude(tree),
        method=method,
        samples=_whole(tree, "run_cap" if "run_cap" in tree else "samples", least=1),
        seed=_whole(tree, "seed") or 0,
        repeats=_whole(tree, "repeats", least=1),
    )
    _check_space(tree, space)
    _check_template(tree, template, space, reader.notes, is_wandb=is_wandb)
    metrics = read_metrics(tree, reader.notes)
    _check_search(tree, space, metrics)
    return Definition(
        name=_name(tree, template, is_wandb=is_wandb),
        template=template,
        space=space,
        dir=_dir(tree, space),
        resources=_resources(tree),
        metrics=metrics,
        stop_rule=read_stop_rule(tree, metrics, reader.notes),
        warm=_warm(tree),
        notes=tuple(reader.notes),
        wandb_groups=tuple(reader.groups) if is_wandb else None,
    )


def _method(tree: Map) -> Method:
    method = tree.get("method", "grid")
    if method == _BAYES:
        return Method.TPE
    known = [each.value for each in Method]
    if method not in known:
        tree.fail(
            "method", f"no method {plain(method)!r}: {did_you_mean(str(method), [*known, _BAYES])}"
        )
    return Method(method)


def _check_search(tree: Map, space: Space, metrics: Sequence[Metric]) -> None:
    """Check what only an adaptive method needs."""
    if space.method is not Method.TPE:
        if len(metrics) > 1:
            tree.fail("metric", "several metrics need method: tpe: name the one to compare runs by")
        return
    method = tree.get("method")
    if not metrics:
        tree.fail(
            "method",
            f"{method} needs a metric: metric: {{name: val_acc, goal: maximize}}"
            " (or --maximize val_acc)",
        )
    if space.samples is None:
        tree.fail("method", f"{method} needs a number of runs: samples: 50 (or -n 50)")
    if space.repeats is not None:
        tree.fail("repeats", f"{method} has no repeats: leave them out, or use method: random")
    if not space.varied():
        tree.fail("method", f"{method} has no parameter to choose: add one with several values")


def _template(tree: Map, notes: list[str]) -> Template:
    command, program = tree.get("command"), tree.get("program")
    key = "program" if command is None else "command"
    if command is None and program is None:
        raise UsageError(
            f"{tree.place('')}the sweep has no command: command: python train.py {{args}}"
        )
    try:
        return Template(_command_text(plain(command), program, notes))
    except DefinitionError as error:
        tree.fail(key, str(error))


def _command_text(command: Any, program: Any, notes: list[str]) -> str:
    if program is not None and not isinstance(program, str):
        raise DefinitionError("program must be the path of a script")
    if command is None:
        return wandb.to_template(wandb.DEFAULT, program, notes)
    if isinstance(command, list):
        if not command:
            raise DefinitionError("the command is an empty list")
        return wandb.to_template(command, program, notes)
    if not isinstance(command, str):
        raise DefinitionError("the command must be a text or a list of words")
    return command if program is None else command.replace("${program}", shlex.quote(program))


def _fixed(tree: Map) -> dict[str, Any]:
    fixed = tree.get("fixed")
    if fixed is None:
        return {}
    if not isinstance(fixed, Map):
        tree.fail("fixed", "fixed must be a mapping: {epochs: 200}")
    found = {}
    for name, value in fixed.items():
        try:
            check_parameter(name)
            found[name] = make_cell(plain(value)).value
        except DefinitionError as error:
            fixed.fail(name, f"{name}: {error}")
    return found


def _blocks(tree: Map, reader: Reader) -> list[list[Dimension]]:
    parameters = tree.get("parameters")
    if parameters is None:
        return [[]]
    if isinstance(parameters, Map):
        return [reader.block(parameters)]
    if not isinstance(parameters, Seq) or not parameters:
        tree.fail("parameters", "parameters must be a mapping, or a list of mappings")
    for place, block in enumerate(parameters):
        if not isinstance(block, Map):
            raise UsageError(f"{parameters.place(place)}a block of parameters must be a mapping")
    return [reader.block(block) for block in parameters]


def _list_values(tree: Map, blocks: list[list[Dimension]]) -> list[list[Dimension]]:
    """Replace the integer and stepped ranges of a grid by their values, as W&B does."""
    try:
        return [[list_values(each) for each in block] for block in blocks]
    except DefinitionError as error:
        tree.fail("parameters", str(error))


def _block(tree: Map, dimensions: list[Dimension]) -> Block:
    try:
        return Block(order(dimensions))
    except DefinitionError as error:
        tree.fail("parameters", str(error))


def _exclude(tree: Map) -> tuple[Condition | Match, ...]:
    given = tree.get("exclude")
    if given is None:
        return ()
    if isinstance(given, (str, Map)):
        given = [given]
    if not isinstance(given, list):
        tree.fail("exclude", "exclude must be a list of conditions and mappings")
    found: list[Condition | Match] = []
    for place, item in enumerate(given):
        where = given.place(place) if isinstance(given, Seq) else tree.place("exclude")
        if isinstance(item, Map) and item:
            wanted = {
                name: plain(value) if isinstance(value, Seq) else [plain(value)]
                for name, value in item.items()
            }
            found.append(Match(wanted))
        elif isinstance(item, str):
            try:
                found.append(Condition(item))
            except DefinitionError as error:
                raise UsageError(f"{where}exclude: {error}") from None
        else:
            raise UsageError(f"{where}exclude takes a condition or a mapping, not {plain(item)!r}")
    return tuple(found)


def _check_space(tree: Map, space: Space) -> None:
    names = space.names
    fixed = {name for name, _cell in space.fixed}
    for block in space.blocks:
        for name in fixed & set(block.names):
            tree.fail("fixed", f"'{name}' is both fixed and a parameter: remove one of them")
        for each in block.dimensions:
            if each.when is not None:
                _check_names(tree, "parameters", each.when, names)
    for condition in space.exclude:
        _check_names(tree, "exclude", condition, names)
    if space.repeats is not None and (
        SEED in fixed or any(SEED in block.names for block in space.blocks)
    ):
        tree.fail("repeats", "repeats add a seed, but the sweep has one: remove one of them")
    _check_samples(tree, space)


def _check_samples(tree: Map, space: Space) -> None:
    if space.samples is None:
        drawn = [name for block in space.blocks for draw in block.draws for name in draw.names]
        if space.method is Method.RANDOM and not space.is_finite:
            tree.fail("method", "random needs a number of samples: samples: 50 (or -n 50)")
        if drawn and space.method is Method.GRID:
            tree.fail(
                "parameters",
                f"{drawn[0]} is drawn from a distribution: a grid needs a number of samples"
                " (samples: 50 or -n 50), or use method: random",
            )
    weighted = any(axis.weights for block in space.blocks for axis in block.axes)
    if weighted and space.method is Method.GRID:
        tree.fail("parameters", "probabilities need method: random")


def _check_names(tree: Map, key: str, condition: Condition | Match, names: Sequence[str]) -> None:
    for name in sorted(condition.names - set(names)):
        tree.fail(
            key, f"'{name}' in '{condition.text}' is not a parameter: {did_you_mean(name, names)}"
        )


def _check_template(
    tree: Map, template: Template, space: Space, notes: list[str], *, is_wandb: bool
) -> None:
    always = {name for name, _cell in space.fixed}
    always |= {SEED} if space.repeats is not None else set()
    common = [
        {name for each in block.dimensions if each.when is None for name in each.names}
        for block in space.blocks
    ]
    always |= set.intersection(*common)
    names = space.names
    sometimes = [n for n in names if n not in always]
    try:
        template.check([n for n in names if n in always], sometimes, may_pass_none=is_wandb)
    except DefinitionError as error:
        tree.fail("command" if "command" in tree else "program", str(error))
    if names and not template.fields:
        notes.append(
            "the command passes no parameters: the program has to read them from wandb.config"
        )


def _whole(tree: Map, key: str, least: int | None = None) -> int | None:
    value = tree.get(key)
    if value is None:
        return None
    if type(value) is not int or (least is not None and value < least):
        wanted = "a whole number" if least is None else f"a whole number of at least {least}"
        tree.fail(key, f"{key} is {plain(value)!r}: it must be {wanted}")
    return value


def _name(tree: Map, template: Template, *, is_wandb: bool) -> str:
    name = tree.get("name")
    if name is None:
        return _usual_name(tree, template)
    if is_wandb and isinstance(name, str):  # W&B takes any text
        name = re.sub(r"[^\w.+-]+", "-", name).replace("..", ".").strip("-.") or name
    if not isinstance(name, str) or not name:
        tree.fail("name", f"the name {plain(name)!r} is not a text")
    if "/" in name or ".." in name:
        tree.fail("name", f"the name {name!r} contains '/' or '..': folders are named after it")
    tidy = re.sub(r"[\s,]+", "-", name) if tree.file is not None else name
    try:
        check_text(tidy)
        check_name("the name", tidy)
    except (DefinitionError, UsageError) as error:
        tree.fail("name", str(error))
    return tidy


def _usual_name(tree: Map, template: Template) -> str:
    """Name a sweep after its file, else after the program that the command runs."""
    if tree.file is not None and tree.file != "standard input":
        words = [tree.file]
    else:
        words = [
            word for word in re.split(r"[\s;&|]+", template.text) if re.match(r"[\w./-]", word)
        ]
        scripts = [word for word in words if re.search(r"\w\.\w+$", word)]
        words = scripts or words
    stem = os.path.splitext(os.path.basename(words[0] if words else ""))[0]
    name = re.sub(r"[^\w.-]+", "-", stem).strip("-.")
    return f"{name}-sweep" if name.isdecimal() or name == "daemon" else name[:100] or "sweep"


def _dir(tree: Map, space: Space) -> str:
    folder = tree.get("dir", _DIR)
    if not isinstance(folder, str) or "\0" in folder:
        tree.fail("dir", "dir must be a path, like results/{name}/{id}")
    try:
        check_text(folder)
    except DefinitionError as error:
        tree.fail("dir", str(error))
    used = re.findall(r"\{([^{}]*)\}", folder)
    always = {name for name, _cell in space.fixed}
    always |= set.intersection(*({*block.names} for block in space.blocks))
    known = ["name", "id", *sorted(always)]
    for name in used:
        if name not in known:
            tree.fail("dir", f"{{{name}}} in dir: {did_you_mean(name, known)}")
    if "id" not in used:
        tree.fail("dir", "dir must contain {id}, or runs would share a folder")
    return folder


def _resources(tree: Map) -> Resources:
    given = tree.get("resources")
    if given is None:
        return Resources()
    if not isinstance(given, Map):
        tree.fail("resources", "resources must be a mapping: {gpus: 1, timeout: 6h}")
    given.check_keys(_RESOURCES, "unknown resource")
    timeout = given.get("timeout")
    if timeout is not None and not isinstance(timeout, str):
        given.fail("timeout", f"timeout {timeout!r} has no unit: write 90s, 2h, 1d12h")
    return Resources(
        gpus=_whole(given, "gpus", 0),
        gpu_mem_bytes=_bytes(given, "gpu_mem"),
        cpus=_whole(given, "cpus", 1),
        mem_bytes=_bytes(given, "mem"),
        timeout=timeout,
        retries=_whole(given, "retries", 0),
        priority=_whole(given, "priority"),
        image=_parsed(given, "image", read_image),
        on_nan=_on_nan(given),
        stall_s=_parsed(given, "stall", _waste_limit),
        idle_s=_parsed(given, "idle", _waste_limit),
    )


def _on_nan(tree: Map) -> str | None:
    value = tree.get("on_nan")
    if value is not None and value not in get_args(OnNan):
        tree.fail("on_nan", f"on_nan is {plain(value)!r}: write mark, notify or stop")
    return value


def _waste_limit(text: str) -> float:
    return parse_limit(text) or 0.0


def _parsed(tree: Map, key: str, parse: Callable[[str], _T]) -> _T | None:
    value = tree.get(key)
    if value is None:
        return None
    try:
        return parse(str(plain(value)))
    except (UsageError, ValueError) as error:
        tree.fail(key, f"{key}: {error}")


def _warm(tree: Map) -> tuple[str, ...] | None:
    given = plain(tree.get("warm"))
    if given is None:
        return None
    if given == NEVER:
        return ()
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        tree.fail("warm", "warm must be auto, never, or a list of modules: [torch, numpy]")
    problem = check_modules(names)
    if problem is not None:
        tree.fail("warm", f"warm: {problem}")
    return tuple(names)


def _bytes(tree: Map, key: str) -> int | None:
    value = tree.get(key)
    if value is None:
        return None
    try:
        return parse_size(value if isinstance(value, str) else "")
    except ValueError:
        tree.fail(key, f"{key} is {plain(value)!r}: write 10G or 500M")
