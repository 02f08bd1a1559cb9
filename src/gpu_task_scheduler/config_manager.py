"""`ConfigManager`: expands a configuration to test instances, each with its folder."""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import pickle
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

_DEFAULTS = {
    "result_root_folder": "results/",
    "force_rerun": False,
    "test_config_string_indicator": "-",
    "test_config_string_separator": ",",
    "test_config_string_inst_separator": "+",
    "temp_folder": "temp/",
    "log_file": "worker.log",
    "scheduler_log_file_path": "scheduler.log",
    "config_string_value_maxlen": 30,
    "ignored_keys_for_folder_name": [],
    "ignored_characters_for_folder_name": [" ", "[", "]"],
}
Config = dict[str, Any]


class Instance(NamedTuple):
    """A combination of parameters; `text` has all of them in full, `name` may be cut."""

    config: Config
    name: str
    folder_name: str
    work_dir: str
    text: str


class ConfigManager:
    """Reads a configuration and does not change it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._scheduler_config = _read_scheduler_config(config)
        self._global_config: Config = config.get("global_config", {})
        self._test_config = _expand(config.get("test_config", [{}]))
        self._folder_names = self._name_folders()
        self._counter = 0

    def get_all_scheduler_config(self) -> Config:
        """Return the scheduler's configuration with defaults; each GPU or group of GPUs as a string."""
        return self._scheduler_config

    def get_all_global_config(self) -> Config:
        """Return the parameters that all instances share."""
        return self._global_config

    def get_all_test_config(self) -> list[Config]:
        """Return the parameters of each instance, without the shared ones."""
        return self._test_config

    def get_all_test_config_in_string(self) -> str:
        """Return the names of all instances' folders in one string."""
        separator: str = self._scheduler_config["test_config_string_inst_separator"]
        return separator.join(self._folder_names)

    def get_next_config(self, create_dir: bool = False) -> Config:
        """Return the next instance, after the last one `{"config": None}`; `create_dir` makes its folder."""
        if not self.get_num_left_config():
            return {"config": None}
        instance = self._instance(self._counter)
        self._counter += 1
        if create_dir:
            os.makedirs(instance.work_dir, exist_ok=True)
        return {
            "config": instance.config,
            "test_config_string": instance.name,
            "test_config_string_filtered": instance.folder_name,
            "work_dir": instance.work_dir,
        }

    def get_num_left_config(self) -> int:
        """Return how many instances `get_next_config` has not returned yet."""
        return len(self._test_config) - self._counter

    def get_num_gpu(self) -> int:
        """Return the number of GPUs or groups of GPUs."""
        return len(self._scheduler_config["gpu"])

    def get_gpu_envs(self) -> list[dict[str, Any]]:
        """Return the name of each GPU or group, and the environment that makes only it visible."""
        return [
            {"name": f"gpu{gpu}", "env": {"CUDA_VISIBLE_DEVICES": gpu}}
            for gpu in self._scheduler_config["gpu"]
        ]

    def instances(self) -> Iterator[Instance]:
        """Yield every instance; of equal ones in the same folder only the first."""
        seen = set()
        for number in range(len(self._test_config)):
            instance = self._instance(number)
            if (instance.folder_name, instance.text) not in seen:
                seen.add((instance.folder_name, instance.text))
                yield instance

    def _instance(self, number: int) -> Instance:
        values = self._test_config[number]
        folder_name = self._folder_names[number]
        return Instance(
            config={**copy.deepcopy(self._global_config), **values},
            name=self._format(values),
            folder_name=folder_name,
            work_dir=os.path.join(self._scheduler_config["result_root_folder"], folder_name),
            text=self._format(values, whole=True),
        )

    def _format(self, values: Config, *, whole: bool = False) -> str:
        """Format an instance as `key-value,key-value,`; with `whole` nothing is cut or deleted."""
        scheduler = self._scheduler_config
        length = None if whole else scheduler["config_string_value_maxlen"]
        indicator = scheduler["test_config_string_indicator"]
        separator = scheduler["test_config_string_separator"]
        text = "".join(
            f"{key}{indicator}{str(values[key])[:length]}{separator}"
            for key in sorted(values, key=str)
        )
        for character in () if whole else scheduler["ignored_characters_for_folder_name"]:
            text = text.replace(character, "")
        return text

    def _name_folders(self) -> list[str]:
        """Return a folder name for each instance; a name that is taken gets a hash."""
        ignored = tuple(self._scheduler_config["ignored_keys_for_folder_name"])
        names: list[str] = []
        owners: dict[str, Config] = {}
        for values in self._test_config:
            counted = {key: value for key, value in values.items() if key not in ignored}
            name = self._format(counted)
            owner = owners.setdefault(name, counted)
            if owner is not counted and _fingerprint(owner) != _fingerprint(counted):
                taken, name = name, f"{name}{_fingerprint(counted)}"
                if name not in owners:
                    warnings.warn(
                        f"two test instances would share the folder {taken}: the second has {name}"
                        " (a larger config_string_value_maxlen tells them apart)",
                        stacklevel=3,
                    )
                    owners[name] = counted
            names.append(name)
        return names


def _read_scheduler_config(config: Mapping[str, Any]) -> Config:
    if "scheduler_config" not in config:
        raise ValueError("could not find scheduler_config in config")
    given = config["scheduler_config"]
    if "gpu" not in given:
        raise ValueError("could not find gpu in scheduler_config")
    if len(given["gpu"]) < 1:
        raise ValueError("please specify at least one gpu in scheduler_config")
    for key in given:
        if key not in _DEFAULTS and key != "gpu":
            near = difflib.get_close_matches(str(key), _DEFAULTS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.warn(f"scheduler_config has no {key}: it is ignored{hint}", stacklevel=3)
    found = {**_DEFAULTS, **given, "gpu": [_format_gpu(gpu) for gpu in given["gpu"]]}
    for name in {"result_root_folder", "temp_folder"} - given.keys():
        found[name] = os.path.abspath(found[name])  # a task may change its folder
    return found


def _format_gpu(gpu: object) -> str:
    if isinstance(gpu, str):
        return gpu
    if isinstance(gpu, list | tuple) and gpu and all(isinstance(each, str) for each in gpu):
        return ",".join(gpu)
    raise ValueError("gpu can only be a string or a list of strings")


def _expand(blocks: Any) -> list[Config]:
    instances: list[Config] = []
    for block in blocks:
        for key, values in block.items():
            if not hasattr(values, "__iter__"):
                raise ValueError(f"test_config: {key} is {values!r}, not a list of values")
        instances += (dict(zip(block, each, strict=True)) for each in product(*block.values()))
    return instances


def _fingerprint(values: Config) -> str:
    """Return a short hash of the values themselves, not of their text."""
    digest = hashlib.sha256()
    for key in sorted(values, key=str):
        try:
            data = pickle.dumps(values[key])
        except Exception:  # what only cloudpickle can pickle
            data = repr(values[key]).encode()
        digest.update(repr(key).encode() + data)
    return digest.hexdigest()[:8]
