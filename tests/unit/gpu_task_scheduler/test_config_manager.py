"""A configuration is expanded to test instances and folders as in the original's README."""

from __future__ import annotations

import copy
import os
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from gpu_task_scheduler.config_manager import ConfigManager

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE: dict[str, Any] = {
    "scheduler_config": {"gpu": ["0", "1", "2"]},
    "global_config": {"num_run": 5, "num_epoch": 200},
    "test_config": [
        {"method": ["GAN", "ALI"], "num_packing": [1], "num_zmode": [1]},
        {"method": ["WGAN"], "num_packing": [3], "num_zmode": [1, 2]},
    ],
}
INSTANCES = [
    {"num_run": 5, "num_epoch": 200, "method": "GAN", "num_packing": 1, "num_zmode": 1},
    {"num_run": 5, "num_epoch": 200, "method": "ALI", "num_packing": 1, "num_zmode": 1},
    {"num_run": 5, "num_epoch": 200, "method": "WGAN", "num_packing": 3, "num_zmode": 1},
    {"num_run": 5, "num_epoch": 200, "method": "WGAN", "num_packing": 3, "num_zmode": 2},
]


def with_config(test: Any = None, **scheduler: Any) -> ConfigManager:
    config = {"scheduler_config": {"gpu": ["0"], **scheduler}}
    return ConfigManager(config if test is None else {**config, "test_config": test})


def folders(manager: ConfigManager) -> list[str]:
    left = range(manager.get_num_left_config())
    return [manager.get_next_config()["test_config_string_filtered"] for _ in left]


def test_the_test_instances_of_the_sample_configuration() -> None:
    config = copy.deepcopy(SAMPLE)
    for _ in range(3):
        manager = ConfigManager(config)
        assert manager.get_num_left_config() == 4
        found = [manager.get_next_config() for _ in range(4)]
        assert [each["config"] for each in found] == INSTANCES
        assert found[0] == {
            "config": INSTANCES[0],
            "test_config_string": "method-GAN,num_packing-1,num_zmode-1,",
            "test_config_string_filtered": "method-GAN,num_packing-1,num_zmode-1,",
            "work_dir": os.path.abspath("results/method-GAN,num_packing-1,num_zmode-1,"),
        }
        assert manager.get_num_left_config() == 0
        assert manager.get_next_config() == {"config": None}
    assert config == SAMPLE


def test_the_other_public_methods() -> None:
    manager = ConfigManager(SAMPLE)
    assert manager.get_all_global_config() == {"num_run": 5, "num_epoch": 200}
    assert manager.get_all_test_config()[3] == {"method": "WGAN", "num_packing": 3, "num_zmode": 2}
    assert manager.get_all_test_config_in_string() == "+".join(folders(ConfigManager(SAMPLE)))
    assert manager.get_num_gpu() == 3
    assert manager.get_gpu_envs()[1] == {"name": "gpu1", "env": {"CUDA_VISIBLE_DEVICES": "1"}}
    assert manager.get_all_scheduler_config() == {
        "gpu": ["0", "1", "2"],
        "result_root_folder": os.path.abspath("results/"),
        "force_rerun": False,
        "test_config_string_indicator": "-",
        "test_config_string_separator": ",",
        "test_config_string_inst_separator": "+",
        "temp_folder": os.path.abspath("temp/"),
        "log_file": "worker.log",
        "scheduler_log_file_path": "scheduler.log",
        "config_string_value_maxlen": 30,
        "ignored_keys_for_folder_name": [],
        "ignored_characters_for_folder_name": [" ", "[", "]"],
    }


def test_gpus_may_be_ids_and_lists_of_ids() -> None:
    manager = ConfigManager({"scheduler_config": {"gpu": [["0", "1"], "2", ["3"]]}})
    assert [each["env"]["CUDA_VISIBLE_DEVICES"] for each in manager.get_gpu_envs()] == [
        "0,1",
        "2",
        "3",
    ]
    assert manager.get_gpu_envs()[0]["name"] == "gpu0,1"


def test_without_a_test_config_there_is_one_instance_in_the_root_folder() -> None:
    manager = with_config(result_root_folder="out/")
    assert manager.get_next_config()["work_dir"] == "out/"
    assert manager.get_next_config() == {"config": None}


def test_the_separators_in_folder_names_can_be_chosen() -> None:
    manager = with_config(
        [{"b": ["x y"], "a": [[1, 2]]}],
        test_config_string_indicator="=",
        test_config_string_separator=";",
        ignored_characters_for_folder_name=[" "],
        ignored_keys_for_folder_name=["b"],
    )
    found = manager.get_next_config()
    assert found["test_config_string"] == "a=[1,2];b=xy;"
    assert found["test_config_string_filtered"] == "a=[1,2];"


def test_values_may_be_any_iterable() -> None:
    manager = with_config([{"a": range(2), "b": (None,), "c": {"k": 1}, "d": iter([True])}])
    assert folders(manager) == ["a-0,b-None,c-k,d-True,", "a-1,b-None,c-k,d-True,"]


def test_values_that_are_cut_to_the_same_name_get_two_folders() -> None:
    values = ["x" * 40 + "1", "x" * 40 + "2", "x" * 40 + "1"]
    with pytest.warns(UserWarning, match="config_string_value_maxlen"):
        first, second, again = folders(with_config([{"a": values}]))
    assert first == again == f"a-{'x' * 30},"
    assert second.startswith(first)
    assert len(second) == len(first) + 8
    with pytest.warns(UserWarning, match="would share the folder"):
        assert folders(with_config([{"a": values}]))[1] == second


def test_values_with_the_same_text_get_two_folders() -> None:
    with pytest.warns(UserWarning, match="would share the folder"):
        assert len(set(folders(with_config([{"a": [1, "1"]}])))) == 2


def test_a_key_that_is_ignored_for_names_does_not_make_another_folder() -> None:
    manager = with_config([{"a": [1], "seed": [1, 2]}], ignored_keys_for_folder_name=["seed"])
    assert len(list(manager.instances())) == 2
    assert folders(manager) == ["a-1,", "a-1,"]


def test_equal_instances_run_once() -> None:
    manager = with_config([{"a": [1, 2]}, {"a": [2, 3]}])
    assert manager.get_num_left_config() == 4
    assert [each.folder_name for each in manager.instances()] == ["a-1,", "a-2,", "a-3,"]


def test_create_dir_makes_the_folder(tmp_path: Path) -> None:
    manager = with_config([{"a": ["x/y"]}], result_root_folder=str(tmp_path))
    assert manager.get_next_config(create_dir=True)["work_dir"] == f"{tmp_path}/a-x/y,"
    assert (tmp_path / "a-x" / "y,").is_dir()


def test_an_unknown_setting_is_a_warning() -> None:
    with pytest.warns(
        UserWarning, match="no force_return: it is ignored; did you mean force_rerun"
    ):
        with_config(force_return=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_config(force_rerun=True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "could not find scheduler_config in config"),
        ({"scheduler_config": {}}, "could not find gpu in scheduler_config"),
        ({"scheduler_config": {"gpu": []}}, "please specify at least one gpu in scheduler_config"),
        ({"scheduler_config": {"gpu": [0]}}, "gpu can only be a string or a list of strings"),
        ({"scheduler_config": {"gpu": [[0]]}}, "gpu can only be a string or a list of strings"),
        (
            {"scheduler_config": {"gpu": ["0"]}, "test_config": [{"lr": 0.1}]},
            "test_config: lr is 0.1, not a list of values",
        ),
    ],
)
def test_a_wrong_configuration_is_a_value_error(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConfigManager(config)
